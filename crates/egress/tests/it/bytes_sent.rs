//! What goes over the wire is what was given, and no more.

use bytes::Bytes;
use http::HeaderMap;
use posthorn_domain::url::EndpointUrl;
use posthorn_egress::Outgoing;
use posthorn_tests::receiver::Receiver;

use crate::fixture::{AMPLE, answered, open, post, tenant};

async fn target_of(suffix: &str) -> (String, String) {
    let receiver = Receiver::start().await.unwrap();
    answered(post(&open(), &receiver.url(suffix)).await);
    let request = receiver.requests().pop().unwrap();
    (
        request.request_line.clone(),
        request.header("host").unwrap().to_owned(),
    )
}

#[tokio::test]
async fn path_and_query_go_out_byte_for_byte() {
    let (line, _) = target_of("/a%2Fb//c/;x=1?x=1&x=2&e=%20+%C3%A9&k=").await;
    assert_eq!(line, "POST /a%2Fb//c/;x=1?x=1&x=2&e=%20+%C3%A9&k= HTTP/1.1");
}

#[tokio::test]
async fn odd_but_legal_paths_are_not_tidied() {
    for suffix in [
        "/a%2e%2e/b",
        "/%7Euser/~x",
        "/a=b&c",
        "/x?a=b?c/d",
        "/x?",
        "/'(*)!$,@:",
    ] {
        let (line, _) = target_of(suffix).await;
        assert_eq!(line, format!("POST {suffix} HTTP/1.1"));
    }
}

#[tokio::test]
async fn a_url_without_a_path_is_sent_to_the_root() {
    let (line, _) = target_of("").await;
    assert_eq!(line, "POST / HTTP/1.1");
}

#[tokio::test]
async fn a_query_without_a_path_is_sent_to_the_root() {
    let (line, _) = target_of("?x=1").await;
    assert_eq!(line, "POST /?x=1 HTTP/1.1");
}

#[tokio::test]
async fn host_names_the_port_when_it_is_not_the_scheme_s() {
    let receiver = Receiver::start().await.unwrap();
    answered(post(&open(), &receiver.url("/")).await);
    let request = receiver.requests().pop().unwrap();
    assert_eq!(
        request.header("host"),
        Some(receiver.address().to_string().as_str())
    );
}

#[tokio::test]
async fn an_ipv6_literal_keeps_its_brackets_in_host() {
    let receiver = Receiver::start_at("[::1]:0".parse().unwrap())
        .await
        .unwrap();
    let answer = answered(post(&open(), &receiver.url("/six")).await);
    assert_eq!(answer.remote_address, Some(receiver.address()));
    let request = receiver.requests().pop().unwrap();
    assert_eq!(
        request.header("host"),
        Some(format!("[::1]:{}", receiver.address().port()).as_str())
    );
}

#[tokio::test]
async fn nothing_is_added_but_host_and_content_length() {
    let receiver = Receiver::start().await.unwrap();
    answered(post(&open(), &receiver.url("/")).await);
    let mut names = receiver.requests().pop().unwrap().header_names();
    names.sort();
    assert_eq!(names, ["content-length", "host", "webhook-id"]);
}

async fn lengths_sent(body: &'static [u8]) -> (Vec<String>, Bytes) {
    let receiver = Receiver::start().await.unwrap();
    let url = EndpointUrl::parse(&receiver.url("/")).unwrap();
    let body = Bytes::from_static(body);
    answered(
        open()
            .send(Outgoing {
                tenant: tenant(1),
                url: &url,
                headers: HeaderMap::new(),
                body,
                timeout: AMPLE,
            })
            .await,
    );
    let request = receiver.requests().pop().unwrap();
    let lengths = request
        .headers_named("content-length")
        .map(str::to_owned)
        .collect();
    (lengths, request.body)
}

#[tokio::test]
async fn content_length_counts_bytes_and_is_sent_once() {
    let body = "{\"t\":\"🙄ïé☆\"}".as_bytes();
    let (lengths, sent) = lengths_sent(body).await;
    assert_eq!(lengths, [body.len().to_string()]);
    assert_eq!(sent, body);
}

#[tokio::test]
async fn an_empty_body_says_so() {
    assert_eq!(
        lengths_sent(b"").await,
        (vec!["0".to_owned()], Bytes::new())
    );
}

#[tokio::test]
async fn a_mebibyte_arrives_whole() {
    static BODY: [u8; 1024 * 1024] = [b'x'; 1024 * 1024];
    let (_, sent) = lengths_sent(&BODY).await;
    assert!(sent == BODY.as_slice());
}

//! What counts as an answer, and how much of it is kept.

use std::time::Duration;

use posthorn_domain::delivery::ErrorKind;
use posthorn_tests::receiver::{Receiver, Reply};

use crate::fixture::{Began, answered, failed, open, post, post_within};

const SHORT: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(20);

#[tokio::test]
async fn every_2xx_is_an_answer_with_and_without_a_body() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    for status in [200, 201, 202, 204, 205, 206, 226, 299] {
        receiver.script("/bare", Reply::status(status));
        assert_eq!(
            answered(post(&egress, &receiver.url("/bare")).await).status,
            status
        );
        receiver.script("/full", Reply::status(status).body("ok"));
        assert_eq!(
            answered(post(&egress, &receiver.url("/full")).await).status,
            status
        );
    }
    assert_eq!(receiver.requests().len(), 16);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    for status in [301, 302, 303, 307, 308] {
        for location in [
            Some("/other".to_owned()),
            Some(receiver.url("/other")),
            Some("/moved".to_owned()),
            None,
        ] {
            let reply = location.iter().fold(Reply::status(status), |reply, to| {
                reply.header("Location", to)
            });
            receiver.script("/moved", reply);
            let answer = answered(post(&egress, &receiver.url("/moved")).await);
            assert_eq!(answer.status, status);
            let shown = answer
                .headers()
                .into_iter()
                .find(|(name, _)| name == "location")
                .map(|(_, value)| value);
            assert_eq!(shown, location);
        }
    }
    assert_eq!(receiver.requests_to("/moved").len(), 20);
    assert!(receiver.requests_to("/other").is_empty());
}

#[tokio::test]
async fn a_redirect_elsewhere_opens_no_second_connection() {
    let (first, second) = (
        Receiver::start().await.unwrap(),
        Receiver::start().await.unwrap(),
    );
    first.script("/", Reply::status(307).header("location", &second.url("/")));
    assert_eq!(answered(post(&open(), &first.url("/")).await).status, 307);
    assert_eq!(second.connections(), 0);
}

#[tokio::test]
async fn informational_answers_are_passed_over() {
    let receiver = Receiver::start().await.unwrap();
    let early = "HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    receiver.script("/", Reply::raw(format!("HTTP/1.1 100 Continue\r\n\r\n{early}{early}{early}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")));
    let answer = answered(post(&open(), &receiver.url("/")).await);
    assert_eq!(
        (answer.status, answer.body.as_ref()),
        (200, b"ok".as_slice())
    );
}

#[tokio::test]
async fn switching_protocols_is_an_answer_that_is_no_success() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .then_hang(),
    );
    let answer = answered(post_within(&open(), &receiver.url("/"), SHORT).await);
    assert_eq!(answer.status, 101);
    assert!(!answer.is_success());
}

#[tokio::test]
async fn endless_informational_answers_end_at_the_deadline() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::raw("HTTP/1.1 102 Processing\r\n\r\n")
            .then_endless("HTTP/1.1 102 Processing\r\n\r\n", TICK),
    );
    failed(
        post_within(&open(), &receiver.url("/"), SHORT).await,
        ErrorKind::Timeout,
    );
}

#[tokio::test]
async fn a_slow_body_after_a_good_head_is_cut_at_the_deadline() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::endless(b".", TICK));
    let begun = Began::now();
    let answer = answered(post_within(&open(), &receiver.url("/"), SHORT).await);
    assert!(
        begun.elapsed().as_millis() < 1500,
        "{} ms",
        begun.elapsed().as_millis()
    );
    assert_eq!((answer.status, answer.cut), (200, true));
    assert!(answer.size > 0);
}

#[tokio::test]
async fn a_large_body_is_cut_at_16_kib_with_or_without_a_length() {
    let receiver = Receiver::start().await.unwrap();
    let chunk = vec![b'x'; 8 * 1024];
    receiver.script("/chunked", Reply::endless(&chunk, Duration::ZERO));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    receiver.script(
        "/length",
        Reply::raw(head).then_endless(chunk, Duration::ZERO),
    );
    for path in ["/chunked", "/length"] {
        let begun = Began::now();
        let answer = answered(post(&open(), &receiver.url(path)).await);
        assert!(
            begun.elapsed().as_millis() < 5000,
            "{path} {} ms",
            begun.elapsed().as_millis()
        );
        assert_eq!(
            (answer.status, answer.body.len(), answer.cut),
            (200, 16 * 1024, true),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_body_of_exactly_16_kib_is_whole() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::status(500).body(vec![b'x'; 16 * 1024]));
    let answer = answered(post(&open(), &receiver.url("/")).await);
    assert_eq!(
        (answer.body.len(), answer.size, answer.cut),
        (16 * 1024, 16 * 1024, false)
    );
}

#[tokio::test]
async fn a_body_that_is_not_text_and_says_it_is_compressed_is_kept_as_it_came() {
    let receiver = Receiver::start().await.unwrap();
    let body = [0xff, 0xfe, 0x00, 0x1f, 0x8b, 0x08];
    receiver.script(
        "/",
        Reply::status(500)
            .header("content-encoding", "gzip")
            .body(body.to_vec()),
    );
    assert_eq!(
        answered(post(&open(), &receiver.url("/")).await)
            .body
            .as_ref(),
        body
    );
}

#[tokio::test]
async fn a_good_head_whose_body_breaks_off_is_a_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789").then_close(),
    );
    let failure = failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
    assert_eq!(
        failure.detail,
        "the endpoint answered 200, but its body broke off after 10 bytes"
    );
}

#[tokio::test]
async fn a_bad_status_stands_though_its_body_breaks_off() {
    let receiver = Receiver::start().await.unwrap();
    let head = "HTTP/1.1 429 Slow Down\r\nretry-after: 30\r\ncontent-length: 100\r\n\r\n0123456789";
    receiver.script("/", Reply::raw(head).then_close());
    let answer = answered(post(&open(), &receiver.url("/")).await);
    assert_eq!((answer.status, answer.cut, answer.size), (429, true, 10));
    assert_eq!(answer.retry_after.as_deref(), Some("30"));
}

#[tokio::test]
async fn a_receiver_s_cookies_and_credentials_are_masked() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::status(401)
            .header("Set-Cookie", "s=canary")
            .header("WWW-Authenticate", "canary")
            .header("X_Auth_Token", "canary")
            .header("Location", "https://u:canary@a.test/")
            .header("X-Ok", "shown"),
    );
    let answer = answered(post(&open(), &receiver.url("/")).await);
    let text = format!("{answer:?}");
    assert!(!text.contains("canary"), "{text}");
    assert!(text.contains("shown"), "{text}");
}

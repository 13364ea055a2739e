//! Bodies: what is read, how much of it, and what is refused unread.

use axum::body::Body;
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http_body_util::StreamBody;
use hyper::body::Frame;
use posthorn_domain::limits;
use serde_json::json;

use super::{Api, text};

const EVENTS: &str = "/v1/events";

#[tokio::test]
async fn a_body_must_say_that_it_is_json() {
    let api = Api::start().await;
    let program = api.program().await;
    for content_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/json; charset=latin1"),
    ] {
        let mut request = program.request(Method::POST, EVENTS);
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let answer = api
            .send(
                request
                    .body(Body::from(r#"{"type":"a","payload":1}"#))
                    .unwrap(),
            )
            .await;
        let refused = answer.refuses(415, "content_type_unsupported");
        assert!(text(&refused, "detail").contains("Content-Type: application/json"));
    }
}

#[tokio::test]
async fn an_encoded_body_is_refused_unread() {
    let api = Api::start().await;
    let program = api.program().await;
    let request = program
        .request(Method::POST, EVENTS)
        .header(CONTENT_TYPE, "application/json");
    let request = request
        .header(CONTENT_ENCODING, "gzip")
        .body(unreadable())
        .unwrap();
    let refused = api
        .send(request)
        .await
        .refuses(415, "content_encoding_unsupported");
    assert!(text(&refused, "detail").contains("without Content-Encoding"));
}

#[tokio::test]
async fn a_body_that_announces_too_much_is_refused_unread_where_its_sender_asks_first() {
    let api = Api::start().await;
    let program = api.program().await;
    for path in [EVENTS, "/v1/endpoints"] {
        let request = program
            .request(Method::POST, path)
            .header(CONTENT_TYPE, "application/json");
        let request = request
            .header(CONTENT_LENGTH, "50000000")
            .header(EXPECT, "100-continue")
            .body(unreadable())
            .unwrap();
        assert_eq!(api.send(request).await.status, 413, "{path}");
    }
}

#[tokio::test]
async fn a_body_without_end_is_read_on_for_a_while_and_cut() {
    let api = Api::start().await;
    let program = api.program().await;
    let (given, counted) = endless();
    let request = program
        .request(Method::POST, EVENTS)
        .header(CONTENT_TYPE, "application/json");
    let refused = api.send(request.body(given).unwrap()).await;
    let refused = refused.refuses(413, "payload_too_large");
    let limit =
        "the body of this request has at most 1179648 bytes, and its payload at most 1048576";
    assert_eq!(refused["detail"], limit);
    let read = counted.load(std::sync::atomic::Ordering::Relaxed);
    let most = limits::SUBMIT_BODY_BYTES + limits::DISCARDED_BODY_BYTES + 2 * CHUNK;
    assert!(read <= most, "{read} bytes were read");
}

#[tokio::test]
async fn a_payload_of_1_mib_is_taken_and_one_byte_more_is_not() {
    let api = Api::start().await;
    let program = api.program().await;
    let event = |bytes: usize| {
        let mut body = br#"{"type":"a","payload":""#.to_vec();
        body.extend(vec![b'x'; bytes - 2]);
        body.extend(br#""}"#);
        body
    };
    program
        .call(Method::POST, EVENTS, Some(event(limits::PAYLOAD_BYTES - 1)))
        .await
        .expect(202);
    program
        .call(Method::POST, EVENTS, Some(event(limits::PAYLOAD_BYTES)))
        .await
        .expect(202);
    let over = program
        .call(Method::POST, EVENTS, Some(event(limits::PAYLOAD_BYTES + 1)))
        .await;
    let refused = over.refuses(413, "payload_too_large");
    assert_eq!(refused["detail"], "a payload has at most 1048576 bytes");
}

#[tokio::test]
async fn what_is_not_one_json_value_is_malformed_everywhere() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for (method, path) in [
        (Method::POST, EVENTS),
        (Method::POST, "/v1/endpoints"),
        (Method::PATCH, "/v1/endpoints/uid:one"),
    ] {
        for body in [
            &b""[..],
            b"{",
            b"{},",
            b"{}{}",
            b"{\"a\":1,}",
            b"\xef\xbb\xbf{}",
            b"\"caf\xe9\"",
        ] {
            let answer = program
                .call(method.clone(), path, Some(body.to_vec()))
                .await;
            answer.refuses(400, "malformed_json");
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_is_refused_where_it_would_be_ignored() {
    let api = Api::start().await;
    let program = api.program().await;
    let endpoint = program.endpoint(json!({ "uid": "one" })).await;
    let request = program
        .request(Method::PATCH, "/v1/endpoints/uid:one")
        .header(CONTENT_TYPE, "application/json")
        .header("idempotency-key", "k1")
        .body(Body::from(r#"{"description":"changed"}"#))
        .unwrap();
    api.send(request)
        .await
        .refuses(422, "idempotency_key_unsupported");
    let kept = program.get("/v1/endpoints/uid:one").await.expect(200);
    assert_eq!(kept["description"], endpoint["description"]);
}

pub(super) const CHUNK: usize = 64 * 1024;

/// A body that fails the test when it is read.
pub(super) fn unreadable() -> Body {
    let frames = futures_util::stream::poll_fn(
        |_| -> std::task::Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            panic!("the body was read")
        },
    );
    Body::new(StreamBody::new(frames))
}

/// A body without end, and how many bytes of it were read.
pub(super) fn endless() -> (Body, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let counted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = counted.clone();
    let frames = futures_util::stream::poll_fn(move |_| {
        counter.fetch_add(CHUNK, std::sync::atomic::Ordering::Relaxed);
        std::task::Poll::Ready(Some(Ok::<_, std::io::Error>(Frame::data(Bytes::from(
            vec![b' '; CHUNK],
        )))))
    });
    (Body::new(StreamBody::new(frames)), counted)
}

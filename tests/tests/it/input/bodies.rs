//! What a request carries.

use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_tests::program::{At, Client, submission};
use posthorn_tests::receiver::Received;
use reqwest::Method;
use serde_json::json;

use super::{assert_problem, nothing_listed};
use crate::stage::{AMPLE, Stage};

/// E16, and A07's byte order mark.
#[tokio::test]
async fn a_body_that_is_not_one_json_value_is_refused() {
    let stage = Stage::set().await;
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"hello",
        br#"{"type":"a.b","payload":1,}"#,
        br#"{"type":"a.b","payload":1} {"type":"a.b","payload":2}"#,
        b"\xef\xbb\xbf{\"type\":\"a.b\",\"payload\":1}",
        b"{\"type\":\"a.b\",\"payload\":\"caf\xe9\"}",
        br#"{"type":"a.b","payload":01}"#,
        br#"{"type":"a.b","payload":NaN}"#,
    ];
    for body in bodies {
        let answer = stage.api.post("/v1/events", body).await;
        assert_problem(&answer, 400, "malformed_json");
    }
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    let answer = stage
        .api
        .post("/v1/events", submission("a.b", deep.as_bytes()))
        .await;
    assert_problem(&answer, 422, "payload_too_deep");
    // Nesting without end costs nothing but its bytes.
    let endless = "[".repeat(1_000_000);
    let answer = stage
        .api
        .post("/v1/events", submission("a.b", endless.as_bytes()))
        .await;
    assert_problem(&answer, 400, "malformed_json");
    nothing_listed(&stage.api, "/v1/events").await;
}

/// E16, A16: what is compressed is not unpacked, and a stranger's is not even looked at.
#[tokio::test]
async fn only_plain_json_is_taken() {
    let stage = Stage::set().await;
    for content_type in [
        "text/plain",
        "application/xml",
        "application/json; charset=latin1",
    ] {
        let request = stage.api.request(Method::POST, "/v1/events");
        let request = request
            .header("content-type", content_type)
            .body(r#"{"type":"a.b","payload":1}"#);
        assert_problem(
            &Client::sent(request).await,
            415,
            "content_type_unsupported",
        );
    }
    let bare = stage
        .api
        .request(Method::POST, "/v1/events")
        .body(r#"{"type":"a.b","payload":1}"#);
    assert_problem(&Client::sent(bare).await, 415, "content_type_unsupported");
    let bomb = |api: &Client| {
        let request = api.request(Method::POST, "/v1/events");
        request
            .header("content-type", "application/json")
            .header("content-encoding", "gzip")
            .body(vec![0_u8; 130_479])
    };
    assert_problem(
        &Client::sent(bomb(&stage.api)).await,
        415,
        "content_encoding_unsupported",
    );
    let stranger = stage.node.client("");
    assert_problem(&Client::sent(bomb(&stranger)).await, 401, "unauthenticated");
}

/// A15.
#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_the_next_is_taken() {
    let stage = Stage::set().await;
    let string = |bytes: usize| [b"\"".as_slice(), &vec![b'a'; bytes - 2], b"\""].concat();
    for _ in 0..20 {
        let answer = stage
            .api
            .post("/v1/events", submission("a.b", &string(1_048_577)))
            .await;
        assert_problem(&answer, 413, "payload_too_large");
    }
    let huge = stage
        .api
        .post("/v1/events", submission("a.b", &string(10_000_000)))
        .await;
    assert_problem(&huge, 413, "payload_too_large");
    let answer = stage
        .api
        .post("/v1/events", submission("a.b", &string(1_048_576)))
        .await;
    answer.expect(202);
}

/// A11, A23: what cannot be a header, a name or a text of the database is refused where it comes in.
#[tokio::test]
async fn a_nul_or_a_line_break_outside_the_payload_is_refused() {
    let stage = Stage::set().await;
    let long = "a".repeat(300);
    for event_type in ["a\r\nX-Evil: 1", "user.créé", "a\u{0}b", "", "a..b", &long] {
        let event = json!({"type": event_type, "payload": 1});
        let answer = stage.api.post("/v1/events", event.to_string()).await;
        assert_problem(&answer, 422, "event_type_invalid");
    }
    let event = json!({"type": "a.b", "payload": 1, "metadata": {"a": "b\u{0}c"}});
    let answer = stage.api.post("/v1/events", event.to_string()).await;
    assert_problem(&answer, 422, "metadata_invalid");
    let url = stage.receiver.url("/");
    let endpoint = json!({"url": url, "description": "a\u{0}b"});
    let answer = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
    assert_eq!(answer.status, 422);
    for (name, value) in [
        ("X-Odd", "a\nb"),
        ("Webhook-Signature", "x"),
        ("WEBHOOK-ID", "x"),
        ("Content-Length", "1"),
        ("Host", "x"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("a b", "x"),
    ] {
        let endpoint = json!({"url": url, "headers": {name: value}});
        let answer = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
        assert_problem(&answer, 422, "header_invalid");
    }
    for query in ["cursor=%00", "since=%00", "limit=%00"] {
        let answer = stage.api.get(&format!("/v1/events?{query}")).await;
        assert_eq!(answer.status, 422, "{query}");
    }
    let answer = stage.api.get("/v1/events/%00").await;
    assert_problem(&answer, 404, "not_found");
}

/// B06, B07: a secret is in its one form, or refused; none that is accepted fails at delivery.
#[tokio::test]
async fn a_secret_in_another_form_is_refused() {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let stage = Stage::set().await;
    let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![0xfb; bytes]));
    let url = stage.receiver.url("/");
    let bad = [
        STANDARD.encode([7; 32]),
        format!("v1,{}", of(32)),
        of(32).trim_end_matches('=').to_owned(),
        of(32).replace('+', "-").replace('/', "_"),
        format!("{}\n", of(32)),
        "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=".to_owned(),
        of(0),
        of(1),
        of(23),
        of(65),
    ];
    for secret in bad {
        let endpoint = json!({"url": url, "secret": secret});
        let answer = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
        assert_problem(&answer, 422, "secret_invalid");
    }
    for secret in [of(24), of(64)] {
        let made = stage
            .api
            .endpoint(&json!({"url": url, "secret": secret}))
            .await;
        assert_eq!(made.text("/secret"), secret);
    }
    stage.api.submit("a.b", b"{}").await;
    let requests = stage.receiver.wait_for("/", 2, AMPLE).await;
    for secret in [of(24), of(64)] {
        let signed = |request: &&Received| {
            let header = |name| request.header(name).unwrap();
            let keys = [VerifyingKey::parse(&secret).unwrap()];
            let timestamp = header("webhook-timestamp").parse().unwrap();
            let id = header("webhook-id");
            verify(
                header("webhook-signature"),
                &keys,
                id,
                timestamp,
                &request.body,
            )
        };
        assert_eq!(requests.iter().filter(signed).count(), 1, "{secret}");
    }
}

//! Payloads of every kind, submitted as they are.

use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_tests::program::{At, Client};
use posthorn_tests::receiver::{Received, Reply, Script};
use reqwest::Method;
use serde_json::Value;

use crate::stage::Stage;

/// Types and bodies that no JSON library, text column or browser would leave alone.
const KINDS: [(&str, &[u8]); 8] = [
    ("text/plain", b"hello"),
    ("text/plain; charset=ISO-8859-1", b"caf\xe9\n"),
    ("application/octet-stream", b"\xff\xfe\x00"),
    (
        "application/xml",
        b"<?xml version=\"1.0\"?>\r\n<a>&amp;</a>",
    ),
    (
        "application/cloudevents+json; charset=utf-8",
        br#"{"specversion":"1.0","id":"1","source":"/a","type":"b"}"#,
    ),
    ("application/x-www-form-urlencoded", b"a=1&b=%20"),
    ("application/x-ndjson", b"{\"a\":1}\n{\"a\":1}\n"),
    // The empty one.
    ("text/csv", b""),
];

impl Stage {
    /// Submits these bytes; the event's id.
    async fn submitted(&self, content_type: &str, body: &'static [u8]) -> String {
        let request = self
            .api
            .request(Method::POST, "/v1/events/raw?type=a.b")
            .header("content-type", content_type)
            .body(body);
        Client::sent(request).await.expect(202).text("/id")
    }
}

/// What a receiver sees of one of [`KINDS`]. The libraries of Standard Webhooks take text alone, so these are not left for them.
#[track_caller]
fn assert_as_submitted(request: &Received, ids: &[String], endpoint: &Value) {
    let header = |name| request.header(name).unwrap();
    let id = header("webhook-id");
    let which = ids.iter().position(|one| one == id).unwrap();
    let (content_type, body) = KINDS[which];
    let named = |name| request.headers_named(name).collect::<Vec<_>>();
    assert_eq!(request.body.as_ref(), body, "{content_type}");
    assert_eq!(named("content-type"), [content_type]);
    assert_eq!(named("content-length"), [body.len().to_string()]);
    let keys = [VerifyingKey::parse(&endpoint.text("/secret")).unwrap()];
    let timestamp = header("webhook-timestamp").parse().unwrap();
    let signature = header("webhook-signature");
    assert!(verify(signature, &keys, id, timestamp, &request.body));
}

/// INV-3, INV-4; A14, A18: first attempts come from memory, later ones and replays from the log.
#[tokio::test]
async fn raw_payloads_arrive_as_they_were_with_their_type_on_every_attempt_and_replay() {
    let stage = Stage::set().await;
    let good = stage.endpoint("/ok", 100, 3).await;
    let failing = Script::first(2 * KINDS.len(), Reply::status(500));
    stage
        .receiver
        .script("/down", failing.then(Reply::status(200)));
    let down = stage.endpoint("/down", 100, 2).await;
    let mut ids = Vec::new();
    for (content_type, body) in KINDS {
        ids.push(stage.submitted(content_type, body).await);
    }
    for request in stage.arrived("/ok", KINDS.len()).await {
        assert_as_submitted(&request, &ids, &good);
    }
    stage.arrived("/down", 2 * KINDS.len()).await;
    let letters = stage.dead_letters(KINDS.len()).await;
    for letter in &letters {
        let path = format!("/v1/dead-letters/{}/replay", letter.text("/id"));
        stage.api.post(&path, "").await.expect(202);
    }
    for request in stage.arrived("/down", 3 * KINDS.len()).await {
        assert_as_submitted(&request, &ids, &down);
    }
    for (id, (content_type, body)) in ids.iter().zip(KINDS) {
        let event = stage.api.get(&format!("/v1/events/{id}")).await.expect(200);
        assert_eq!(event.text("/content_type"), content_type);
        let kept = stage.api.get(&format!("/v1/events/{id}/payload")).await;
        assert_eq!(kept.body.as_ref(), body);
    }
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

//! `body: standard`: the payload in the envelope of Standard Webhooks.

use posthorn_domain::compat::{Compat, CompatForm, CompatKind, CompatSecret};
use posthorn_tests::program::{At, Client};
use posthorn_tests::receiver::{Reply, Script};
use reqwest::Method;
use serde_json::{Value, json};

use super::{assert_signed, bodies};
use crate::stage::Stage;

const SECRET: &str = "It's a Secret to Everybody";

/// Submits these bytes, which occurred then or nobody says when. The event's id, and the envelope that they are sent in.
async fn submitted(stage: &Stage, payload: &[u8], occurred_at: Option<&str>) -> (String, Vec<u8>) {
    let when = occurred_at.map_or_else(String::new, |at| format!(r#""occurred_at":"{at}","#));
    let head = format!(r#"{{"type":"a.b",{when}"payload":"#);
    let body = [head.as_bytes(), payload, b"}"].concat();
    let accepted = stage.api.post("/v1/events", body).await.expect(202);
    let at = accepted.text("/accepted_at");
    let happened = if occurred_at.is_some() {
        "2026-01-31T09:30:00.500000Z"
    } else {
        &at
    };
    let head = format!(r#"{{"type":"a.b","timestamp":"{happened}","data":"#);
    let envelope = [head.as_bytes(), payload, b"}"].concat();
    (accepted.text("/id"), envelope)
}

/// INV-3, INV-4: first attempts come from memory, later ones and the replay from the log.
#[tokio::test]
async fn the_standard_body_holds_the_bytes_that_were_submitted_on_every_attempt() {
    let stage = Stage::set().await;
    let payloads = bodies::awkward();
    let failing = Script::first(payloads.len(), Reply::status(500)).then(Reply::status(200));
    stage.receiver.script("/standard", failing);
    let fields = json!({
        "url": stage.receiver.url("/standard"), "body": "standard",
        "retry_policy": { "kind": "fixed", "delay_ms": 100, "max_attempts": 10 },
        "signing": { "compat": { "kind": "github", "secret": SECRET } },
    });
    let made = stage.api.endpoint(&fields).await;
    let mut sent = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        let occurred_at = (n % 2 == 0).then_some("2026-01-31T10:30:00.5+01:00");
        sent.push(submitted(&stage, payload, occurred_at).await);
    }
    let compat = Compat {
        form: CompatForm::new(CompatKind::Github, None).unwrap(),
        secret: CompatSecret::parse(SECRET).unwrap(),
    };
    for request in stage.arrived("/standard", 2 * payloads.len()).await {
        let id = request.header("webhook-id").unwrap();
        let (_, envelope) = sent.iter().find(|(one, _)| one == id).unwrap();
        assert!(request.body == *envelope, "the body of {id} is another");
        let named = |name| request.headers_named(name).collect::<Vec<_>>();
        assert_eq!(named("content-type"), ["application/json"]);
        assert_eq!(named("content-length"), [envelope.len().to_string()]);
        assert_signed(&request, &made.text("/secret"));
        let other = compat.sign(0, envelope);
        assert_eq!(request.header("x-hub-signature-256"), Some(other.as_str()));
    }
    for ((id, _), payload) in sent.iter().zip(&payloads) {
        let kept = stage.api.get(&format!("/v1/events/{id}/payload")).await;
        assert!(kept.body == *payload, "{id} was read back changed");
    }
}

/// INV-2: an endpoint may come to want the envelope when a payload that is not JSON waits for it already.
#[tokio::test]
async fn what_the_standard_body_cannot_carry_is_dead_with_words_and_delivered_once_it_can() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/hook", 100, 1).await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    let change = async |fields: Value| stage.api.patch(&path, &fields).await.expect(200);
    change(json!({ "state": "paused" })).await;
    let request = stage
        .api
        .request(Method::POST, "/v1/events/raw?type=a.b")
        .header("content-type", "text/plain")
        .body("hello");
    let id = Client::sent(request).await.expect(202).text("/id");
    stage.delivery(&id, "parked").await;
    change(json!({ "state": "enabled", "body": "standard" })).await;
    let dead = stage.delivery(&id, "dead").await;
    assert_eq!(dead.text("/last_attempt/error/kind"), "config");
    let words = dead.text("/last_attempt/error/detail");
    assert!(
        words.contains("standard") && words.contains("text/plain"),
        "{words}"
    );
    let [letter] = stage.dead_letters(1).await.try_into().unwrap();
    assert_eq!(letter.text("/cause"), "config");
    assert_eq!(stage.receiver.requests().len(), 0);
    change(json!({ "body": "payload" })).await;
    let replay = format!("/v1/dead-letters/{}/replay", letter.text("/id"));
    stage.api.post(&replay, "").await.expect(202);
    let request = stage.arrived("/hook", 1).await.remove(0);
    assert_eq!(request.body.as_ref(), b"hello");
    stage.delivery(&id, "delivered").await;
}

//! What README tells, done with the real program: a tenant, a key, an endpoint, an event; what arrives, what fails, what
//! is sent again.

use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_tests::capture::{Keys, capture};
use posthorn_tests::program::At;
use posthorn_tests::receiver::{Received, Reply, Script};
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage};

mod bodies;
mod raw;
mod standard;
mod verified;

/// As a receiver checks it: Standard Webhooks, the body byte for byte, a clock within five minutes.
fn assert_signed(request: &Received, secret: &str) {
    let keys = [VerifyingKey::parse(secret).unwrap()];
    let header = |name| request.header(name).unwrap();
    let timestamp = header("webhook-timestamp");
    assert_eq!(timestamp.len(), 10, "Unix seconds: {timestamp}");
    let timestamp = timestamp.parse().unwrap();
    let (signature, id) = (header("webhook-signature"), header("webhook-id"));
    assert!(verify(signature, &keys, id, timestamp, &request.body));
    let keys = Keys {
        secret,
        public: None,
    };
    capture(std::slice::from_ref(request), &keys);
}

fn timestamp(request: &Received) -> i64 {
    request
        .header("webhook-timestamp")
        .unwrap()
        .parse()
        .unwrap()
}

/// INV-1, INV-3, INV-4.
#[tokio::test]
async fn an_event_arrives_signed_and_is_told_as_it_was() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/ok", 100, 3).await;
    let secret = made.text("/secret");
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    let shown = stage.api.get(&path).await.expect(200);
    assert_eq!(shown.get("secret"), None, "a secret is shown once (INV-10)");

    let payload = br#"{"id": 1, "amount": 99.90}"#;
    let id = stage.api.submit("invoice.paid", payload).await;
    let request = stage.arrived("/ok", 1).await.remove(0);
    assert_eq!(request.request_line, "POST /ok HTTP/1.1");
    assert_eq!(request.body.as_ref(), payload);
    assert_eq!(request.header("webhook-id"), Some(id.as_str()));
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_signed(&request, &secret);

    let delivery = stage.delivery(&id, "delivered").await;
    assert_eq!(delivery.pointer("/attempt_count"), Some(&json!(1)));
    let event = stage.api.get(&format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(event.text("/type"), "invoice.paid");
    assert_eq!(event.pointer("/size"), Some(&json!(payload.len())));
    let kept = stage.api.get(&format!("/v1/events/{id}/payload")).await;
    assert_eq!(kept.body.as_ref(), payload);
    let listed = stage
        .api
        .get(&format!("/v1/deliveries?event_id={id}"))
        .await;
    assert_eq!(
        listed.expect(200).list("/data")[0].text("/id"),
        delivery.text("/id")
    );
    let attempts = stage.api.get(&format!("/v1/attempts?event_id={id}")).await;
    let attempts = attempts.expect(200);
    let [attempt] = attempts.list("/data") else {
        panic!("{attempts}")
    };
    assert_eq!(attempt.text("/outcome"), "success");
    assert_eq!(attempt.pointer("/status"), Some(&json!(200)));
    assert_eq!(attempt.text("/request/url"), stage.receiver.url("/ok"));
}

/// INV-2, INV-4; D01, D05, F03, F04.
#[tokio::test]
async fn what_fails_for_good_lies_in_the_dead_letters_and_is_delivered_by_a_replay() {
    let stage = Stage::set().await;
    let failing = Script::first(3, Reply::status(500).body("out of order"));
    stage
        .receiver
        .script("/down", failing.then(Reply::status(204)));
    let made = stage.endpoint("/down", 100, 3).await;
    let id = stage.api.submit("invoice.paid", br#"{"id":2}"#).await;

    stage.arrived("/down", 3).await;
    let delivery = stage.delivery(&id, "dead").await;
    let letters = stage.api.get("/v1/dead-letters").await.expect(200);
    let [letter] = letters.list("/data") else {
        panic!("{letters}")
    };
    assert_eq!(letter.text("/id"), delivery.text("/id"));
    assert_eq!(letter.text("/cause"), "exhausted");
    let moment = |of: &str| {
        letter
            .text(of)
            .parse::<chrono::DateTime<chrono::Utc>>()
            .unwrap()
    };
    assert_eq!((moment("/expires_at") - moment("/died_at")).num_days(), 90);
    assert_eq!(letter.pointer("/attempt_count"), Some(&json!(3)));
    assert_eq!(letter.pointer("/last_attempt/status"), Some(&json!(500)));
    let path = format!("/v1/dead-letters/{}", letter.text("/id"));
    let letter = stage.api.get(&path).await.expect(200);
    assert_eq!(letter.text("/event_id"), id);
    let payload = stage.api.get(&format!("/v1/events/{id}/payload")).await;
    assert_eq!(payload.body.as_ref(), br#"{"id":2}"#);
    let attempts = stage
        .api
        .get(&format!("/v1/attempts?event_id={id}&order=asc"))
        .await;
    let attempts = attempts.expect(200);
    let numbers: Vec<_> = attempts
        .list("/data")
        .iter()
        .map(|one| one.pointer("/n").unwrap().clone())
        .collect();
    assert_eq!(numbers, [json!(1), json!(2), json!(3)]);
    assert_eq!(
        attempts.list("/data")[0].text("/response/body/text"),
        "out of order"
    );

    stage
        .api
        .post(&format!("{path}/replay"), "")
        .await
        .expect(202);
    let requests = stage.arrived("/down", 4).await;
    let delivery = stage.delivery(&id, "delivered").await;
    assert_eq!(delivery.text("/last_attempt/trigger"), "replay");
    assert_eq!(delivery.pointer("/attempt_count"), Some(&json!(4)));
    let letters = stage.api.get("/v1/dead-letters").await.expect(200);
    assert_eq!(letters.list("/data"), [] as [Value; 0]);
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(id.as_str()));
        assert_eq!(request.body.as_ref(), br#"{"id":2}"#);
        assert_signed(request, &made.text("/secret"));
    }
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-4; B12, B13, B14.
#[tokio::test]
async fn each_attempt_is_signed_when_it_is_sent_and_keeps_the_id() {
    let stage = Stage::set().await;
    let failing = Script::first(2, Reply::status(503)).then(Reply::status(200));
    stage.receiver.script("/later", failing);
    let made = stage.endpoint("/later", 1100, 5).await;
    let id = stage.api.submit("a.b", b"{}").await;
    let requests = stage.arrived("/later", 3).await;
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(id.as_str()));
        assert_signed(request, &made.text("/secret"));
    }
    let times: Vec<i64> = requests.iter().map(timestamp).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    stage.delivery(&id, "delivered").await;
}

/// INV-3; A01, A02, A04, A06, A07, A08, A10, A11, A13, A15, A19, and duplicate keys, 128 levels, 1 MiB.
#[tokio::test]
async fn awkward_bodies_arrive_and_are_read_back_byte_for_byte() {
    let stage = Stage::set().await;
    // Every other request fails once, so that half of the bodies are read from the log again.
    let made = stage.endpoint("/bodies", 100, 5).await;
    stage.receiver.script(
        "/again",
        Script::first(60, Reply::status(500)).then(Reply::status(200)),
    );
    let again = stage.endpoint("/again", 100, 10).await;
    let bodies = bodies::awkward();
    let mut ids = Vec::new();
    for body in &bodies {
        ids.push(stage.api.submit("a.b", body).await);
    }
    let requests = stage.arrived("/bodies", bodies.len()).await;
    let retried = stage.arrived("/again", bodies.len() + 60).await;
    for (secret, requests) in [
        (made.text("/secret"), &requests),
        (again.text("/secret"), &retried),
    ] {
        for request in requests {
            let id = request.header("webhook-id").unwrap();
            let which = ids.iter().position(|one| one == id).unwrap();
            assert!(
                request.body == bodies[which],
                "body {which} arrived changed"
            );
            let lengths: Vec<_> = request.headers_named("content-length").collect();
            assert_eq!(lengths, [bodies[which].len().to_string()]);
            assert_signed(request, &secret);
        }
    }
    for (id, body) in ids.iter().zip(&bodies) {
        let kept = stage.api.get(&format!("/v1/events/{id}/payload")).await;
        assert_eq!(kept.status, 200);
        assert!(kept.body == *body, "{id} was read back changed");
    }
}

/// INV-3; A04: failed, read from the log by another start of the program, and replayed.
#[tokio::test]
async fn a_replay_after_a_restart_sends_the_bytes_that_were_submitted() {
    let mut stage = Stage::set().await;
    let body = r#"{"b":1,"a":2.10,"cc":0,"c":{ },"b":3,"t":"\u00e9\ud800"}"#;
    stage.receiver.script(
        "/",
        Script::first(1, Reply::status(500)).then(Reply::status(200)),
    );
    let made = stage.endpoint("/", 100, 1).await;
    let id = stage.api.submit("a.b", body.as_bytes()).await;
    let letter = stage.delivery(&id, "dead").await.text("/id");
    stage.node.ask_to_end();
    stage.node.ended(AMPLE).await;
    stage.node.start_again();
    stage.node.ready().await;
    let path = format!("/v1/dead-letters/{letter}/replay");
    stage.api.post(&path, "").await.expect(202);
    stage.delivery(&id, "delivered").await;
    for request in stage.arrived("/", 2).await {
        assert_eq!(request.body, body.as_bytes());
        assert_signed(&request, &made.text("/secret"));
    }
    let kept = stage.api.get(&format!("/v1/events/{id}/payload")).await;
    assert_eq!(kept.body, body.as_bytes());
}

/// A20.
#[tokio::test]
async fn metadata_may_be_absent_empty_or_null() {
    let stage = Stage::set().await;
    stage.endpoint("/ok", 100, 3).await;
    for metadata in ["", r#","metadata":{}"#, r#","metadata":null"#] {
        let body = format!(r#"{{"type":"a.b","payload":1{metadata}}}"#);
        let accepted = stage.api.post("/v1/events", body).await.expect(202);
        stage.delivery(&accepted.text("/id"), "delivered").await;
    }
    assert_eq!(stage.receiver.requests_to("/ok").len(), 3);
}

/// D22, INV-12: what is paused waits, and what is enabled again is delivered.
#[tokio::test]
async fn a_paused_endpoint_gets_its_events_when_it_is_enabled_again() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/paused", 100, 3).await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    stage
        .api
        .patch(&path, &json!({"state": "paused"}))
        .await
        .expect(200);
    let id = stage.api.submit("a.b", b"1").await;
    let parked = stage.delivery(&id, "parked").await;
    assert_eq!(parked.text("/parked_cause"), "paused");
    assert_eq!(stage.receiver.requests().len(), 0);
    stage
        .api
        .patch(&path, &json!({"state": "enabled"}))
        .await
        .expect(200);
    stage.arrived("/paused", 1).await;
    stage.delivery(&id, "delivered").await;
}

/// D25: the address that an endpoint has when the attempt is made.
#[tokio::test]
async fn a_retry_goes_to_the_address_that_the_endpoint_has_by_then() {
    let stage = Stage::set().await;
    stage.receiver.script("/old", Reply::status(500));
    let made = stage.endpoint("/old", 1000, 5).await;
    let id = stage.api.submit("a.b", b"1").await;
    stage.arrived("/old", 1).await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    let changed = json!({"url": stage.receiver.url("/new")});
    stage.api.patch(&path, &changed).await.expect(200);
    let request = stage.arrived("/new", 1).await.remove(0);
    assert_eq!(request.header("webhook-id"), Some(id.as_str()));
    stage.delivery(&id, "delivered").await;
    let attempts = stage
        .api
        .get(&format!("/v1/attempts?event_id={id}&order=asc"))
        .await
        .expect(200);
    let urls: Vec<_> = attempts
        .list("/data")
        .iter()
        .map(|one| one.text("/request/url"))
        .collect();
    assert_eq!(urls.first(), Some(&stage.receiver.url("/old")));
    assert_eq!(urls.last(), Some(&stage.receiver.url("/new")));
}

/// D37: exactly the endpoints whose patterns match; none is a state that is told, not an error.
#[tokio::test]
async fn an_event_reaches_exactly_the_endpoints_that_want_its_type() {
    let stage = Stage::set().await;
    let patterns = ["a.b", "a.*", "A.B", "a.bc", "a.**", "b.**"];
    for (n, pattern) in patterns.iter().enumerate() {
        let url = stage.receiver.url(&format!("/{n}"));
        stage
            .api
            .endpoint(&json!({"url": url, "event_types": [pattern]}))
            .await;
    }
    let id = stage.api.submit("a.b", b"1").await;
    for wanted in ["/0", "/1", "/4"] {
        stage.arrived(wanted, 1).await;
    }
    let event = stage.api.get(&format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(event.pointer("/deliveries_count"), Some(&json!(3)));
    assert_eq!(stage.receiver.requests().len(), 3);
    let unwanted = stage
        .api
        .post("/v1/events", r#"{"type":"c.d","payload":1}"#)
        .await
        .expect(202);
    assert_eq!(unwanted.pointer("/matched"), Some(&json!(false)));
    assert!(stage.node.log().contains("ready"));
}

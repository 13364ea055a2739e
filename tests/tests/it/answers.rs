//! What receivers answer, and what the whole program makes of it for everybody else.

use std::time::Duration;

use posthorn_tests::program::At;
use posthorn_tests::receiver::{Receiver, Reply, Script};
use posthorn_tests::wait::{pause, until};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage};

/// Requests that may be under way to one endpoint.
const IN_FLIGHT: usize = 16;

/// What an answer of any size may cost the node while it comes.
const LITTLE: u64 = 10 * 1024 * 1024;

impl Stage {
    /// Submits this many events at once; their ids.
    async fn submit_many(&self, count: usize) -> Vec<String> {
        let submitting = (0..count).map(|place| {
            let api = self.api.clone();
            tokio::spawn(async move { api.submit("a.b", place.to_string().as_bytes()).await })
        });
        let mut ids = Vec::new();
        for submitted in submitting.collect::<Vec<_>>() {
            ids.push(submitted.await.unwrap());
        }
        ids
    }
}

/// C08: all that waits for an endpoint that is gone ends without a request, is to be seen, and its sibling goes on.
#[tokio::test]
async fn a_410_ends_what_waits_for_its_endpoint_and_a_sibling_gets_everything() {
    let stage = Stage::set().await;
    let gone = Script::first(50, Reply::status(500)).then(Reply::status(410));
    stage.receiver.script("/gone", gone);
    let made = stage.endpoint("/gone", 4000, 5).await;
    stage.endpoint("/stays", 100, 5).await;
    let waiting = stage.submit_many(50).await;
    stage.arrived("/gone", 50).await;
    stage.submit_many(1).await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    let disabled = until("the endpoint to be disabled", AMPLE, async || {
        let endpoint = stage.api.get(&path).await.expect(200);
        (endpoint.text("/state") == "disabled").then_some(endpoint)
    })
    .await;
    assert_eq!(disabled.text("/state_cause"), "gone");
    let requests = stage.receiver.requests_to("/gone").len();
    assert!(requests <= 50 + IN_FLIGHT, "{requests} requests");
    for id in &waiting {
        let ended = until("a delivery that has ended", AMPLE, async || {
            let event = stage.api.get(&format!("/v1/events/{id}")).await.expect(200);
            let states: Vec<_> = event
                .list("/deliveries")
                .iter()
                .map(|one| one.text("/state"))
                .collect();
            let ended = ["delivered", "dead", "discarded", "cancelled"];
            states
                .iter()
                .all(|state| ended.contains(&state.as_str()))
                .then_some(states)
        })
        .await;
        assert!(ended.iter().any(|state| state == "delivered"), "{ended:?}");
    }
    // Longer than the retries would have waited.
    pause(Duration::from_secs(5)).await;
    assert_eq!(stage.receiver.requests_to("/gone").len(), requests);
    assert_eq!(stage.receiver.requests_to("/stays").len(), 51);
}

/// C14: what waits because the endpoint asked for a pause waits without an attempt.
#[tokio::test]
async fn a_429_holds_everything_else_back_and_costs_it_no_attempt() {
    let stage = Stage::set().await;
    let slow_down = Reply::status(429).header("retry-after", "5");
    let script = Script::first(1, slow_down).then(Reply::status(200));
    stage.receiver.script("/busy", script);
    stage.endpoint("/busy", 1000, 3).await;
    let first = stage.submit_many(1).await;
    let asked = stage.arrived("/busy", 1).await[0].arrived;
    pause(Duration::from_millis(300)).await;
    let others = stage.submit_many(99).await;
    let requests = until("all to be delivered", Duration::from_mins(1), async || {
        let requests = stage.receiver.requests_to("/busy");
        (requests.len() >= 101).then_some(requests)
    })
    .await;
    assert_eq!(requests.len(), 101);
    for request in &requests[1..] {
        let after = request.arrived.duration_since(asked);
        assert!(after >= Duration::from_millis(4900), "{after:?}");
    }
    for id in others.iter().chain(&first) {
        let delivery = stage.delivery(id, "delivered").await;
        let attempts = if *id == first[0] { 2 } else { 1 };
        assert_eq!(delivery.pointer("/attempt_count"), Some(&json!(attempts)));
    }
}

/// C03, C04: nobody is asked where a redirect points, so nothing that was meant for one receiver reaches another.
#[tokio::test]
async fn a_redirect_carries_no_header_of_the_endpoint_anywhere() {
    let stage = Stage::set().await;
    let elsewhere = Receiver::start().await.unwrap();
    for (place, status) in [301, 302, 303, 307, 308].into_iter().enumerate() {
        let path = format!("/moved/{place}");
        let target = elsewhere.url("/stolen");
        stage
            .receiver
            .script(&path, Reply::status(status).header("location", &target));
        stage
            .api
            .endpoint(&json!({
                "url": stage.receiver.url(&path),
                "headers": {"x-api-key": "for the first alone"},
                "event_types": [format!("moved.{status}")],
                "retry_policy": {"kind": "fixed", "delay_ms": 100, "max_attempts": 2},
            }))
            .await;
        let id = stage.api.submit(&format!("moved.{status}"), b"1").await;
        let delivery = stage.delivery(&id, "dead").await;
        assert_eq!(
            delivery.pointer("/last_attempt/status"),
            Some(&json!(status))
        );
        for request in stage.arrived(&path, 2).await {
            assert_eq!(request.header("x-api-key"), Some("for the first alone"));
        }
    }
    assert_eq!(elsewhere.connections(), 0);
}

/// C20, INV-11: of an answer of any size a few kilobytes are kept, and no more of it is held.
#[tokio::test]
async fn answers_without_end_cost_no_memory() {
    let stage = Stage::set().await;
    let endless = Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        .then_endless(vec![b'a'; 64 * 1024], Duration::ZERO);
    stage.receiver.script("/gigabyte", endless);
    stage.endpoint("/gigabyte", 100, 1).await;
    let first = stage.submit_many(4).await;
    for id in &first {
        stage.delivery(id, "delivered").await;
    }
    let before = stage.node.memory();
    for id in stage.submit_many(100).await {
        stage.delivery(&id, "delivered").await;
    }
    let grown = stage.node.memory().saturating_sub(before);
    assert!(grown < LITTLE, "{grown} bytes more");
    let attempts = stage
        .api
        .get(&format!("/v1/attempts?event_id={}", first[0]))
        .await
        .expect(200);
    let [attempt] = attempts.list("/data") else {
        panic!("{attempts}")
    };
    let kept: Value = stage
        .api
        .get(&format!("/v1/attempts/{}", attempt.text("/id")))
        .await
        .expect(200);
    assert!(kept.to_string().len() < 64 * 1024);
}

/// G07: what is kept of an answer is bounded, whatever it holds.
#[tokio::test]
async fn an_attempt_takes_32_kib_at_most_however_much_was_answered() {
    let stage = Stage::set().await;
    let mut dice = StdRng::seed_from_u64(7);
    let noise: Vec<u8> = (0..64 * 1024).map(|_| dice.random()).collect();
    let header: String = (0..400)
        .map(|_| char::from(dice.random_range(b'!'..=b'~')))
        .collect();
    let mut answer = Reply::status(500).body(noise);
    for place in 0..60 {
        answer = answer.header(&format!("x-noise-{place}"), &header);
    }
    stage.receiver.script("/noise", answer);
    stage.endpoint("/noise", 100, 5).await;
    let id = stage.submit_many(1).await.remove(0);
    stage.delivery(&id, "dead").await;
    let largest = "SELECT max(pg_column_size(a.*))::text FROM attempts AS a";
    let bytes: usize = stage.installation.query(largest).await[0].parse().unwrap();
    assert!((16 * 1024..=32 * 1024).contains(&bytes), "{bytes}");
}

/// C26: connections are used again, and idle ones are given up.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_events_for_one_endpoint_take_few_connections() {
    let stage = Stage::set().await;
    stage
        .api
        .endpoint(&json!({"url": stage.receiver.url("/fast"), "max_in_flight": 50}))
        .await;
    for _ in 0..20 {
        stage.submit_many(250).await;
    }
    until("all events", Duration::from_mins(1), async || {
        (stage.receiver.map(|_| ()).len() >= 5000).then_some(())
    })
    .await;
    let connections = stage.receiver.connections();
    assert!(connections <= 60, "{connections} connections");
}

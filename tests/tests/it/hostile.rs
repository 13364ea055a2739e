//! Hostile receivers against the real program: what each came to, by kind and in words, as the API tells it, and that nothing is
//! left behind.

mod receivers;

use std::time::Duration;

use posthorn_tests::authority::Authority;
use posthorn_tests::program::{At, Installation};
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::until;
use serde_json::{Value, json};

use crate::hostile::receivers::{Hostile, Receivers, Wanted};
use crate::stage::{AMPLE, Stage};

/// Attempts of a delivery that fails.
const ATTEMPTS: usize = 2;

/// Events for all of the endpoints, after the first.
const EVENTS: usize = 12;

/// What a node may hold more of after them.
const GROWTH: u64 = 64 * 1024 * 1024;

/// The receivers, each with the endpoint that sends to it.
async fn endpoints(stage: &Stage, all: Vec<Hostile>) -> Vec<(String, Hostile)> {
    let mut endpoints = Vec::new();
    for hostile in all {
        let fields = json!({
            "url": hostile.url,
            "event_types": ["hostile"],
            "timeout_ms": 1000,
            "keep_responses": "all",
            "retry_policy": {"kind": "fixed", "delay_ms": 200, "max_attempts": ATTEMPTS},
        });
        let made = stage.api.endpoint(&fields).await;
        endpoints.push((made.text("/id"), hostile));
    }
    endpoints
}

/// Every delivery of these events has ended.
async fn ended(stage: &Stage, events: &[String]) {
    for event in events {
        until(
            "every delivery to end",
            Duration::from_mins(2),
            async || {
                let event = stage
                    .api
                    .get(&format!("/v1/events/{event}"))
                    .await
                    .expect(200);
                let open = |delivery: &&Value| {
                    !["delivered", "dead"].contains(&delivery.text("/state").as_str())
                };
                event
                    .list("/deliveries")
                    .iter()
                    .find(open)
                    .is_none()
                    .then_some(())
            },
        )
        .await;
    }
}

/// What is wrong with the attempts at one endpoint; `events` were sent to it.
fn faults(
    attempts: &[Value],
    hostile: &Hostile,
    events: usize,
    seen: Option<usize>,
) -> Vec<String> {
    let each = match hostile.wanted {
        Wanted::Status(status, _) if (200..300).contains(&status) => 1,
        _ => ATTEMPTS,
    };
    let mut faults = Vec::new();
    if attempts.len() != events * each {
        faults.push(format!("{}: {} attempts", hostile.name, attempts.len()));
    }
    if let Some(seen) = seen
        && seen != attempts.len() * hostile.requests_each
    {
        let on_record = attempts.len();
        faults.push(format!(
            "{}: {seen} requests, {on_record} attempts",
            hostile.name
        ));
    }
    let wrong = attempts
        .iter()
        .filter_map(|attempt| hostile.wanted.fault(attempt));
    faults.extend(wrong.map(|fault| format!("{}: {fault}", hostile.name)));
    faults.dedup();
    faults
}

/// INV-2, INV-11, INV-13; C02, C06, C07, C16, C17, C18, C19, C20, C22, C27, C29, C31: each request is an attempt on record, and each
/// attempt on record is a request, whatever the receiver does.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_hostile_receiver_is_told_as_it_is_and_leaves_nothing_behind() {
    let authority = Authority::new();
    let stage = Stage::of(Installation::trusting(&authority.pem()).await).await;
    let receivers = Receivers::start(&authority).await;
    let endpoints = endpoints(&stage, receivers.all(&stage.receiver)).await;
    let first = stage.api.submit("hostile", b"{}").await;
    ended(&stage, std::slice::from_ref(&first)).await;
    let before = stage.node.memory();

    let healthy = json!({"url": stage.receiver.url("/healthy"), "event_types": ["healthy"]});
    stage.api.endpoint(&healthy).await;
    let mut events = vec![first];
    for n in 1..=EVENTS {
        events.push(stage.api.submit("hostile", b"{}").await);
        stage.api.submit("healthy", b"{}").await;
        // One after the other, each within a moment: it waits for none of the others.
        stage
            .receiver
            .wait_for("/healthy", n, Duration::from_secs(3))
            .await;
    }
    ended(&stage, &events).await;

    let mut wrong = Vec::new();
    for (endpoint, hostile) in &endpoints {
        let path = format!("/v1/attempts?endpoint_id={endpoint}&limit=100");
        let attempts = stage.api.get(&path).await.expect(200);
        let seen = hostile.seen(&stage.receiver, &receivers);
        wrong.extend(faults(attempts.list("/data"), hostile, events.len(), seen));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let grown = stage.node.memory().saturating_sub(before);
    assert!(grown < GROWTH, "{grown} bytes more");
    nothing_in_flight(&stage).await;
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

async fn nothing_in_flight(stage: &Stage) {
    until("no request to be in flight", AMPLE, async || {
        let scraped = stage.api.get("/metrics").await;
        let text = String::from_utf8_lossy(&scraped.body).into_owned();
        let gauge = text
            .lines()
            .find_map(|line| line.strip_prefix("posthorn_requests_in_flight "));
        (gauge? == "0").then_some(())
    })
    .await;
}

/// C02, C16: where a redirect points to, and what a success says, are there to be read.
#[tokio::test]
async fn where_a_redirect_points_and_what_a_success_says_are_told() {
    let stage = Stage::set().await;
    let elsewhere = stage.receiver.url("/elsewhere");
    let moved = Reply::status(307).header("Location", &elsewhere);
    stage.receiver.script("/moved", moved);
    stage.endpoint("/moved", 100, 1).await;
    let event = stage.api.submit("a.b", b"{}").await;
    stage.delivery(&event, "dead").await;
    let attempt = only_attempt(&stage, &event).await;
    let told = attempt.text("/error/detail");
    assert!(told.contains(&elsewhere), "{told}");
    assert!(
        attempt
            .pointer("/response/headers")
            .unwrap()
            .to_string()
            .contains(&elsewhere)
    );
    assert!(stage.receiver.requests_to("/elsewhere").is_empty());

    let stage = Stage::set().await;
    let error = r#"{"error":"nope"}"#;
    stage.receiver.script("/", Reply::status(200).body(error));
    let endpoint = json!({"url": stage.receiver.url("/"), "keep_responses": "all"});
    stage.api.endpoint(&endpoint).await;
    let event = stage.api.submit("a.b", b"{}").await;
    stage.delivery(&event, "delivered").await;
    let attempt = only_attempt(&stage, &event).await;
    assert_eq!(attempt.text("/response/body/text"), error);
}

async fn only_attempt(stage: &Stage, event: &str) -> Value {
    let path = format!("/v1/attempts?event_id={event}");
    let attempts = stage.api.get(&path).await.expect(200);
    let [attempt] = attempts.list("/data") else {
        panic!("{attempts}")
    };
    attempt.clone()
}

/// C22: a broken connection is a failed attempt whose next is known, and is none of the engine's own errors.
#[tokio::test]
async fn after_a_broken_connection_the_next_attempt_is_known() {
    let stage = Stage::set().await;
    for (path, reply) in [
        ("/reset", Reply::reset()),
        ("/empty", Reply::close()),
        (
            "/half",
            Reply::raw("HTTP/1.1 200 OK\r\ncontent-le").then_close(),
        ),
        (
            "/short",
            Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789").then_close(),
        ),
    ] {
        stage.receiver.script(path, reply);
        stage.endpoint(path, 60_000, 5).await;
    }
    let event = stage.api.submit("a.b", b"{}").await;
    let deliveries = until("four failed attempts", AMPLE, async || {
        let event = stage
            .api
            .get(&format!("/v1/events/{event}"))
            .await
            .expect(200);
        let deliveries = event.list("/deliveries").to_vec();
        let failed = |delivery: &Value| delivery.text("/state") == "retrying";
        deliveries.iter().all(failed).then_some(deliveries)
    })
    .await;
    assert_eq!(deliveries.len(), 4);
    for delivery in deliveries {
        assert_eq!(delivery.text("/last_attempt/error/kind"), "connect");
        assert!(!delivery.text("/next_attempt_at").is_empty(), "{delivery}");
    }
}

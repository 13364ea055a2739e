//! Signatures are of the attempt: made when it is sent, however long that is after the event came (INV-4).
//!
//! A node goes by the database's time; here it is told a later one, which is what waiting comes to.

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::rate::RateLimit;
use posthorn_domain::retry::{Jitter, RetryPolicy};
use posthorn_store::configure::{EndpointPatch, Patch};
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::{Received, Reply, Script};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// What a receiver's clock may be off, by the libraries of Standard Webhooks.
const TOLERANCE: TimeDelta = TimeDelta::seconds(300);

/// Whatever a busy machine needs between the telling of a time and the request.
const SLACK: TimeDelta = TimeDelta::seconds(60);

fn sent(request: &Received) -> DateTime<Utc> {
    let seconds = request.header("webhook-timestamp").unwrap().parse();
    DateTime::from_timestamp(seconds.unwrap(), 0).unwrap()
}

/// Renews the lease, which brings the node back to the present, and then tells it a later time.
async fn later(node: &Node, by: TimeDelta) -> DateTime<Utc> {
    node.keeping.run_once().await;
    let now = node.clock.now() + by;
    node.clock.observe(now, node.clock.monotonic());
    now
}

/// B12.
#[tokio::test]
async fn engine_signing_is_of_each_attempt_over_more_than_five_minutes_between_them() {
    let scene = Scene::begin().await;
    let failing = Script::first(2, Reply::status(500)).then(Reply::status(200));
    scene.receiver.script("/hook", failing);
    let url = scene.receiver.url("/hook");
    let gap = TOLERANCE + TimeDelta::seconds(1);
    let delay = u64::try_from(gap.num_milliseconds()).unwrap();
    let policy = RetryPolicy::Schedule {
        delays_ms: vec![delay, delay],
        jitter: Jitter::None,
    };
    let endpoint = scene
        .tenants
        .endpoint_with(scene.tenant, &url, |new| new.retry_policy = policy)
        .await;
    let node = scene.node(Runs::WithoutLease).await;
    let event = node.accept(scene.tenant, "{}").await.id;
    let mut wanted = vec![node.clock.now()];
    scene.attempted(&node, "/hook", 1).await;
    for n in [1, 2] {
        let mut told = node.clock.now();
        // Once more where the lease had lapsed before the request began.
        until("the next attempt", AMPLE, async || {
            told = later(&node, gap * n).await;
            scene.rows.travel_to_due().await;
            node.due.run_once().await;
            node.settled().await;
            let count = scene.receiver.requests_to("/hook").len();
            (count == usize::try_from(n).unwrap() + 1).then_some(())
        })
        .await;
        wanted.push(told);
    }
    let requests = scene.receiver.requests_to("/hook");
    for (request, arrived) in requests.iter().zip(wanted) {
        assert_eq!(
            request.header("webhook-id"),
            Some(event.to_string().as_str())
        );
        assert!(endpoint.signed(request));
        assert!((sent(request) - arrived).abs() < SLACK, "{arrived}");
    }
    assert!(requests.is_sorted_by(|a, b| sent(b) - sent(a) > TOLERANCE - SLACK));
}

/// B13.
#[tokio::test]
async fn engine_signing_is_of_the_sending_though_a_rate_kept_the_first_attempt_for_ten_minutes() {
    let scene = Scene::begin().await;
    let url = scene.receiver.url("/hook");
    let slow = RateLimit::new(0.01, 1).unwrap();
    let endpoint = scene
        .tenants
        .endpoint_with(scene.tenant, &url, |new| new.rate_limit = Some(slow))
        .await;
    let node = scene.node(Runs::WithoutLease).await;
    let began = node.clock.now();
    for n in ["1", "2"] {
        node.accept(scene.tenant, n).await;
    }
    let parked = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'rate_limit' AND n = 1";
    until("the second to be parked", AMPLE, async || {
        node.keeping.run_once().await;
        (scene.rows.number(parked).await == 1).then_some(())
    })
    .await;
    let lift = EndpointPatch {
        rate_limit: Patch::Clear,
        ..EndpointPatch::default()
    };
    scene.tenants.patch(&endpoint, lift).await;
    node.cache.refresh().await.unwrap();
    until("the second to be sent", AMPLE, async || {
        later(&node, TimeDelta::minutes(10)).await;
        node.parking.run_once().await;
        node.settled().await;
        (scene.receiver.requests_to("/hook").len() == 2).then_some(())
    })
    .await;
    let requests = scene.receiver.requests_to("/hook");
    assert!(requests.iter().all(|request| endpoint.signed(request)));
    assert!((sent(&requests[0]) - began).abs() < SLACK);
    let waited = sent(&requests[1]) - began;
    assert!(
        waited >= TimeDelta::minutes(10) - TimeDelta::seconds(1),
        "{waited}"
    );
}

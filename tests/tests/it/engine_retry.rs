//! Retry: what fails comes back at the policy's times, under one id, and ends.
//!
//! The time is moved in the database to the moment at which a delivery is due, and then the due timer is called.

use chrono::TimeDelta;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::id::EventId;
use posthorn_domain::retry::{Jitter, RetryPolicy};
use posthorn_store::configure::NewEndpoint;
use posthorn_store::record::DeliveryKey;
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::{Received, Reply, Script};
use posthorn_tests::rows::delivery;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// From the start of a request to the commit of its result, on a busy machine.
const SLACK: TimeDelta = TimeDelta::seconds(6);

impl Scene {
    async fn failing(
        &self,
        script: impl Into<Script>,
        change: impl FnOnce(&mut NewEndpoint),
    ) -> TestEndpoint {
        self.receiver.script("/hook", script);
        self.tenants
            .endpoint_with(self.tenant, &self.receiver.url("/hook"), change)
            .await
    }

    /// Waits for the `n`th request and its result.
    pub(crate) async fn attempted(&self, node: &Node, path: &str, n: usize) -> Vec<Received> {
        let requests = self.receiver.wait_for(path, n, AMPLE).await;
        node.settled().await;
        requests
    }

    /// Moves to the moment of the next attempt and has it made.
    pub(crate) async fn next_attempt(&self, node: &Node, path: &str, n: usize) -> Vec<Received> {
        self.rows.travel_to_due().await;
        node.due.run_once().await;
        self.attempted(node, path, n).await
    }

    pub(crate) fn key(&self, endpoint: &TestEndpoint, event: EventId) -> DeliveryKey {
        delivery(self.tenant, endpoint.id, event)
    }
}

fn schedule(delays_ms: &[u64], jitter: Jitter) -> impl FnOnce(&mut NewEndpoint) + use<> {
    let delays_ms = delays_ms.to_vec();
    move |new| new.retry_policy = RetryPolicy::Schedule { delays_ms, jitter }
}

/// D02, D06: every gap is that of its step, within the jitter.
#[tokio::test]
async fn engine_retry_is_due_after_each_delay_of_the_schedule_in_turn() {
    let scene = Scene::begin().await;
    let delays = [20_000, 120_000, 600_000];
    let endpoint = scene
        .failing(Reply::status(500), schedule(&delays, Jitter::Spread(0.2)))
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    let mut wrong = Vec::new();
    for (step, delay) in (1..).zip(delays) {
        let sent = scene.rows.attempts(key).await.pop().unwrap().at;
        let due = scene.rows.pending(key).await.unwrap().due.unwrap();
        let low = TimeDelta::milliseconds(i64::try_from(delay * 8 / 10).unwrap());
        let high = TimeDelta::milliseconds(i64::try_from(delay * 12 / 10).unwrap()) + SLACK;
        if due - sent < low || due - sent > high {
            wrong.push((step, due - sent));
        }
        scene.next_attempt(&node, "/hook", step + 1).await;
    }
    assert_eq!(wrong, []);
}

/// D01: the first attempt counts.
#[tokio::test]
async fn engine_retry_makes_exactly_as_many_requests_as_the_policy_has_attempts() {
    let scene = Scene::begin().await;
    scene
        .failing(
            Reply::status(403),
            schedule(&[10_000, 10_000], Jitter::None),
        )
        .await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    scene.next_attempt(&node, "/hook", 2).await;
    scene.next_attempt(&node, "/hook", 3).await;
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests_to("/hook").len(), 3);
}

/// INV-2, D01: after the last failure the delivery lies in the dead letters, and nowhere else.
#[tokio::test]
async fn engine_retry_ends_in_a_dead_letter_when_the_policy_is_exhausted() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(Reply::status(500), schedule(&[10_000], Jitter::None))
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    scene.next_attempt(&node, "/hook", 2).await;
    let dead = scene.rows.dead_letter(key).await;
    let pending = scene.rows.pending(key).await;
    assert_eq!((dead.unwrap().cause.as_str(), pending), ("exhausted", None));
}

/// INV-2: a policy of one attempt has no pending row in between.
#[tokio::test]
async fn engine_retry_lays_a_first_attempt_that_was_the_last_in_the_dead_letters() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(Reply::status(500), |new| {
            new.retry_policy = RetryPolicy::Fixed {
                delay_ms: 1000,
                max_attempts: 1,
            };
        })
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(
        scene.rows.dead_letter(key).await.unwrap().cause,
        "exhausted"
    );
}

/// INV-4.
#[tokio::test]
async fn engine_retry_sends_the_same_webhook_id_each_time_and_signs_each_anew() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(
            Reply::status(500),
            schedule(&[10_000, 10_000], Jitter::None),
        )
        .await;
    let node = scene.node(Runs::All).await;
    let id = node.accept(scene.tenant, "{ }").await.id.to_string();
    scene.attempted(&node, "/hook", 1).await;
    scene.next_attempt(&node, "/hook", 2).await;
    let requests = scene.next_attempt(&node, "/hook", 3).await;
    let right = requests
        .iter()
        .filter(|request| request.header("webhook-id") == Some(&id) && endpoint.signed(request));
    assert_eq!(right.count(), 3);
}

/// INV-3.
#[tokio::test]
async fn engine_retry_sends_the_bytes_that_were_submitted() {
    let scene = Scene::begin().await;
    let payload = format!(
        "{{\"b\":1.0, \"a\":\"\\ud800\",\"pad\":\"{}\"}}\n",
        "x".repeat(5000)
    );
    scene
        .failing(
            Script::first(1, Reply::status(500)).then(Reply::status(200)),
            |_| {},
        )
        .await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, payload.clone()).await;
    scene.attempted(&node, "/hook", 1).await;
    let requests = scene.next_attempt(&node, "/hook", 2).await;
    assert_eq!(requests[1].body, payload);
}

/// D05.
#[tokio::test]
async fn engine_retry_delivers_at_the_second_attempt() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(
            Script::first(1, Reply::status(500)).then(Reply::status(200)),
            |_| {},
        )
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    scene.next_attempt(&node, "/hook", 2).await;
    let outcomes = scene.rows.outcomes(key).await;
    let pending = scene.rows.pending(key).await;
    assert_eq!(
        (outcomes.join(" ").as_str(), pending),
        ("failed success", None)
    );
}

/// D03: no library's own limit cuts a policy short.
#[tokio::test]
async fn engine_retry_goes_on_for_as_many_attempts_as_were_set() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(Reply::status(500), |new| {
            new.retry_policy = RetryPolicy::Fixed {
                delay_ms: 50,
                max_attempts: 30,
            };
        })
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    for n in 2..=30 {
        scene.next_attempt(&node, "/hook", n).await;
    }
    let dead = scene.rows.dead_letter(key).await.is_some();
    assert_eq!(
        (scene.receiver.requests_to("/hook").len(), dead),
        (30, true)
    );
}

/// D32: deliveries of one event do not overwrite each other.
#[tokio::test]
async fn engine_retry_tells_the_deliveries_of_one_event_apart() {
    let scene = Scene::begin().await;
    let paths = ["/a", "/b", "/c"];
    for path in paths {
        let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
        scene.receiver.script(path, script);
        scene.endpoint(path).await;
    }
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    for path in paths {
        scene.attempted(&node, path, 1).await;
    }
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    for path in paths {
        scene.attempted(&node, path, 2).await;
    }
    assert_eq!(scene.receiver.requests().len(), 6);
}

/// INV-6: rows that are not due are left alone.
#[tokio::test]
async fn engine_retry_sends_nothing_before_it_is_due() {
    let scene = Scene::begin().await;
    scene.failing(Reply::status(500), |_| {}).await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(node.due.run_once().await, 0);
}

/// C10, C13: a floor for the next attempt, above the policy's own delay.
#[tokio::test]
async fn engine_retry_waits_as_long_as_retry_after_says() {
    let scene = Scene::begin().await;
    let reply = Reply::status(429).header("retry-after", "3000");
    let endpoint = scene
        .failing(reply, schedule(&[10_000], Jitter::Spread(0.2)))
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    let sent = scene.rows.attempts(key).await[0].at;
    let due = scene.rows.pending(key).await.unwrap().due.unwrap();
    assert!(due - sent >= TimeDelta::seconds(3000), "{}", due - sent);
}

/// A status that the endpoint's owner named ends the delivery at once.
#[tokio::test]
async fn engine_retry_does_not_follow_a_fatal_status() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .failing(Reply::status(422), |new| new.fatal_statuses = vec![422])
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(
        scene.rows.dead_letter(key).await.unwrap().cause,
        "fatal_status"
    );
}

/// INV-2: no delivery outlives its end, whatever its policy still holds.
#[tokio::test]
async fn engine_retry_expires_a_delivery_whose_end_has_come() {
    let scene = Scene::begin().await;
    let endpoint = scene.failing(Reply::status(500), |_| {}).await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    scene
        .rows
        .run("UPDATE pending SET due = now() - interval '2 s', ends_at = now() - interval '1 s'")
        .await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.rows.dead_letter(key).await.unwrap().cause, "expired");
}

/// INV-8, D12: a target that policy forbids is a failed attempt that the tenant can see, and no request.
#[tokio::test]
async fn engine_retry_records_a_refused_target_as_a_failed_attempt() {
    let scene = Scene::begin().await;
    let endpoint = scene
        .tenants
        .endpoint(scene.tenant, "http://10.0.0.1/hook")
        .await;
    scene.endpoint("/sibling").await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/sibling", 1).await;
    assert_eq!(scene.rows.outcomes(key).await, ["failed"]);
}

/// D25: the next attempt goes where the endpoint points by then.
#[tokio::test]
async fn engine_retry_goes_to_the_url_that_the_endpoint_has_by_then() {
    let scene = Scene::begin().await;
    let endpoint = scene.failing(Reply::status(500), |_| {}).await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    let patch = posthorn_store::configure::EndpointPatch {
        url: posthorn_domain::url::EndpointUrl::parse(&scene.receiver.url("/new")).ok(),
        ..Default::default()
    };
    scene.tenants.patch(&endpoint, patch).await;
    node.cache.refresh().await.unwrap();
    assert_eq!(scene.next_attempt(&node, "/new", 1).await.len(), 1);
}

/// D22: a retry whose endpoint was paused meanwhile waits, unsent.
#[tokio::test]
async fn engine_retry_parks_a_due_row_whose_endpoint_is_paused() {
    let scene = Scene::begin().await;
    let endpoint = scene.failing(Reply::status(500), |_| {}).await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    scene.tenants.set(&endpoint, EndpointState::Paused).await;
    node.cache.refresh().await.unwrap();
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    node.settled().await;
    let row = scene.rows.pending(key).await.unwrap();
    assert_eq!((row.due, row.why.as_str()), (None, "paused"));
}

/// INV-6: a row stays due until its result is on record; the node that holds it does not take it a second time.
#[tokio::test]
async fn engine_retry_takes_no_delivery_that_is_under_way() {
    let scene = Scene::begin().await;
    scene
        .failing(
            Script::first(1, Reply::status(500)).then(Reply::hang()),
            |_| {},
        )
        .await;
    scene.endpoint("/witness").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.receiver.wait_for("/witness", 1, AMPLE).await;
    scene.attempted(&node, "/hook", 1).await;
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    scene.receiver.wait_for("/hook", 2, AMPLE).await;
    node.due.run_once().await;
    // Both of its requests start after whatever was queued before.
    node.accept(scene.tenant, "{}").await;
    scene.receiver.wait_for("/witness", 2, AMPLE).await;
    until(
        "two requests to be under way, the retry's and the new event's",
        AMPLE,
        || async { (node.dispatcher.load().0 == 2).then_some(()) },
    )
    .await;
    assert_eq!(scene.receiver.wait_for("/hook", 3, AMPLE).await.len(), 3);
}

/// D35: no order is kept, and what fails holds nothing back.
#[tokio::test]
async fn engine_retry_does_not_hold_back_the_event_that_follows() {
    let scene = Scene::begin().await;
    let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
    let endpoint = scene.failing(script, |_| {}).await;
    let node = scene.node(Runs::All).await;
    let first = scene.key(&endpoint, node.accept(scene.tenant, "1").await.id);
    scene.attempted(&node, "/hook", 1).await;
    let second = scene.key(&endpoint, node.accept(scene.tenant, "2").await.id);
    scene.attempted(&node, "/hook", 2).await;
    assert_eq!(scene.rows.outcomes(second).await, ["success"]);
    assert!(scene.rows.pending(first).await.is_some());
}

//! Limits of an endpoint: its rate and its number of requests under way (D27, INV-13).

use std::time::Duration;

use posthorn_domain::limits;
use posthorn_domain::rate::RateLimit;
use posthorn_store::configure::{EndpointPatch, Patch};
use posthorn_tests::engine::{AMPLE, Runs};
use posthorn_tests::receiver::Reply;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

impl Scene {
    /// An endpoint with a rate.
    async fn rated(&self, path: &str, per_second: f64, burst: u32) -> TestEndpoint {
        let url = self.receiver.url(path);
        let limit = RateLimit::new(per_second, burst).unwrap();
        self.tenants
            .endpoint_with(self.tenant, &url, |new| new.rate_limit = Some(limit))
            .await
    }

    /// Waits until so many deliveries are parked for the rate of their endpoint.
    async fn waiting_for_their_rate(&self, count: i64) {
        let parked = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'rate_limit'";
        until("deliveries to be parked", AMPLE, || async {
            (self.rows.number(parked).await == count).then_some(())
        })
        .await;
    }
}

/// D27: counted at the receiver; a request may be some milliseconds on its way, and none is early.
#[tokio::test]
async fn engine_rate_starts_no_more_than_the_rate_and_loses_nothing() {
    let scene = Scene::begin().await;
    scene.rated("/hook", 20.0, 1).await;
    let node = scene.node(Runs::All).await;
    for n in 0..30 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    let came = scene.receiver.wait_for("/hook", 30, AMPLE).await;
    let late = Duration::from_millis(40);
    for (at, request) in came.iter().enumerate() {
        let before = |other: &&posthorn_tests::receiver::Received| {
            request.arrived.saturating_duration_since(other.arrived) + late
                < Duration::from_millis(500)
        };
        let within = came.iter().take(at).rev().take_while(before).count();
        assert!(within <= 10, "{within} more in half a second");
    }
}

/// D27: waiting is no attempt.
#[tokio::test]
async fn engine_rate_parks_what_waits_too_long_and_uses_up_no_attempt() {
    let scene = Scene::begin().await;
    scene.rated("/hook", 0.01, 1).await;
    let node = scene.node(Runs::All).await;
    for n in 0..5 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    scene.waiting_for_their_rate(4).await;
    let untouched = "SELECT count(*) FROM pending WHERE n = 1 AND step = 0";
    let attempts = "SELECT count(*) FROM attempts";
    assert_eq!(
        (
            scene.rows.number(untouched).await,
            scene.rows.number(attempts).await
        ),
        (4, 1)
    );
}

/// D27: the limit can be taken away.
#[tokio::test]
async fn engine_rate_that_is_lifted_lets_out_what_waits() {
    let scene = Scene::begin().await;
    let endpoint = scene.rated("/hook", 0.01, 1).await;
    let node = scene.node(Runs::All).await;
    for n in 0..5 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    scene.waiting_for_their_rate(4).await;
    node.accept(scene.tenant, "in memory").await;
    let lift = EndpointPatch {
        rate_limit: Patch::Clear,
        ..EndpointPatch::default()
    };
    scene.tenants.patch(&endpoint, lift).await;
    node.cache.refresh().await.unwrap();
    node.parking.run_once().await;
    scene.receiver.wait_for("/hook", 6, AMPLE).await;
}

/// INV-13.
#[tokio::test]
async fn engine_rate_of_one_endpoint_does_not_slow_its_sibling() {
    let scene = Scene::begin().await;
    scene.rated("/slow", 0.01, 1).await;
    scene.endpoint("/fast").await;
    let node = scene.node(Runs::All).await;
    for n in 0..50 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    scene
        .receiver
        .wait_for("/fast", 50, Duration::from_secs(3))
        .await;
    assert_eq!(scene.receiver.requests_to("/slow").len(), 1);
}

/// D27: a backlog far beyond the rate is parked once, and after that only read.
#[tokio::test]
async fn engine_rate_writes_the_rows_of_a_backlog_once() {
    let scene = Scene::begin().await;
    let endpoint = scene.rated("/hook", 0.01, 1).await;
    scene
        .rows
        .fill_pending(scene.tenant, endpoint.id, 2_000)
        .await;
    let node = scene.node(Runs::All).await;
    node.due.run_once().await;
    until("the first of them to be delivered", AMPLE, || async {
        let attempts = "SELECT count(*) FROM attempts";
        (scene.rows.number(attempts).await == 1).then_some(())
    })
    .await;
    scene
        .rows
        .run("CREATE TABLE seen AS SELECT event_id, xmin::text AS version FROM pending")
        .await;
    for _ in 0..5 {
        node.due.run_once().await;
        node.parking.run_once().await;
        node.parking.refill().await.unwrap();
    }
    let changed = "SELECT count(*) FROM pending JOIN seen USING (event_id) WHERE pending.xmin::text <> version";
    let parked = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'rate_limit'";
    let (changed, parked) = (
        scene.rows.number(changed).await,
        scene.rows.number(parked).await,
    );
    assert_eq!(changed, 0);
    // The first was sent while the scan went on, so that another may have taken its place.
    let all = 2_000 - i64::try_from(limits::DUE_ROWS_PER_ENDPOINT).unwrap();
    assert!((all - 1..=all).contains(&parked), "{parked}");
}

/// A number of requests under way is exact, not at most the default.
#[tokio::test]
async fn engine_rate_keeps_to_the_requests_under_way_that_an_endpoint_allows() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::hang());
    let url = scene.receiver.url("/hook");
    let limited = |new: &mut posthorn_store::configure::NewEndpoint| new.max_in_flight = Some(20);
    scene
        .tenants
        .endpoint_with(scene.tenant, &url, limited)
        .await;
    let node = scene.node(Runs::All).await;
    for n in 0..30 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    scene.receiver.wait_for("/hook", 20, AMPLE).await;
    assert_eq!(node.dispatcher.load().0, 20);
}

//! Drains: a backlog goes out as fast as its endpoint takes it, beside what is fresh.

use std::time::Duration;

use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::Reply;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

const PARKED: &str = "SELECT count(*) FROM pending WHERE due IS NULL";

impl Scene {
    /// An endpoint with so many parked deliveries, all with one and the same end.
    async fn parked_backlog(&self, path: &str, rows: u32) -> TestEndpoint {
        let endpoint = self.endpoint(path).await;
        self.rows
            .fill_pending(endpoint.tenant, endpoint.id, rows)
            .await;
        self.rows
            .run("UPDATE pending SET due = NULL, why = 'paused'")
            .await;
        endpoint
    }
}

/// Brings more whenever the dispatcher says that a lane runs low, and at no other time.
async fn refill(node: &Node) {
    let low = node.dispatcher.low_hint();
    loop {
        low.listen().notified().await;
        node.parking.refill().await.unwrap();
    }
}

/// Waits until nothing is pending, while lanes are refilled.
async fn drained(scene: &Scene, node: &Node) {
    let empty = until("the backlog to be gone", AMPLE, || async {
        (scene.rows.number("SELECT count(*) FROM pending").await == 0).then_some(())
    });
    tokio::select! {
        () = empty => {}
        () = refill(node) => {}
    }
}

/// INV-2: after one sweep, the rest is brought as it is used up.
#[tokio::test]
async fn engine_drain_goes_to_the_end_of_a_backlog_without_another_sweep() {
    let scene = Scene::begin().await;
    scene.parked_backlog("/pile", 3000).await;
    let node = scene.node(Runs::All).await;
    node.parking.run_once().await;
    drained(&scene, &node).await;
    assert_eq!(scene.receiver.requests_to("/pile").len(), 3000);
}

/// INV-11: a backlog does not come into memory as a whole.
#[tokio::test]
async fn engine_drain_holds_no_more_of_a_backlog_than_a_lane_takes() {
    let scene = Scene::begin().await;
    scene.receiver.script("/pile", Reply::hang());
    scene.parked_backlog("/pile", 3000).await;
    let node = scene.node(Runs::All).await;
    for _ in 0..4 {
        node.parking.run_once().await;
        node.parking.refill().await.unwrap();
    }
    let held = node.dispatcher.load().1;
    assert!(held <= 512 + 16, "{held}");
}

/// What is drained stays parked until its result is on record: a node that ends in between leaves nothing to put back.
#[tokio::test]
async fn engine_drain_leaves_rows_parked_while_they_are_sent() {
    let scene = Scene::begin().await;
    scene.receiver.script("/pile", Reply::hang());
    scene.parked_backlog("/pile", 100).await;
    let node = scene.node(Runs::All).await;
    node.parking.run_once().await;
    scene.receiver.wait_for("/pile", 16, AMPLE).await;
    assert_eq!(scene.rows.number(PARKED).await, 100);
}

/// INV-13: fresh events have their half of the slots.
#[tokio::test]
async fn engine_drain_lets_a_fresh_event_through() {
    let scene = Scene::begin().await;
    scene
        .receiver
        .script("/pile", Reply::status(200).after(Duration::from_millis(20)));
    scene.parked_backlog("/pile", 3000).await;
    let node = scene.node(Runs::All).await;
    node.parking.run_once().await;
    scene.receiver.wait_for("/pile", 32, AMPLE).await;
    let id = node.accept(scene.tenant, "{}").await.id.to_string();
    let arrived = until("the fresh event to arrive", AMPLE, || async {
        scene
            .receiver
            .requests_to("/pile")
            .iter()
            .position(|request| request.header("webhook-id") == Some(&id))
    });
    let before = tokio::select! {
        before = arrived => before,
        () = refill(&node) => usize::MAX,
    };
    assert!(before < 1500, "{before} went out before it");
}

/// A row that fails while its endpoint is drained is due again by its policy, like any other.
#[tokio::test]
async fn engine_drain_of_a_failing_delivery_makes_it_due_by_its_policy() {
    let scene = Scene::begin().await;
    scene.receiver.script("/pile", Reply::status(500));
    scene.parked_backlog("/pile", 1).await;
    let node = scene.node(Runs::All).await;
    node.parking.run_once().await;
    scene.receiver.wait_for("/pile", 1, AMPLE).await;
    node.settled().await;
    let retrying = "SELECT count(*) FROM pending WHERE due > now() AND n = 2 AND why = 'retry'";
    assert_eq!(scene.rows.number(retrying).await, 1);
}

/// INV-13: every endpoint with parked rows has its turn, however many there are in its shard before it.
#[tokio::test]
async fn engine_drain_reaches_endpoints_beyond_what_one_sweep_lists() {
    let scene = Scene::begin().await;
    scene.parked_backlog("/pile", 1).await;
    // Endpoints that nobody configured keep their rows, for their own row says nothing.
    scene
        .rows
        .run(
            "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, n, step, since, ends_at, why)
             SELECT tenant_id, ('00000000-0000-0000-0000-' || lpad(to_hex(crowd.i), 10, '0') || right(endpoint_id::text, 2))::uuid,
                    event_id, shard, 1, 0, 1, ends_at, 'paused'
             FROM pending, generate_series(1, 700) AS crowd (i)",
        )
        .await;
    let node = scene.node(Runs::All).await;
    for _ in 0..24 {
        node.parking.run_once().await;
    }
    assert_eq!(scene.receiver.wait_for("/pile", 1, AMPLE).await.len(), 1);
}

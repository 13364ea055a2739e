//! Backpressure: no more is accepted than can be sent, and nobody waits for a receiver (INV-11, INV-13).

use std::time::Duration;

use posthorn_domain::id::TenantId;
use posthorn_domain::limits;
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// Endpoints that each event is for.
const ENDPOINTS: usize = 100;

/// Events that use up every place for a result.
const FIRST: usize = limits::UNRECORDED / ENDPOINTS + 1;

/// Events after them: more than any node is behind with.
const MORE: usize = limits::BEHIND_LEAST / ENDPOINTS + 5;

/// How long one submission takes.
async fn takes(node: &Node, tenant: TenantId) -> Duration {
    let began = node.clock.monotonic();
    node.accept(tenant, "{}").await;
    node.clock.monotonic() - began
}

/// A node that has more to send than it may, since nothing that was sent gets on record.
async fn behind(scene: &Scene) -> Node {
    let one = scene.endpoint("/all").await;
    let crowd = scene.tenants.crowd(&scene.rows, &one, ENDPOINTS - 1);
    crowd.await;
    let node = scene.node(Runs::All).await;
    scene.rows.run("BEGIN").await;
    scene
        .rows
        .run("LOCK TABLE attempts IN ACCESS EXCLUSIVE MODE")
        .await;
    for _ in 0..FIRST {
        node.accept(scene.tenant, "{}").await;
    }
    let sent = limits::UNRECORDED;
    scene.receiver.wait_for("/all", sent, 4 * AMPLE).await;
    for _ in 0..MORE {
        node.accept(scene.tenant, "{}").await;
    }
    until("the endpoints to be behind", AMPLE, || async {
        node.backpressure.is_on().then_some(())
    })
    .await;
    node
}

/// INV-11: what cannot be sent is not accepted as fast as it comes; and it is not refused either.
#[tokio::test(flavor = "multi_thread")]
async fn engine_backpressure_holds_back_events_for_endpoints_that_are_behind() {
    let scene = Scene::begin().await;
    let other = scene.tenants.tenant().await;
    let url = scene.receiver.url("/other");
    scene.tenants.endpoint(other, &url).await;
    let node = behind(&scene).await;
    assert!(takes(&node, scene.tenant).await >= limits::HELD_BACK);
    assert!(takes(&node, other).await < limits::HELD_BACK);

    scene.rows.run("COMMIT").await;
    until("nothing to be behind", AMPLE, || async {
        (!node.backpressure.is_on()).then_some(())
    })
    .await;
    assert!(takes(&node, scene.tenant).await < limits::HELD_BACK);
}

/// INV-13: a receiver that never answers is set aside.
#[tokio::test(flavor = "multi_thread")]
async fn engine_backpressure_is_not_for_an_endpoint_that_hangs() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hangs", Reply::hang());
    scene.endpoint("/hangs").await;
    let node = scene.node(Runs::All).await;
    for _ in 0..2 * limits::IN_FLIGHT_PER_ENDPOINT {
        node.accept(scene.tenant, "{}").await;
    }
    until("what does not fit to be set aside", AMPLE, || async {
        assert!(!node.backpressure.is_on());
        let parked = scene.rows.number("SELECT count(*) FROM pending").await;
        (parked > 0).then_some(())
    })
    .await;
    assert!(takes(&node, scene.tenant).await < limits::HELD_BACK);
}

//! Accept in turns: no tenant's events and no large event hold up another's (INV-13).

use futures_util::FutureExt as _;
use posthorn_domain::limits;
use posthorn_store::accept::AcceptError;
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// A JSON text that takes the lane of large events.
fn large() -> String {
    format!("\"{}\"", "x".repeat(2 * limits::SMALL_EVENT_BYTES))
}

/// Holds every flush of these lanes up until [`release`].
async fn hold(scene: &Scene, fences: &'static str) {
    scene.rows.run("BEGIN").await;
    scene.rows.run(fences).await;
}

async fn release(scene: &Scene) {
    scene.rows.run("COMMIT").await;
}

/// A scene whose tenant has as many events waiting as it may, and a node that holds them.
async fn flooded() -> (Scene, Node, posthorn_domain::id::TenantId) {
    let scene = Scene::begin().await;
    let other = scene.tenants.tenant().await;
    let node = scene.node(Runs::AcceptOnly).await;
    hold(&scene, "SELECT FROM streams FOR UPDATE").await;
    let turned_away = (0..limits::ACCEPT_QUEUE_ROWS)
        .find_map(|_| node.submit(scene.tenant, "\"flood\"").now_or_never());
    assert_eq!(turned_away, Some(Err(AcceptError::Busy)));
    (scene, node, other)
}

/// INV-13, INV-11.
#[tokio::test]
async fn engine_turns_are_for_a_tenant_that_comes_while_another_has_all_it_may() {
    let (scene, node, other) = flooded().await;
    let (accepted, ()) = tokio::join!(node.submit(other, "{}"), release(&scene));
    assert!(accepted.is_ok(), "{accepted:?}");
}

/// INV-13: by the numbers of the transactions that wrote them.
#[tokio::test]
async fn engine_turns_come_before_most_of_what_another_tenant_has_waiting() {
    let (scene, node, other) = flooded().await;
    let (accepted, ()) = tokio::join!(node.accept(other, "{}"), release(&scene));
    let flood = limits::ACCEPT_QUEUE_ROWS / 2;
    until("the flood to be written", AMPLE, || async {
        let all = scene.rows.number("SELECT count(*) FROM events").await;
        (usize::try_from(all).unwrap() > flood).then_some(())
    })
    .await;
    let before = scene
        .rows
        .number(
            "SELECT count(*) FROM events AS flood, events AS other
             WHERE other.payload = '{}' AND flood.payload <> '{}' AND age(flood.xmin) > age(other.xmin)",
        )
        .await;
    // By turns it would be two flushes that were under way; a third may overtake its own while PostgreSQL runs them side by side.
    let most = i64::try_from(flood / 2).unwrap();
    assert!(accepted.deliveries_count == 0 && before < most, "{before}");
}

/// INV-13.
#[tokio::test]
async fn engine_turns_of_large_events_are_their_own() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    hold(&scene, "SELECT FROM streams WHERE lane = 1 FOR UPDATE").await;
    assert!(node.submit(scene.tenant, large()).now_or_never().is_none());
    node.accept(scene.tenant, "{}").await;
    assert_eq!(scene.rows.events().await.len(), 1);
    release(&scene).await;
    until("the large event to be written", AMPLE, || async {
        (scene.rows.events().await.len() == 2).then_some(())
    })
    .await;
}

/// INV-6: either lane has its fence.
#[tokio::test]
async fn engine_turns_write_nothing_in_a_stream_that_is_closed() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene
        .rows
        .run("UPDATE nodes SET state = 'closed', lease_until = now()")
        .await;
    scene.rows.run("UPDATE streams SET state = 'closed'").await;
    for payload in [large(), "{}".to_owned()] {
        node.accept(scene.tenant, payload).await;
    }
    let in_open_streams =
        "SELECT count(*) FROM events JOIN nodes USING (stream) WHERE state = 'open'";
    assert_eq!(scene.rows.number(in_open_streams).await, 2);
}

//! The fence: what becomes of a node whose stream another one has closed.

use posthorn_store::lease;
use posthorn_tests::engine::{AMPLE, Runs};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

impl Scene {
    /// Closes a stream as another node would that saw its lease lapse.
    pub(crate) async fn close_as_another(&self, stream: i64) {
        let other = self.database.pools(1, 1);
        // A node that renews by itself may do so between the two.
        until("the stream to be closed", AMPLE, || async {
            self.rows.lapse().await;
            let closed = lease::close_lapsed(&other, stream).await.unwrap();
            closed.then_some(())
        })
        .await;
    }
}

/// INV-2.
#[tokio::test]
async fn engine_fence_writes_nothing_into_a_stream_that_another_node_closed() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    let closed = node.keeper.present().unwrap().id();
    scene.close_as_another(closed).await;
    node.accept(scene.tenant, "{}").await;
    assert_ne!(scene.rows.events().await[0].stream, closed);
}

/// INV-1.
#[tokio::test]
async fn engine_fence_carries_a_row_over_into_the_next_stream_under_the_id_it_had() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    let before = node.keeper.present().unwrap();
    scene.close_as_another(before.id()).await;
    let accepted = node.accept(scene.tenant, "{}").await;
    // Minted in the old stream: before the new one was opened.
    let older = scene
        .rows
        .number("SELECT count(*) FROM events JOIN nodes USING (stream) WHERE posthorn_uuid_time(id) < started_at")
        .await;
    let stored = scene.rows.events().await[0].id;
    assert_eq!((stored, older), (accepted.id.uuid(), 1));
}

/// INV-2: a watermark above a carried row would hide it from recovery.
#[tokio::test]
async fn engine_fence_opens_the_next_stream_with_a_watermark_below_what_it_carries() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene
        .close_as_another(node.keeper.present().unwrap().id())
        .await;
    node.accept(scene.tenant, "{}").await;
    let hidden = scene
        .rows
        .number("SELECT count(*) FROM events JOIN nodes USING (stream) WHERE id <= watermark")
        .await;
    assert_eq!(hidden, 0);
}

/// INV-2.
#[tokio::test]
async fn engine_fence_delivers_what_was_carried_over() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    scene
        .close_as_another(node.keeper.present().unwrap().id())
        .await;
    let accepted = node.accept(scene.tenant, "{}").await;
    let requests = scene.receiver.wait_for("/hook", 1, AMPLE).await;
    assert_eq!(
        requests[0].header("webhook-id"),
        Some(accepted.id.to_string().as_str())
    );
}

/// INV-6: the clock alone closes nothing.
#[tokio::test]
async fn engine_fence_leaves_a_stream_open_whose_lease_was_renewed() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    let stream = node.keeper.present().unwrap().id();
    let other = scene.database.pools(1, 1);
    assert!(!lease::close_lapsed(&other, stream).await.unwrap());
}

/// A lapsed lease may still be renewed by its own node.
#[tokio::test]
async fn engine_fence_lets_a_node_renew_a_lease_that_lapsed() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    let stream = node.keeper.present().unwrap().id();
    scene.rows.lapse().await;
    node.keeping.run_once().await;
    let other = scene.database.pools(1, 1);
    assert!(!lease::close_lapsed(&other, stream).await.unwrap());
}

/// One look is not enough: a node that was late by a moment keeps its stream.
#[tokio::test]
async fn engine_fence_is_closed_only_by_a_node_that_saw_the_lease_lapsed_twice() {
    let scene = Scene::begin().await;
    let stale = scene.node(Runs::WithoutLease).await;
    scene.rows.lapse().await;
    let other = scene.node(Runs::WithoutLease).await;
    let stream = stale.keeper.present().unwrap().id();
    let first = scene.rows.node_state(stream).await;
    other.keeping.run_once().await;
    let second = scene.rows.node_state(stream).await;
    assert_eq!((first.as_str(), second.as_str()), ("open", "closed"));
}

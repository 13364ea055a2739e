//! Leaves: an insert that meets no partition is nobody's fault, and loses nothing.

use posthorn_store::accept::AcceptError;
use posthorn_store::partitions;
use posthorn_tests::engine::{AMPLE, Runs};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// As if no node had made any for days.
pub(crate) const NO_EVENTS: &str = "DO $$ DECLARE leaf regclass; BEGIN
         FOR leaf IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'events'::regclass LOOP
             EXECUTE format('DROP TABLE %s', leaf);
         END LOOP;
     END $$";

const NO_ATTEMPTS: &str = "DO $$ DECLARE leaf regclass; BEGIN
         FOR leaf IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'attempts'::regclass LOOP
             EXECUTE format('DROP TABLE %s', leaf);
         END LOOP;
     END $$";

/// Transactions that PostgreSQL has undone in this database.
const UNDONE: &str =
    "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()";

/// INV-1: the caller may come again; the event is not refused for good.
#[tokio::test]
async fn engine_leaves_turn_a_caller_away_where_the_events_day_has_none() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    scene.rows.run(NO_EVENTS).await;
    let answer = node.submit(scene.tenant, "{}").await;
    assert_eq!(answer, Err(AcceptError::Unavailable));
    assert_eq!(scene.rows.events().await, []);
}

/// INV-1, INV-6: once there is a leaf, what is submitted again is there once and sent once.
#[tokio::test]
async fn engine_leaves_that_come_late_take_an_event_once() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    scene.rows.run(NO_EVENTS).await;
    node.submit(scene.tenant, "{}").await.unwrap_err();
    partitions::make_ahead(&node.database).await.unwrap();
    until("the event to be accepted", AMPLE, || async {
        node.submit(scene.tenant, "{}").await.ok()
    })
    .await;
    scene.attempted(&node, "/hook", 1).await;
    let (kept, sent) = (
        scene.rows.events().await.len(),
        scene.receiver.requests().len(),
    );
    assert_eq!((kept, sent), (1, 1));
}

/// INV-2, INV-6: a result waits for its leaf, and its request is not made again.
#[tokio::test]
async fn engine_leaves_that_come_late_take_a_result_once() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    scene.rows.run(NO_ATTEMPTS).await;
    let before = scene.rows.number(UNDONE).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    until("a record to be undone", AMPLE, || async {
        (scene.rows.number(UNDONE).await > before).then_some(())
    })
    .await;
    partitions::make_ahead(&node.database).await.unwrap();
    node.settled().await;
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
    assert_eq!(scene.receiver.requests().len(), 1);
}

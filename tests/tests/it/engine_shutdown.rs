//! An orderly end of a node: nothing open is left behind, and nothing is lost.

use posthorn_store::oracle;
use posthorn_tests::engine::{AMPLE, Parts, event, in_order};
use posthorn_tests::receiver::Reply;
use posthorn_worker::Worker;

use crate::engine_scene::Scene;

/// Starts a whole engine, does `work` with its acceptor, and shuts it down; answers the stream.
async fn with_engine(
    scene: &Scene,
    work: impl AsyncFnOnce(&posthorn_store::accept::Acceptor),
) -> i64 {
    let parts = Parts::open(scene.database.pools(4, 2)).await;
    let stream = parts.keeper.present().unwrap().id();
    let acceptor = parts.acceptor.clone();
    let worker = Worker::start(parts.whole());
    work(&acceptor).await;
    acceptor.stop();
    worker.shutdown(in_order()).await;
    stream
}

/// Twenty events, handed in at once.
async fn twenty(scene: &Scene, acceptor: &posthorn_store::accept::Acceptor) {
    let mut submitted = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (acceptor, new) = (acceptor.clone(), event(scene.tenant, "{}"));
        submitted.spawn(async move { acceptor.accept(new).await });
    }
    for answer in submitted.join_all().await {
        answer.unwrap();
    }
}

/// INV-2.
#[tokio::test]
async fn engine_shutdown_leaves_its_stream_recovered_when_nothing_is_open() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let stream = with_engine(&scene, async |acceptor| twenty(&scene, acceptor).await).await;
    assert_eq!(scene.rows.node_state(stream).await, "recovered");
}

/// INV-2.
#[tokio::test]
async fn engine_shutdown_loses_nothing() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    with_engine(&scene, async |acceptor| twenty(&scene, acceptor).await).await;
    let lost = oracle::lost(&scene.database.pools(1, 1), 100)
        .await
        .unwrap();
    assert_eq!(lost, []);
}

/// INV-2: what was queued behind the slots of a slow endpoint waits in `pending`, due for whoever comes next.
#[tokio::test]
async fn engine_shutdown_hands_over_what_was_queued() {
    let scene = Scene::begin().await;
    let reply = Reply::status(200).after(std::time::Duration::from_secs(1));
    scene.receiver.script("/hook", reply);
    scene.endpoint("/hook").await;
    with_engine(&scene, async |acceptor| twenty(&scene, acceptor).await).await;
    let open = scene
        .rows
        .number("SELECT count(*) FROM pending WHERE due IS NOT NULL AND why = 'handover'")
        .await;
    assert_eq!(open + sent(&scene), 20);
}

fn sent(scene: &Scene) -> i64 {
    i64::try_from(scene.receiver.requests().len()).unwrap()
}

/// INV-6: a request that is out is awaited and recorded, so that it is not sent again.
#[tokio::test]
async fn engine_shutdown_awaits_and_records_the_requests_that_are_out() {
    let scene = Scene::begin().await;
    let reply = Reply::status(200).after(std::time::Duration::from_secs(1));
    scene.receiver.script("/hook", reply);
    scene.endpoint("/hook").await;
    with_engine(&scene, async |acceptor| {
        acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
        scene.receiver.wait_for("/hook", 1, AMPLE).await;
    })
    .await;
    let recorded = scene
        .rows
        .number("SELECT count(*) FROM attempts WHERE outcome = 'success'")
        .await;
    assert_eq!(recorded, 1);
}

/// Whoever comes after the end is told so.
#[tokio::test]
async fn engine_shutdown_turns_later_callers_away() {
    let scene = Scene::begin().await;
    let mut kept = None;
    with_engine(&scene, async |acceptor| kept = Some(acceptor.clone())).await;
    let answer = kept.unwrap().accept(event(scene.tenant, "{}")).await;
    assert_eq!(
        answer,
        Err(posthorn_store::accept::AcceptError::ShuttingDown)
    );
}

/// INV-6: the shards are free for the next node.
#[tokio::test]
async fn engine_shutdown_gives_its_shards_back() {
    let scene = Scene::begin().await;
    with_engine(&scene, async |_| {}).await;
    let owned = scene
        .rows
        .number("SELECT count(*) FROM shards WHERE owner IS NOT NULL")
        .await;
    assert_eq!(owned, 0);
}

//! Shards: shared by the nodes that send, and given from hand to hand without a delivery sent twice.

use std::time::Duration;

use posthorn_domain::limits;
use posthorn_domain::retry::{Jitter, RetryPolicy};
use posthorn_store::oracle;
use posthorn_tests::engine::{AMPLE, Node, Runs, event, in_order};
use posthorn_tests::proxy::{Loss, Lost};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;
use sqlx::Connection as _;
use tokio::task::JoinSet;

use crate::engine_scene::Scene;

/// One step of each node's lease, in this order.
async fn step(nodes: &[&Node]) {
    for node in nodes {
        assert!(node.keeping.run_once().await.renewed);
    }
}

/// How many shards each of these nodes owns.
fn owned(nodes: &[&Node]) -> Vec<usize> {
    nodes.iter().map(|node| node.shards.owned().len()).collect()
}

/// INV-6: a node that comes gets its part.
#[tokio::test]
async fn engine_shards_are_shared_among_the_nodes_that_send() {
    let scene = Scene::begin().await;
    let one = scene.node(Runs::WithoutLease).await;
    assert_eq!(owned(&[&one]), [256]);
    let two = scene.node(Runs::WithoutLease).await;
    step(&[&one, &two]).await;
    assert_eq!(owned(&[&one, &two]), [128, 128]);
    let three = scene.node(Runs::WithoutLease).await;
    step(&[&one, &two, &three]).await;
    assert_eq!(owned(&[&one, &two, &three]), [86, 86, 84]);
}

/// What a node that has gone leaves is shared by those that stay.
#[tokio::test]
async fn engine_shards_of_a_node_that_is_closed_are_shared_by_the_others() {
    let scene = Scene::begin().await;
    let dead = scene.node(Runs::WithoutLease).await;
    let one = scene.node(Runs::WithoutLease).await;
    let two = scene.node(Runs::WithoutLease).await;
    step(&[&dead, &one, &two]).await;
    scene
        .close_as_another(dead.keeper.present().unwrap().id())
        .await;
    step(&[&one, &two]).await;
    assert_eq!(owned(&[&one, &two]), [128, 128]);
}

/// One step of the lease of a node that has a free shard to take, while another is taking some. Answers how long it took.
async fn step_while_another_takes(scene: &Scene, node: &Node) -> Duration {
    let free = "UPDATE shards SET owner = NULL WHERE shard = 7";
    assert_eq!(scene.rows.run(free).await, 1);
    let mut other = scene.database.superuser().await;
    let mut taking = other.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('posthorn_claim_shards'))")
        .execute(&mut *taking)
        .await
        .unwrap();
    let began = node.clock.monotonic();
    node.keeping.run_once().await;
    let took = node.clock.monotonic().duration_since(began);
    taking.rollback().await.unwrap();
    took
}

/// INV-6, INV-11: the next renewal comes while the node may still begin something; and then the shard is taken.
#[tokio::test]
async fn engine_shards_that_another_node_is_taking_keep_no_renewal_waiting() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    let took = step_while_another_takes(&scene, &node).await;
    assert!(took < limits::LEASE_TTL / 2, "{took:?}");
    step(&[&node]).await;
    assert_eq!(owned(&[&node]), [256]);
}

/// INV-6, INV-11: the same where nobody answers any more, in a node's first step.
#[tokio::test]
async fn engine_shards_that_nobody_answers_about_keep_no_renewal_waiting() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    proxy.lose(Loss {
        marker: "posthorn_claim_shards".into(),
        request: "".into(),
        lost: Lost::Everything,
    });
    let database = scene.database.pools_through(&proxy);
    let starting = Node::start(database, Runs::WithoutLease);
    let started = tokio::time::timeout(limits::LEASE_TTL, starting).await;
    let node = started.unwrap();
    proxy.lost(1).await;
    step(&[&node]).await;
    assert_eq!(owned(&[&node]), [256]);
}

/// An endpoint in the upper half of the shards, which a node alone gives to the next.
async fn endpoint_that_changes_hands(scene: &Scene, path: &str) -> TestEndpoint {
    let mut endpoint = scene.endpoint(path).await;
    while endpoint.id.shard() < 128 {
        scene.tenants.delete(&endpoint).await;
        endpoint = scene.endpoint(path).await;
    }
    endpoint
}

/// INV-6: a shard stays its owner's while a retry of it is under way, and the others do not wait for it.
#[tokio::test]
async fn engine_shards_change_hands_when_the_retry_that_is_out_is_on_record() {
    let scene = Scene::begin().await;
    let endpoint = endpoint_that_changes_hands(&scene, "/hook").await;
    let slow = Reply::status(200).after(Duration::from_secs(3));
    scene.receiver.script("/hook", slow);
    let one = scene.node(Runs::WithoutLease).await;
    scene
        .rows
        .fill_pending(endpoint.tenant, endpoint.id, 1)
        .await;
    one.due.run_once().await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    let two = scene.node(Runs::WithoutLease).await;
    step(&[&one, &two]).await;
    let meanwhile = (two.shards.owned().len(), two.shards.owns(endpoint.id));
    two.due.run_once().await;
    one.settled().await;
    step(&[&one, &two]).await;
    two.due.run_once().await;
    two.settled().await;
    assert_eq!(
        (meanwhile, scene.receiver.requests().len()),
        ((127, false), 1)
    );
    assert!(two.shards.owns(endpoint.id));
}

/// INV-6: what a node has queued of a shard that it gives up is left for the next one.
#[tokio::test]
async fn engine_shards_that_are_given_up_take_their_queued_rows_with_them() {
    let scene = Scene::begin().await;
    let endpoint = endpoint_that_changes_hands(&scene, "/hook").await;
    let slow = Script::first(16, Reply::status(200).after(Duration::from_secs(2)));
    scene
        .receiver
        .script("/hook", slow.then(Reply::status(200)));
    let one = scene.node(Runs::WithoutLease).await;
    scene
        .rows
        .fill_pending(endpoint.tenant, endpoint.id, 50)
        .await;
    one.due.run_once().await;
    scene.receiver.wait_for("/hook", 16, AMPLE).await;
    let two = scene.node(Runs::WithoutLease).await;
    step(&[&one]).await;
    one.settled().await;
    assert_eq!(scene.receiver.requests().len(), 16);
    step(&[&one, &two]).await;
    two.due.run_once().await;
    two.settled().await;
    assert_eq!(scene.receiver.requests().len(), 50);
}

/// Waits until so many nodes share the shards among them, all but evenly.
async fn shared_by(scene: &Scene, nodes: i64) {
    let largest = (255 + nodes) / nodes;
    until("the shards to be shared", AMPLE, || async {
        let parts: Vec<i64> = scene.rows.parts().await;
        let all: i64 = parts.iter().sum();
        (all == 256 && parts.iter().all(|part| *part <= largest)).then_some(())
    })
    .await;
}

/// G15: a node that leaves gives back, at once, what it is not busy with.
#[tokio::test]
async fn engine_shards_of_a_node_that_leaves_are_others_before_its_last_request_has_ended() {
    let scene = Scene::begin().await;
    let slow = Reply::status(200).after(Duration::from_secs(8));
    scene.receiver.script("/hook", slow);
    scene.endpoint("/hook").await;
    let (acceptor, leaving) = scene.whole().await;
    let (_, staying) = scene.whole().await;
    shared_by(&scene, 2).await;
    acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    let left = tokio::spawn(leaving.shutdown(in_order()));
    shared_by(&scene, 1).await;
    assert!(!left.is_finished());
    left.await.unwrap();
    staying.shutdown(in_order()).await;
}

/// INV-6, G15, D18: four nodes come and go while every delivery is tried again and again; no request is made that is not
/// an attempt of its own on record.
#[tokio::test]
async fn engine_shards_change_hands_under_retries_and_nothing_is_sent_twice() {
    const FAILURES: usize = 10;
    const EVENTS: usize = 40;
    let scene = Scene::begin().await;
    for n in 0..8 {
        let path = format!("/hook/{n}");
        let slow = |status| Reply::status(status).after(Duration::from_millis(40));
        let script = Script::first(FAILURES * EVENTS, slow(500)).then(slow(200));
        scene.receiver.script(&path, script);
        let url = scene.receiver.url(&path);
        scene
            .tenants
            .endpoint_with(scene.tenant, &url, |new| {
                new.retry_policy = RetryPolicy::Schedule {
                    delays_ms: vec![700; 40],
                    jitter: Jitter::None,
                };
            })
            .await;
    }
    let (acceptor, one) = scene.whole().await;
    let mut submitted = JoinSet::new();
    for _ in 0..EVENTS {
        let (acceptor, new) = (acceptor.clone(), event(scene.tenant, "{}"));
        submitted.spawn(async move { acceptor.accept(new).await });
    }
    submitted
        .join_all()
        .await
        .into_iter()
        .for_each(|answer| assert!(answer.is_ok()));
    let (_, two) = scene.whole().await;
    let (_, three) = scene.whole().await;
    let (_, four) = scene.whole().await;
    shared_by(&scene, 4).await;
    one.shutdown(in_order()).await;
    shared_by(&scene, 3).await;
    two.shutdown(in_order()).await;
    let (_, five) = scene.whole().await;
    shared_by(&scene, 3).await;
    let all = 8 * EVENTS * (FAILURES + 1);
    until("every delivery to be resolved", 2 * AMPLE, || async {
        (scene
            .rows
            .number("SELECT count(*) FROM attempts WHERE outcome = 'success'")
            .await
            == 320)
            .then_some(())
    })
    .await;
    for node in [three, four, five] {
        node.shutdown(in_order()).await;
    }
    let lost = oracle::lost(&scene.database.pools(1, 1), 10).await.unwrap();
    let recorded = scene.rows.number("SELECT count(*) FROM attempts").await;
    assert_eq!(
        (scene.receiver.requests().len(), recorded, lost),
        (all, i64::try_from(all).unwrap(), Vec::new())
    );
}

//! Nodes side by side, and endpoints side by side: none stands in another's way.

use std::time::Duration;

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EventId, TenantId};
use posthorn_store::pending::Due;
use posthorn_store::read::event;
use posthorn_store::record::DeliveryKey;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_store::{lease, pending, shards};
use posthorn_tests::engine::{AMPLE, Node, Parts, Runs};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::until;
use sqlx::Connection as _;

use crate::engine_scene::Scene;

/// Long enough for a busy machine, and far below the 15 s that a hanging endpoint takes.
const PROMPT: Duration = Duration::from_secs(5);

/// Submits `count` events at once through a node.
pub(crate) async fn submit_all(node: &Node, tenant: TenantId, count: usize) {
    let mut submitted = tokio::task::JoinSet::new();
    for _ in 0..count {
        let acceptor = node.acceptor.clone();
        submitted.spawn(async move {
            acceptor
                .accept(posthorn_tests::engine::event(tenant, "{}"))
                .await
        });
    }
    for answer in submitted.join_all().await {
        answer.unwrap();
    }
}

/// INV-6, D18.
#[tokio::test]
async fn engine_nodes_over_one_database_send_each_delivery_once() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let (one, two) = tokio::join!(scene.node(Runs::All), scene.node(Runs::All));
    tokio::join!(
        submit_all(&one, scene.tenant, 150),
        submit_all(&two, scene.tenant, 150)
    );
    scene.receiver.wait_for("/hook", 300, AMPLE).await;
    tokio::join!(one.settled(), two.settled());
    assert_eq!(scene.receiver.requests().len(), 300);
}

/// INV-6: retries included, whichever node owns the shard.
#[tokio::test]
async fn engine_nodes_over_one_database_send_each_retry_once() {
    let scene = Scene::begin().await;
    scene.receiver.script(
        "/hook",
        Script::first(40, Reply::status(500)).then(Reply::status(200)),
    );
    scene.endpoint("/hook").await;
    let (one, two) = tokio::join!(scene.node(Runs::All), scene.node(Runs::All));
    tokio::join!(
        submit_all(&one, scene.tenant, 20),
        submit_all(&two, scene.tenant, 20)
    );
    scene.receiver.wait_for("/hook", 40, AMPLE).await;
    tokio::join!(one.settled(), two.settled());
    assert_eq!(scene.rows.travel_to_due().await, 40);
    tokio::join!(one.due.run_once(), two.due.run_once());
    tokio::join!(one.due.run_once(), two.due.run_once());
    scene.receiver.wait_for("/hook", 80, AMPLE).await;
    tokio::join!(one.settled(), two.settled());
    assert_eq!(scene.receiver.requests().len(), 80);
}

/// A hundred requests under way to receivers that do not answer, from a node with two connections.
async fn hanging(scene: &Scene) -> (Node, EventId) {
    for n in 0..100 {
        let path = format!("/hang/{n}");
        scene.receiver.script(&path, Reply::hang());
        scene.endpoint(&path).await;
    }
    let node = Node::start(scene.database.pools(2, 2), Runs::All).await;
    let id = node.accept(scene.tenant, "{}").await.id;
    for n in 0..100 {
        scene
            .receiver
            .wait_for(&format!("/hang/{n}"), 1, AMPLE)
            .await;
    }
    (node, id)
}

/// INV-7.
#[tokio::test]
async fn engine_nodes_hold_no_connection_for_a_request_under_way() {
    let scene = Scene::begin().await;
    let (node, id) = hanging(&scene).await;
    let scope = TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE);
    let read = tokio::time::timeout(PROMPT, event(&node.database, scope, id)).await;
    assert!(read.is_ok_and(|read| read.is_ok_and(|found| found.is_some())));
}

/// INV-7.
#[tokio::test]
async fn engine_nodes_accept_while_a_hundred_receivers_hang() {
    let scene = Scene::begin().await;
    let (node, _) = hanging(&scene).await;
    let accepted = tokio::time::timeout(PROMPT, node.submit(scene.tenant, "{}")).await;
    assert!(accepted.is_ok_and(|answer| answer.is_ok()));
}

/// INV-7.
#[tokio::test]
async fn engine_nodes_hold_no_transaction_open_for_a_request_under_way() {
    let scene = Scene::begin().await;
    let _held = hanging(&scene).await;
    let open = scene
        .rows
        .number(
            "SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND state = 'idle in transaction'
               AND state_change < now() - interval '1 second'",
        )
        .await;
    assert_eq!(open, 0);
}

/// Two hundred retries to receivers that hang, all under way, from a node with two connections in its pool.
async fn hanging_retries(scene: &Scene) -> Node {
    for n in 0..200 {
        let path = format!("/hang/{n}");
        scene.receiver.script(&path, Reply::hang());
        let endpoint = scene.endpoint(&path).await;
        scene
            .rows
            .fill_pending(endpoint.tenant, endpoint.id, 1)
            .await;
    }
    let node = Node::start(scene.database.pools(2, 1), Runs::WithoutLease).await;
    node.due.run_once().await;
    for n in 0..200 {
        scene
            .receiver
            .wait_for(&format!("/hang/{n}"), 1, AMPLE)
            .await;
    }
    node
}

/// INV-7: a retry's payload is read from the database, and nothing of it is held while the request is under way.
#[tokio::test]
async fn engine_nodes_hold_no_connection_for_two_hundred_retries_that_hang() {
    let scene = Scene::begin().await;
    let node = hanging_retries(&scene).await;
    let renewed = tokio::time::timeout(PROMPT, node.keeping.run_once()).await;
    let accepted = tokio::time::timeout(PROMPT, node.submit(scene.tenant, "{}")).await;
    let swept = tokio::time::timeout(PROMPT, node.due.run_once()).await;
    assert!(
        renewed.is_ok_and(|tally| tally.renewed)
            && accepted.is_ok_and(|answer| answer.is_ok())
            && swept.is_ok()
    );
}

/// INV-6, INV-7: a lease is not lost, nor an event refused, because every connection of the pool is busy.
#[tokio::test]
async fn engine_nodes_renew_and_accept_while_every_pooled_connection_waits() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = Node::start(scene.database.pools(2, 1), Runs::WithoutLease).await;
    let mut locked = scene.database.superuser().await;
    let mut tx = locked.begin().await.unwrap();
    sqlx::query("LOCK TABLE pending IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let parks = || {
        pending::park_due(
            &node.database,
            scene.tenant,
            endpoint.id,
            Why::Capacity,
            &[],
        )
    };
    let waits = async { tokio::join!(parks(), parks()) };
    let goes_on = async {
        until("two connections to wait", AMPLE, || async {
            (scene.rows.number(WAITING).await == 2).then_some(())
        })
        .await;
        let began = tokio::time::timeout(PROMPT / 2, async {
            (
                node.keeping.run_once().await,
                node.submit(scene.tenant, "{}").await,
            )
        });
        let went_on = began.await;
        drop(tx);
        went_on
    };
    let (_, went_on) = tokio::join!(waits, goes_on);
    assert!(went_on.is_ok_and(|(tally, answer)| tally.renewed && answer.is_ok()));
}

/// Connections of the program that wait for a lock.
pub(crate) const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'posthorn' AND wait_event_type = 'Lock'";

/// INV-13, D10: one event, two endpoints, and one of them hangs.
#[tokio::test]
async fn engine_nodes_deliver_to_the_sibling_of_an_endpoint_that_hangs() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hang", Reply::hang());
    scene.endpoint("/hang").await;
    scene.endpoint("/good").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    assert_eq!(scene.receiver.wait_for("/good", 1, PROMPT).await.len(), 1);
}

/// INV-13, D09: one tenant's pile before an endpoint that hangs does not delay another tenant.
#[tokio::test]
async fn engine_nodes_deliver_a_tenants_event_beside_anothers_pile() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hang", Reply::hang());
    scene.endpoint("/hang").await;
    let other = scene.tenants.tenant().await;
    scene
        .tenants
        .endpoint(other, &scene.receiver.url("/good"))
        .await;
    let node = scene.node(Runs::All).await;
    submit_all(&node, scene.tenant, 500).await;
    node.accept(other, "{}").await;
    assert_eq!(scene.receiver.wait_for("/good", 1, PROMPT).await.len(), 1);
}

/// INV-11, INV-13: no more requests at a time to one endpoint than its cap.
#[tokio::test]
async fn engine_nodes_send_no_more_than_sixteen_requests_at_a_time_to_one_endpoint() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hang", Reply::hang());
    scene.endpoint("/hang").await;
    scene.endpoint("/good").await;
    let node = scene.node(Runs::All).await;
    submit_all(&node, scene.tenant, 50).await;
    scene.receiver.wait_for("/good", 50, AMPLE).await;
    assert_eq!(scene.receiver.requests_to("/hang").len(), 16);
}

/// INV-13: a due pile of one endpoint is parked, but for what is being sent; another's single retry goes out at once.
#[tokio::test]
async fn engine_nodes_send_another_endpoints_retry_beside_a_due_pile() {
    let scene = Scene::begin().await;
    let pile = scene.endpoint("/pile").await;
    let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
    scene.receiver.script("/single", script);
    scene.endpoint("/single").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/pile", 1).await;
    scene.attempted(&node, "/single", 1).await;
    scene.receiver.script("/pile", Reply::hang());
    scene.rows.fill_pending(pile.tenant, pile.id, 2000).await;
    scene.rows.travel_to_due().await;
    // The pile fills a whole scan, and is out of the way at the next.
    node.due.run_once().await;
    node.due.run_once().await;
    assert_eq!(scene.receiver.wait_for("/single", 2, PROMPT).await.len(), 2);
}

/// INV-13: the rows that were taken stay due while the rest of their endpoint is parked.
#[tokio::test]
async fn engine_nodes_send_what_was_taken_of_a_pile_whose_rest_is_parked() {
    let scene = Scene::begin().await;
    let pile = scene.endpoint("/pile").await;
    let node = scene.node(Runs::All).await;
    scene.rows.fill_pending(pile.tenant, pile.id, 500).await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests_to("/pile").len(), 64);
}

/// INV-13: one tenant whose endpoints all hang has many more requests queued than a node has slots; a second one that
/// comes then is sent to at once.
#[tokio::test]
async fn engine_nodes_keep_slots_for_a_tenant_that_comes_after_a_flood() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hang", Reply::hang());
    for _ in 0..140 {
        scene.endpoint("/hang").await;
    }
    let other = scene.tenants.tenant().await;
    scene
        .tenants
        .endpoint(other, &scene.receiver.url("/good"))
        .await;
    let node = scene.node(Runs::All).await;
    submit_all(&node, scene.tenant, 16).await;
    // Whatever could be started has been started before so many arrive.
    scene.receiver.wait_for("/hang", 1500, AMPLE).await;
    node.accept(other, "{}").await;
    assert_eq!(scene.receiver.wait_for("/good", 1, PROMPT).await.len(), 1);
}

/// Due rows of more endpoints than one scan reads are all found at one step of the timer.
#[tokio::test]
async fn engine_nodes_find_all_that_is_due_however_much_it_is() {
    let scene = Scene::begin().await;
    for n in 0..60 {
        let endpoint = scene.endpoint(&format!("/hook/{n}")).await;
        scene
            .rows
            .fill_pending(endpoint.tenant, endpoint.id, 50)
            .await;
    }
    let node = scene.node(Runs::All).await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 3000);
}

/// INV-2: a pile that is far larger than the queues is drained to its end.
#[tokio::test]
async fn engine_nodes_drain_a_parked_pile_to_its_end() {
    let scene = Scene::begin().await;
    let pile = scene.endpoint("/pile").await;
    let node = scene.node(Runs::All).await;
    scene.rows.fill_pending(pile.tenant, pile.id, 500).await;
    node.due.run_once().await;
    node.settled().await;
    for _ in 0..16 {
        node.parking.run_once().await;
        node.settled().await;
    }
    assert_eq!(scene.rows.number("SELECT count(*) FROM pending").await, 0);
}

/// A node with one retry on record, whose stream another node has closed and which has opened the next one.
async fn reopened(scene: &Scene) -> (Node, DeliveryKey) {
    scene.receiver.script(
        "/hook",
        Script::first(1, Reply::status(500)).then(Reply::status(200)),
    );
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    let event = node.accept(scene.tenant, "{}").await.id;
    node.settled().await;
    assert_eq!(scene.rows.travel_to_due().await, 1);
    scene.rows.lapse().await;
    let stream = node.keeper.present().unwrap().id();
    assert!(lease::close_lapsed(&node.database, stream).await.unwrap());
    assert!(!node.keeping.run_once().await.renewed);
    assert_ne!(node.keeper.present().unwrap().id(), stream);
    let key = DeliveryKey {
        tenant: scene.tenant,
        endpoint: endpoint.id,
        event,
    };
    (node, key)
}

/// INV-6: a stream owns nothing before it has claimed; what the one before owned may be another's by now.
#[tokio::test]
async fn engine_nodes_look_for_nothing_due_between_a_new_stream_and_its_first_claim() {
    let scene = Scene::begin().await;
    let (node, _) = reopened(&scene).await;
    assert_eq!(node.due.run_once().await, 0);
    node.recovery.run_once().await;
    assert!(node.keeping.run_once().await.renewed);
    node.due.run_once().await;
    scene.receiver.wait_for("/hook", 2, AMPLE).await;
}

/// INV-6: rows that were queued before the stream was closed.
#[tokio::test]
async fn engine_nodes_send_no_queued_row_of_a_shard_that_is_no_longer_theirs() {
    let scene = Scene::begin().await;
    let (node, key) = reopened(&scene).await;
    let due = Due {
        key,
        n: 2,
        due: Some(key.event.minted_at()),
    };
    node.dispatcher.offer(&[due]);
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 1);
}

/// INV-6: nodes that start at the same moment do not both believe that a shard is theirs.
#[tokio::test]
async fn engine_nodes_that_start_together_share_no_shard() {
    let scene = Scene::begin().await;
    let (one, two) = tokio::join!(
        Parts::open(scene.database.pools(2, 1)),
        Parts::open(scene.database.pools(2, 1))
    );
    let streams = [&one, &two].map(|node| node.keeper.present().unwrap().id());
    let mut shared = 0;
    for _ in 0..20 {
        scene.rows.run("UPDATE shards SET owner = NULL").await;
        let (first, second) = tokio::join!(
            shards::take(&one.database, streams[0]),
            shards::take(&two.database, streams[1])
        );
        let second = second.unwrap().owned;
        shared += first
            .unwrap()
            .owned
            .iter()
            .filter(|shard| second.contains(shard))
            .count();
    }
    assert_eq!(shared, 0);
}

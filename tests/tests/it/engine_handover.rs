//! Hand-over: an endpoint with a strict limit is sent to by the owner of its shard, whichever node accepted the event.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use posthorn_domain::delivery::Why;
use posthorn_domain::id::EventId;
use posthorn_store::clock::Clock;
use posthorn_store::oracle;
use posthorn_store::record::{Fact, Parked, RecordWriter};
use posthorn_store::stream::Sending;
use posthorn_tests::engine::{AMPLE, Node, Runs, event, in_order};
use posthorn_tests::proxy::{Loss, Lost};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::rows::delivery;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;
use posthorn_worker::{Recorder, Unrecorded};
use tokio::task::JoinSet;

use crate::engine_scene::Scene;

/// A strict endpoint in the upper half of the shards: of two nodes that of the second.
async fn strict(scene: &Scene, path: &str) -> TestEndpoint {
    loop {
        let url = scene.receiver.url(path);
        let made = scene
            .tenants
            .endpoint_with(scene.tenant, &url, |new| new.max_in_flight = Some(16))
            .await;
        if made.id.shard() >= 128 {
            return made;
        }
        scene.tenants.delete(&made).await;
    }
}

/// Two nodes that know each other: the first owns the lower half of the shards, the second the upper.
async fn halves(scene: &Scene) -> (Node, Node) {
    let one = scene.node(Runs::WithoutLease).await;
    let two = scene.node(Runs::WithoutLease).await;
    one.keeping.run_once().await;
    two.keeping.run_once().await;
    assert_eq!(
        (one.shards.owned().len(), two.shards.owned().len()),
        (128, 128)
    );
    (one, two)
}

/// Whether the node that accepted has nothing open.
fn nothing_open(node: &Node) -> bool {
    node.keeper.present().unwrap().open().is_empty()
}

/// INV-6: the flush writes the row, and the node that accepted holds nothing.
#[tokio::test]
async fn engine_handover_of_a_strict_endpoint_is_written_with_its_event() {
    let scene = Scene::begin().await;
    let endpoint = strict(&scene, "/hook").await;
    let (one, _two) = halves(&scene).await;
    let event = one.accept(scene.tenant, "{}").await;
    let row = scene
        .rows
        .pending(delivery(scene.tenant, endpoint.id, event.id));
    let row = row.await.unwrap();
    assert_eq!(
        (
            row.why.as_str(),
            row.due.is_some(),
            row.n,
            event.deliveries_count
        ),
        ("handover", true, 1, 1)
    );
    assert!(nothing_open(&one) && one.dispatcher.load() == (0, 0));
}

/// INV-6: sent by its home alone, once.
#[tokio::test]
async fn engine_handover_is_sent_by_its_home_once() {
    let scene = Scene::begin().await;
    let endpoint = strict(&scene, "/hook").await;
    let (one, two) = halves(&scene).await;
    let event = one.accept(scene.tenant, "{}").await;
    one.due.run_once().await;
    assert_eq!(scene.receiver.requests().len(), 0);
    two.due.run_once().await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    two.settled().await;
    let key = delivery(scene.tenant, endpoint.id, event.id);
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
    assert_eq!(scene.rows.pending(key).await, None);
}

/// A usual endpoint of the same event is sent to by the node that accepted.
#[tokio::test]
async fn engine_handover_keeps_the_usual_endpoints_of_an_event() {
    let scene = Scene::begin().await;
    strict(&scene, "/strict").await;
    scene.endpoint("/usual").await;
    let (one, _two) = halves(&scene).await;
    one.accept(scene.tenant, "{}").await;
    scene.receiver.wait_for("/usual", 1, AMPLE).await;
    one.settled().await;
    assert_eq!(scene.receiver.requests().len(), 1);
    assert!(nothing_open(&one));
}

/// The home's own events of a strict endpoint go straight from memory.
#[tokio::test]
async fn engine_handover_is_none_at_home() {
    let scene = Scene::begin().await;
    strict(&scene, "/hook").await;
    let (_one, two) = halves(&scene).await;
    two.accept(scene.tenant, "{}").await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
}

/// INV-2: recovery of the stream that handed over finds nothing left, however far its home has come.
#[tokio::test]
async fn engine_handover_is_not_recovered_once_more() {
    let scene = Scene::begin().await;
    strict(&scene, "/hook").await;
    let (one, two) = halves(&scene).await;
    one.accept(scene.tenant, "{}").await;
    two.due.run_once().await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    two.settled().await;
    one.accept(scene.tenant, "{}").await;
    scene
        .close_as_another(one.keeper.present().unwrap().id())
        .await;
    two.recovery.run_once().await;
    let rows = scene.rows.number("SELECT count(*) FROM pending").await;
    let lost = oracle::lost(&two.database, 10).await.unwrap();
    assert_eq!((rows, lost), (1, Vec::new()));
}

/// INV-2, INV-6: the answer of the flush is lost, and nobody knows what it wrote: each delivery is made once all the same.
#[tokio::test]
async fn engine_handover_is_made_once_though_the_answer_of_its_flush_was_lost() {
    let scene = Scene::begin().await;
    let endpoint = strict(&scene, "/strict").await;
    scene.endpoint("/usual").await;
    let proxy = scene.database.proxy().await;
    let one = Node::start(scene.database.pools_through(&proxy), Runs::WithoutLease).await;
    let two = scene.node(Runs::WithoutLease).await;
    one.keeping.run_once().await;
    two.keeping.run_once().await;
    proxy.lose(Loss {
        marker: "needle-7f3a".into(),
        request: "".into(),
        lost: Lost::Answer,
    });
    let event = one.accept(scene.tenant, "\"needle-7f3a\"").await;
    scene.receiver.wait_for("/usual", 1, AMPLE).await;
    one.settled().await;
    until("nothing to be open", AMPLE, || async {
        nothing_open(&one).then_some(())
    })
    .await;
    two.due.run_once().await;
    scene.receiver.wait_for("/strict", 1, AMPLE).await;
    two.settled().await;
    two.due.run_once().await;
    two.settled().await;
    let key = delivery(scene.tenant, endpoint.id, event.id);
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
    assert_eq!(
        (event.deliveries_count, scene.receiver.requests().len()),
        (2, 2)
    );
}

/// INV-6: a hand-over that is doubted sets nothing free that its home has under way meanwhile.
#[tokio::test]
async fn engine_handover_that_is_doubted_leaves_what_is_under_way_held() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::hang());
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    scene
        .rows
        .fill_pending(endpoint.tenant, endpoint.id, 1)
        .await;
    node.due.run_once().await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    let event = EventId::from_uuid(scene.rows.events().await[0].id);
    let clock = Clock::start();
    let fact = Fact::Parked {
        key: delivery(scene.tenant, endpoint.id, event),
        parked: Parked {
            why: Why::Handover,
            due: true,
            ends_at: clock.now() + TimeDelta::days(1),
        },
    };
    let writer = RecordWriter::new(node.database.clone());
    let (recorder, recording) = Recorder::new(writer, Arc::clone(&node.dispatcher), clock);
    let doubted = Unrecorded {
        fact,
        fresh: None,
        place: None,
        held: true,
    };
    recorder.record(doubted.unheld()).await;
    drop(recorder);
    recording.run().await;
    assert_eq!(node.dispatcher.load(), (1, 1));
}

/// INV-6: what is queued at home for a strict endpoint goes with its shard.
#[tokio::test]
async fn engine_handover_of_what_is_queued_goes_with_its_shard() {
    let scene = Scene::begin().await;
    strict(&scene, "/hook").await;
    let slow = Reply::status(200).after(Duration::from_secs(2));
    let script = Script::first(16, slow).then(Reply::status(200));
    scene.receiver.script("/hook", script);
    let one = scene.node(Runs::WithoutLease).await;
    let two = scene.node(Runs::WithoutLease).await;
    for _ in 0..20 {
        one.accept(scene.tenant, "{}").await;
    }
    scene.receiver.wait_for("/hook", 16, AMPLE).await;
    one.keeping.run_once().await;
    one.settled().await;
    let handed = scene
        .rows
        .number("SELECT count(*) FROM pending WHERE why = 'handover' AND due IS NOT NULL")
        .await;
    assert_eq!(handed, 4);
    one.keeping.run_once().await;
    two.keeping.run_once().await;
    two.due.run_once().await;
    scene.receiver.wait_for("/hook", 20, AMPLE).await;
    two.settled().await;
    assert_eq!(scene.receiver.requests().len(), 20);
}

/// INV-6: a shard that is lost between match and sending: asked for again at the last moment.
#[tokio::test]
async fn engine_handover_asks_whose_a_delivery_is_when_it_is_sent() {
    let scene = Scene::begin().await;
    strict(&scene, "/hook").await;
    let slow = Reply::status(200).after(Duration::from_secs(1));
    scene.receiver.script("/hook", slow);
    let one = scene.node(Runs::WithoutLease).await;
    for _ in 0..20 {
        one.accept(scene.tenant, "{}").await;
    }
    scene.receiver.wait_for("/hook", 16, AMPLE).await;
    let stream = one.keeper.present().unwrap().id();
    assert!(one.shards.keep(stream, Vec::new()));
    one.settled().await;
    let handed = scene
        .rows
        .number("SELECT count(*) FROM pending WHERE why = 'handover' AND due IS NOT NULL")
        .await;
    assert_eq!((handed, scene.receiver.requests().len()), (4, 16));
}

/// A node with the api role alone hands everything over, and owns nothing.
#[tokio::test]
async fn engine_handover_of_a_node_that_does_not_send_is_everything() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let accepting = Node::start_accepting(scene.database.pools(4, 2)).await;
    let sending = scene.node(Runs::WithoutLease).await;
    accepting.accept(scene.tenant, "{}").await;
    assert!(nothing_open(&accepting));
    sending.due.run_once().await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    accepting.keeping.run_once().await;
    sending.keeping.run_once().await;
    assert_eq!(
        (accepting.shards.owned().len(), sending.shards.owned().len()),
        (0, 256)
    );
}

/// INV-11: an event for more endpoints than one flush hands over is accepted, and all of them are in `pending`.
#[tokio::test]
async fn engine_handover_beyond_the_bound_of_a_flush_follows_it() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    scene.rows.multiply_endpoint(endpoint.id, 5_499).await;
    let accepting = Node::start_accepting(scene.database.pools(4, 2)).await;
    assert_eq!(accepting.keeper.sending(), Sending::Elsewhere);
    let event = accepting.accept(scene.tenant, "{}").await;
    until("nothing to be open", AMPLE, || async {
        nothing_open(&accepting).then_some(())
    })
    .await;
    let handed = scene
        .rows
        .number("SELECT count(*) FROM pending WHERE why = 'handover' AND due IS NOT NULL")
        .await;
    assert_eq!((event.deliveries_count, handed), (5_500, 5_500));
}

/// INV-2: what a node has queued of a stream that another closed is recovery's.
#[tokio::test]
async fn engine_handover_to_recovery_leaves_nothing_queued() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::hang());
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    for _ in 0..20 {
        node.accept(scene.tenant, "{}").await;
    }
    scene.receiver.wait_for("/hook", 16, AMPLE).await;
    scene
        .close_as_another(node.keeper.present().unwrap().id())
        .await;
    node.keeping.run_once().await;
    until("the queue to be empty", AMPLE, || async {
        (node.dispatcher.load() == (16, 16)).then_some(())
    })
    .await;
}

/// INV-6, D18: without faults, four nodes make one request of each delivery, whether it is handed over or not.
#[tokio::test]
async fn engine_handover_among_four_nodes_makes_one_request_of_each_delivery() {
    /// Half of them for a strict endpoint.
    const EVENTS_PER_NODE: usize = 500;
    let scene = Scene::begin().await;
    strict(&scene, "/strict").await;
    let other = scene.tenants.tenant().await;
    let url = scene.receiver.url("/usual");
    scene.tenants.endpoint(other, &url).await;
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(scene.whole().await);
    }
    let mut submitting = JoinSet::new();
    for (acceptor, _) in &nodes {
        for n in 0..EVENTS_PER_NODE {
            let tenant = if n % 2 == 0 { scene.tenant } else { other };
            let (acceptor, new) = (acceptor.clone(), event(tenant, "{}"));
            submitting.spawn(async move { acceptor.accept(new).await });
        }
    }
    for answer in submitting.join_all().await {
        answer.unwrap();
    }
    let all = i64::try_from(4 * EVENTS_PER_NODE).unwrap();
    until("every delivery to be made", 4 * AMPLE, || async {
        let made = "SELECT count(*) FROM attempts WHERE outcome = 'success'";
        (scene.rows.number(made).await == all).then_some(())
    })
    .await;
    for (_, worker) in nodes {
        worker.shutdown(in_order()).await;
    }
    let requests = scene.receiver.map(|_| ()).len();
    assert_eq!(requests, 4 * EVENTS_PER_NODE);
}

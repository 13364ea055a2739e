//! Accept against a real database: durable before the answer, whatever happens to the connection.

use std::time::Duration;

use futures_util::future::join_all;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::limits;
use posthorn_store::accept::AcceptError;
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::proxy::{Fate, Loss, Lost, Way};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

/// INV-1.
#[tokio::test]
async fn engine_accept_answers_when_the_event_is_in_the_log_with_its_endpoints() {
    let scene = Scene::begin().await;
    let wanting = scene.endpoint("/wanting").await;
    scene
        .tenants
        .endpoint_with(scene.tenant, &scene.receiver.url("/other"), |new| {
            new.event_types = vec![EventTypePattern::parse("order.refunded").unwrap()];
        })
        .await;
    let node = scene.node(Runs::AcceptOnly).await;
    let accepted = node.accept(scene.tenant, "{}").await;
    let stored = scene.rows.events().await;
    assert_eq!(
        stored
            .into_iter()
            .map(|row| (row.id, row.endpoints))
            .collect::<Vec<_>>(),
        [(accepted.id.uuid(), vec![wanting.id.uuid()])]
    );
}

/// INV-1, INV-3.
#[tokio::test]
async fn engine_accept_stores_the_payload_byte_for_byte() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let payload = "{\"b\":1.0, \"a\":\"\\ud800\\u0000\",\"a\":1e400}\n";
    node.accept(scene.tenant, payload).await;
    assert_eq!(scene.rows.events().await[0].payload, payload.as_bytes());
}

/// Submits until a caller is turned away at once. Callers who are not are left behind: their rows stay in the queue.
async fn turned_away(node: &Node, scene: &Scene) -> AcceptError {
    until("a caller to be turned away", AMPLE, || async {
        let asking = node.submit(scene.tenant, "\"left behind\"");
        match tokio::time::timeout(Duration::from_millis(100), asking).await {
            Ok(answer) => answer.err(),
            Err(_) => None,
        }
    })
    .await
}

/// INV-1.
#[tokio::test]
async fn engine_accept_turns_callers_away_while_the_database_is_away() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.set(Way::Cut);
    assert_eq!(turned_away(&node, &scene).await, AcceptError::Unavailable);
}

/// INV-1, INV-2.
#[tokio::test]
async fn engine_accept_answers_a_caller_whose_flush_met_a_lost_database_when_it_is_back() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    node.accept(scene.tenant, "\"before\"").await;
    proxy.set(Way::Cut);
    let (asked, ()) = tokio::join!(node.submit(scene.tenant, "\"asked\""), async {
        turned_away(&node, &scene).await;
        proxy.set(Way::Open);
    });
    let id = asked.unwrap().id.uuid();
    let stored = scene.rows.events().await;
    assert_eq!(stored.iter().filter(|row| row.id == id).count(), 1);
}

/// INV-1: the answer of the flush is lost, the event is not, and its caller hears of it.
#[tokio::test]
async fn engine_accept_writes_an_event_once_though_the_answer_of_its_flush_was_lost() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-7f3a".into(),
        request: "".into(),
        lost: Lost::Answer,
    });
    let (accepted, ()) = tokio::join!(node.accept(scene.tenant, "\"needle-7f3a\""), proxy.lost(1));
    let stored: Vec<_> = scene.rows.events().await;
    assert_eq!(
        stored.iter().map(|row| row.id).collect::<Vec<_>>(),
        [accepted.id.uuid()]
    );
}

/// INV-2.
#[tokio::test]
async fn engine_accept_delivers_an_event_once_though_the_answer_of_its_flush_was_lost() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-7f3a".into(),
        request: "".into(),
        lost: Lost::Answer,
    });
    node.accept(scene.tenant, "\"needle-7f3a\"").await;
    let requests = scene.receiver.wait_for("/hook", 1, AMPLE).await;
    node.settled().await;
    assert!(requests.len() == 1 && endpoint.signed(&requests[0]));
}

/// INV-1: the flush itself never arrived.
#[tokio::test]
async fn engine_accept_writes_an_event_once_though_its_flush_was_lost_on_the_way() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-7f3a".into(),
        request: "".into(),
        lost: Lost::Request,
    });
    let accepted = node.accept(scene.tenant, "\"needle-7f3a\"").await;
    let stored: Vec<_> = scene.rows.events().await;
    assert_eq!(
        stored.iter().map(|row| row.id).collect::<Vec<_>>(),
        [accepted.id.uuid()]
    );
}

/// INV-1: the batcher's own backend is ended again and again; whoever was answered is in the log, once.
#[tokio::test]
async fn engine_accept_keeps_every_answered_event_while_its_connections_are_terminated() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::All).await;
    let mut accepted = Vec::new();
    for round in 0..40 {
        let ending = async {
            if round % 4 == 0 {
                scene.rows.number(TERMINATE).await;
            }
        };
        let (answer, ()) = tokio::join!(node.submit(scene.tenant, "{}"), ending);
        accepted.extend(answer.ok().map(|accepted| accepted.id.uuid()));
    }
    let stored: Vec<_> = scene.rows.events().await;
    let lost = accepted
        .iter()
        .filter(|id| !stored.iter().any(|row| row.id == **id))
        .count();
    assert_eq!((lost, accepted.is_empty()), (0, false));
}

/// Ends the backends whose last statement was a flush.
const TERMINATE: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
     WHERE datname = current_database() AND query LIKE '%INSERT INTO events%' AND pid <> pg_backend_pid()";

/// INV-12: this node's configuration is not polled, so it is older than the change.
#[tokio::test]
async fn engine_accept_matches_again_what_a_new_endpoint_overtook() {
    let scene = Scene::begin().await;
    let old = scene.endpoint("/old").await;
    let node = scene.node(Runs::AcceptOnly).await;
    let new = scene.endpoint("/new").await;
    node.accept(scene.tenant, "{}").await;
    let mut wanted = [old.id.uuid(), new.id.uuid()];
    wanted.sort();
    assert_eq!(scene.rows.events().await[0].endpoints, wanted);
}

/// INV-12.
#[tokio::test]
async fn engine_accept_does_not_match_an_endpoint_that_was_disabled_through_another_node() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene.tenants.set(&endpoint, EndpointState::Disabled).await;
    let accepted = node.accept(scene.tenant, "{}").await;
    assert_eq!(accepted.deliveries_count, 0);
}

/// INV-12.
#[tokio::test]
async fn engine_accept_does_not_match_an_endpoint_that_was_deleted_through_another_node() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene.tenants.delete(&endpoint).await;
    node.accept(scene.tenant, "{}").await;
    assert!(scene.rows.events().await[0].endpoints.is_empty());
}

/// INV-11: one connection that fails, while nobody else has anything to flush, refuses nobody for longer than it takes to make
/// the next.
#[tokio::test]
async fn engine_accept_goes_on_after_the_second_flush_found_no_connection() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::AcceptOnly).await;
    node.accept(scene.tenant, "{}").await;
    proxy.decide_newcomers(Fate::Silent);
    let crowd = (0..3 * limits::FLUSH_COMPANY).map(|_| node.submit(scene.tenant, "{}"));
    let refused = join_all(crowd)
        .await
        .iter()
        .filter(|answer| answer.is_err())
        .count();
    assert!(refused >= limits::FLUSH_COMPANY, "{refused}");
    proxy.decide_newcomers(Fate::Pass);
    until("events to be accepted again", AMPLE, || async {
        node.submit(scene.tenant, "{}").await.ok()
    })
    .await;
}

//! What an endpoint's state means for the deliveries that wait for it: parked, drained, cancelled, dead.

use posthorn_domain::endpoint::EndpointState;
use posthorn_store::record::DeliveryKey;
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

impl Scene {
    /// Changes an endpoint's state, and this node hears of it.
    async fn set_state(&self, node: &Node, endpoint: &TestEndpoint, state: EndpointState) {
        self.tenants.set(endpoint, state).await;
        node.cache.refresh().await.unwrap();
    }

    /// A delivery to an endpoint that is paused, once it is parked.
    async fn parked(&self) -> (Node, TestEndpoint, DeliveryKey) {
        let endpoint = self.endpoint("/hook").await;
        self.tenants.set(&endpoint, EndpointState::Paused).await;
        let node = self.node(Runs::All).await;
        let key = self.key(&endpoint, node.accept(self.tenant, "{}").await.id);
        until("the delivery to be parked", AMPLE, || async {
            self.rows.pending(key).await
        })
        .await;
        node.settled().await;
        (node, endpoint, key)
    }
}

/// A paused endpoint is matched, and not sent to.
#[tokio::test]
async fn engine_states_parks_what_comes_for_a_paused_endpoint() {
    let scene = Scene::begin().await;
    let (_node, _endpoint, key) = scene.parked().await;
    let row = scene.rows.pending(key).await.unwrap();
    assert_eq!((row.due, row.why.as_str()), (None, "paused"));
}

/// INV-12.
#[tokio::test]
async fn engine_states_sends_nothing_to_a_paused_endpoint() {
    let scene = Scene::begin().await;
    let (node, ..) = scene.parked().await;
    node.parking.run_once().await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 0);
}

/// D22.
#[tokio::test]
async fn engine_states_drains_what_was_parked_when_the_endpoint_is_enabled_again() {
    let scene = Scene::begin().await;
    let (node, endpoint, key) = scene.parked().await;
    scene
        .set_state(&node, &endpoint, EndpointState::Enabled)
        .await;
    node.parking.run_once().await;
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
}

/// D22: what waits for a disabled endpoint is kept until its end, and not sent.
#[tokio::test]
async fn engine_states_keeps_what_waits_for_an_endpoint_that_a_person_disabled() {
    let scene = Scene::begin().await;
    let (node, endpoint, key) = scene.parked().await;
    scene
        .set_state(&node, &endpoint, EndpointState::Disabled)
        .await;
    node.parking.run_once().await;
    node.settled().await;
    let kept = scene.rows.pending(key).await.is_some();
    assert_eq!((kept, scene.receiver.requests().len()), (true, 0));
}

/// INV-12, D22: retries that were due already stop with the endpoint.
#[tokio::test]
async fn engine_states_sends_no_due_retry_to_a_disabled_endpoint() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::status(500));
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    scene
        .set_state(&node, &endpoint, EndpointState::Disabled)
        .await;
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 1);
}

/// INV-2, D24.
#[tokio::test]
async fn engine_states_cancels_what_was_parked_for_a_deleted_endpoint() {
    let scene = Scene::begin().await;
    let (node, endpoint, key) = scene.parked().await;
    scene.tenants.delete(&endpoint).await;
    node.cache.refresh().await.unwrap();
    node.parking.run_once().await;
    let ended = (
        scene.rows.outcomes(key).await,
        scene.rows.pending(key).await,
    );
    assert_eq!(ended, (vec!["cancelled".to_owned()], None));
}

/// INV-12, D24: with a retry due.
#[tokio::test]
async fn engine_states_cancels_a_due_retry_of_a_deleted_endpoint_without_a_request() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::status(500));
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    scene.attempted(&node, "/hook", 1).await;
    scene.tenants.delete(&endpoint).await;
    node.cache.refresh().await.unwrap();
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    node.settled().await;
    let outcomes = scene.rows.outcomes(key).await;
    assert_eq!(
        (outcomes.join(" ").as_str(), scene.receiver.requests().len()),
        ("failed cancelled", 1)
    );
}

/// INV-2: ended only on the word of the endpoint's own row, never because a node has not heard of it.
#[tokio::test]
async fn engine_states_keeps_the_row_of_an_endpoint_that_this_node_has_not_heard_of() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::All).await;
    let endpoint = scene.endpoint("/hook").await;
    scene
        .rows
        .fill_pending(endpoint.tenant, endpoint.id, 1)
        .await;
    node.due.run_once().await;
    node.settled().await;
    let waiting = scene.rows.number("SELECT count(*) FROM pending").await;
    assert_eq!((waiting, scene.receiver.requests().len()), (1, 0));
}

/// An endpoint that answers 410 to one delivery while a sibling of it waits for its retry.
async fn gone(scene: &Scene) -> (Node, TestEndpoint, [DeliveryKey; 2]) {
    let script = Script::first(1, Reply::status(500)).then(Reply::status(410));
    scene.receiver.script("/hook", script);
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    let waiting = node.accept(scene.tenant, "1").await.id;
    scene.attempted(&node, "/hook", 1).await;
    let told = node.accept(scene.tenant, "2").await.id;
    scene.attempted(&node, "/hook", 2).await;
    let keys = [scene.key(&endpoint, told), scene.key(&endpoint, waiting)];
    (node, endpoint, keys)
}

/// C08.
#[tokio::test]
async fn engine_states_disables_an_endpoint_that_answers_410_with_the_cause_gone() {
    let scene = Scene::begin().await;
    let _gone = gone(&scene).await;
    let disabled = scene
        .rows
        .number("SELECT count(*) FROM endpoints WHERE state = 'disabled' AND state_cause = 'gone'")
        .await;
    assert_eq!(disabled, 1);
}

/// C08: the delivery that was told.
#[tokio::test]
async fn engine_states_lays_the_delivery_that_was_answered_410_in_the_dead_letters() {
    let scene = Scene::begin().await;
    let (_node, _endpoint, [told, _]) = gone(&scene).await;
    assert_eq!(scene.rows.dead_letter(told).await.unwrap().cause, "gone");
}

/// C08, INV-2: those that waited end by verdict, without a request.
#[tokio::test]
async fn engine_states_ends_what_waits_for_an_endpoint_that_is_gone_by_verdict() {
    let scene = Scene::begin().await;
    let (node, _endpoint, [_, waiting]) = gone(&scene).await;
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    node.settled().await;
    node.parking.run_once().await;
    let outcomes = scene.rows.outcomes(waiting).await;
    assert_eq!(
        (outcomes.join(" ").as_str(), scene.receiver.requests().len()),
        ("failed dead_gone", 2)
    );
}

/// INV-12: nothing more is matched with it.
#[tokio::test]
async fn engine_states_matches_no_event_with_an_endpoint_that_is_gone() {
    let scene = Scene::begin().await;
    let (node, ..) = gone(&scene).await;
    let accepted = node.accept(scene.tenant, "3").await;
    assert_eq!(accepted.deliveries_count, 0);
}

/// INV-2: parked has an end, too.
#[tokio::test]
async fn engine_states_expires_what_stays_parked_until_its_end() {
    let scene = Scene::begin().await;
    let (node, _endpoint, key) = scene.parked().await;
    scene
        .rows
        .run("UPDATE pending SET ends_at = now() - interval '1 second'")
        .await;
    node.parking.run_once().await;
    assert_eq!(scene.rows.dead_letter(key).await.unwrap().cause, "expired");
}

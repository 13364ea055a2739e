//! Pace: a receiver that refuses a part of what it is sent is sent what it takes (D08).

use posthorn_tests::engine::{AMPLE, Runs, event, in_order};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

const PENDING: &str = "SELECT count(*) FROM pending";
const REFUSED: &str = "SELECT count(*) FROM attempts WHERE status = 429";

impl Scene {
    /// An endpoint that takes so many in any second and answers the others by this, with a parked pile of so many.
    async fn pile_before_a_limit(&self, per_second: usize, over: Reply, pile: u32) {
        let script = Script::always(Reply::status(200)).at_most(per_second, over);
        self.receiver.script("/hook", script);
        let endpoint = self.endpoint("/hook").await;
        self.rows.fill_pending(self.tenant, endpoint.id, pile).await;
        self.rows
            .run("UPDATE pending SET due = NULL, why = 'circuit'")
            .await;
    }

    /// Waits until nothing is pending; what failed is retried without waiting for its time.
    async fn all_sent(&self) {
        until("the pile to be gone", 3 * AMPLE, || async {
            self.rows.travel_to_due().await;
            (self.rows.number(PENDING).await == 0).then_some(())
        })
        .await;
    }
}

/// D08, INV-2, INV-13: a pile, and a limit that the receiver does not tell of. Everything arrives, most of it at the first attempt,
/// and an event that comes later is not behind the pile.
#[tokio::test]
async fn engine_pace_sends_a_pile_at_what_its_receiver_takes_and_fresh_events_beside_it() {
    let scene = Scene::begin().await;
    scene.pile_before_a_limit(40, Reply::status(429), 300).await;
    let (acceptor, worker) = scene.whole().await;
    scene.receiver.wait_for("/hook", 60, AMPLE).await;
    let id = acceptor.accept(event(scene.tenant, "{}")).await.unwrap().id;
    scene.all_sent().await;
    let (all, refused) = (
        scene.receiver.requests().len(),
        scene.rows.number(REFUSED).await,
    );
    let delivered = "SELECT count(*) FROM attempts WHERE outcome = 'success'";
    assert_eq!(scene.rows.number(delivered).await, 301);
    assert!(
        2 * refused <= i64::try_from(all).unwrap(),
        "{refused} of {all}"
    );
    let id = id.to_string();
    let came = scene
        .receiver
        .map(|request| request.header("webhook-id") == Some(&id));
    let before = came.iter().position(|is_it| *is_it).unwrap();
    assert!(before < 200, "{before} went out before it");
    worker.shutdown(in_order()).await;
}

/// D08: the same where the receiver says when to come again: that holds on every node, and what comes after it is a ramp.
#[tokio::test]
async fn engine_pace_begins_with_one_request_after_a_floor_on_every_node() {
    let scene = Scene::begin().await;
    let busy = Reply::status(429).header("retry-after", "1");
    scene.pile_before_a_limit(40, busy, 150).await;
    let nodes = [scene.whole().await, scene.whole().await];
    scene.all_sent().await;
    let refused = scene.rows.number(REFUSED).await;
    // The first that come while 40 are taken, and one or two at each further floor.
    assert!(refused <= 48, "{refused} were refused");
    assert!(refused > 0);
    for (_, worker) in nodes {
        worker.shutdown(in_order()).await;
    }
}

/// INV-13: after a floor there is one request, and not as many as may be under way.
#[tokio::test]
async fn engine_pace_sends_one_request_when_a_floor_is_over() {
    let scene = Scene::begin().await;
    let busy = Reply::status(429).header("retry-after", "3600");
    let script = Script::first(1, busy).then(Reply::hang());
    scene.receiver.script("/hook", script);
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    for n in 0..20 {
        node.accept(scene.tenant, n.to_string()).await;
    }
    let parked = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'retry_after'";
    until("the others to be parked", AMPLE, || async {
        (scene.rows.number(parked).await == 20).then_some(())
    })
    .await;
    node.settled().await;
    scene
        .rows
        .run("UPDATE endpoint_state SET retry_after = now() - interval '1 second', changed_at = now()")
        .await;
    node.health.refresh().await.unwrap();
    node.parking.run_once().await;
    scene.receiver.wait_for("/hook", 2, AMPLE).await;
    let (under_way, _) = node.dispatcher.load();
    assert!(under_way <= 2, "{under_way}");
}

//! Endpoints that are not well: circuits, floors that a receiver asked for, and those that Posthorn disables (D08, D30).

use chrono::TimeDelta;
use posthorn_domain::delivery::ErrorKind;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::event_type::EventType;
use posthorn_domain::url::EndpointUrl;
use posthorn_store::configure::EndpointPatch;
use posthorn_store::entropy::Entropy;
use posthorn_store::read::{self, EndpointRef, HealthStatus};
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_store::test_send::{TestSend, TestSends};
use posthorn_tests::engine::{AMPLE, Node, Runs, egress};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;
use posthorn_worker::{TestSender, TestSenderParts};
use tokio_util::sync::CancellationToken;

use crate::engine_scene::Scene;

/// Every endpoint's circuit is open, and its next probe due.
const OPEN: &str = "INSERT INTO endpoint_state
         (tenant_id, endpoint_id, revision, circuit, opened_at, failures, first_failed_at, probes, next_probe_at)
     SELECT tenant_id, id, 1, 'open', now() - interval '1 minute', 10, now() - interval '2 minutes', 0, now() FROM endpoints";

/// The next probe of every circuit is due.
const PROBE_NOW: &str =
    "UPDATE endpoint_state SET next_probe_at = now(), changed_at = now() WHERE circuit = 'open'";

impl Scene {
    /// A node, and an endpoint that answers by this script and whose circuit is open, with so many deliveries parked for it.
    async fn broken(&self, script: impl Into<Script>, parked: u32) -> (Node, TestEndpoint) {
        self.receiver.script("/hook", script);
        let url = self.receiver.url("/hook");
        let endpoint = self
            .tenants
            .endpoint_with(self.tenant, &url, |new| new.max_in_flight = Some(2))
            .await;
        self.rows.run(OPEN).await;
        let node = self.node(Runs::All).await;
        for n in 0..parked {
            node.accept(self.tenant, n.to_string()).await;
        }
        self.parked_for("circuit", parked).await;
        node.settled().await;
        (node, endpoint)
    }

    async fn parked_for(&self, why: &str, count: u32) {
        until("deliveries to be parked", AMPLE, || async {
            let parked = match why {
                "circuit" => "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'circuit'",
                _ => "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'retry_after'",
            };
            (self.rows.number(parked).await == i64::from(count)).then_some(())
        })
        .await;
    }

    /// How many circuits are open, on their way back, and closed.
    async fn circuits(&self) -> [i64; 3] {
        [
            self.rows
                .number("SELECT count(*) FROM endpoint_state WHERE circuit = 'open'")
                .await,
            self.rows
                .number("SELECT count(*) FROM endpoint_state WHERE circuit = 'ramping'")
                .await,
            self.rows
                .number("SELECT count(*) FROM endpoint_state WHERE circuit = 'closed'")
                .await,
        ]
    }

    /// The sweep has a probe made, which is the `n`th request.
    async fn probe(&self, node: &Node, n: usize) {
        self.rows.run(PROBE_NOW).await;
        node.health.refresh().await.unwrap();
        node.parking.run_once().await;
        self.attempted(node, "/hook", n).await;
    }
}

/// INV-13: ten failures of more than two events in more than a minute; then nothing more is sent.
#[tokio::test]
async fn engine_circuit_opens_and_what_comes_is_parked() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::status(500));
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    for n in 1..10 {
        node.accept(scene.tenant, "{}").await;
        scene.attempted(&node, "/hook", n).await;
        node.keeping.run_once().await;
    }
    assert_eq!(scene.circuits().await, [0, 0, 0]);
    let later = node.clock.now() + TimeDelta::seconds(70);
    node.clock.observe(later, node.clock.monotonic());
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 10).await;
    assert_eq!(scene.circuits().await, [1, 0, 0]);
    node.accept(scene.tenant, "{}").await;
    scene.parked_for("circuit", 1).await;
    assert_eq!(scene.receiver.requests().len(), 10);
}

/// A test counts neither as a failure nor as the success that keeps a circuit closed.
#[tokio::test]
async fn engine_circuit_is_not_moved_by_tests() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    let (tests, asked) = TestSends::new();
    let tester = TestSender::new(TestSenderParts {
        database: node.database.clone(),
        cache: node.cache.clone(),
        egress: egress(),
        clock: node.clock.clone(),
        entropy: Entropy,
    });
    tokio::spawn(tester.run(asked, CancellationToken::new()));
    let tested = async |status| {
        scene.receiver.script("/hook", Reply::status(status));
        let test = TestSend {
            scope: TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE),
            endpoint: endpoint.id,
            event_type: EventType::parse("a").unwrap(),
            payload: "1".into(),
        };
        tests.send(test).await.unwrap();
        scene.receiver.script("/hook", Reply::status(500));
    };
    scene.receiver.script("/hook", Reply::status(500));
    for n in 1..10 {
        node.accept(scene.tenant, "{}").await;
        scene.attempted(&node, "/hook", n).await;
    }
    let later = node.clock.now() + TimeDelta::seconds(70);
    node.clock.observe(later, node.clock.monotonic());
    tested(500).await;
    assert_eq!(scene.circuits().await, [0, 0, 0]);
    tested(200).await;
    node.keeping.run_once().await;
    node.clock.observe(later, node.clock.monotonic());
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 12).await;
    assert_eq!(scene.circuits().await, [1, 0, 0]);
}

/// "In a row" is of all nodes: one makes first attempts alone, and another the later ones, which succeed (INV-13).
#[tokio::test]
async fn engine_circuit_stays_closed_where_another_node_was_answered_meanwhile() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::status(500));
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    let other = scene.node(Runs::WithoutLease).await;
    let failed = async |n| {
        node.accept(scene.tenant, "{}").await;
        scene.attempted(&node, "/hook", n).await;
    };
    for n in 1..10 {
        failed(n).await;
    }
    scene.receiver.script("/hook", Reply::status(200));
    other.accept(scene.tenant, "{}").await;
    scene.attempted(&other, "/hook", 10).await;
    scene.receiver.script("/hook", Reply::status(500));
    let later = node.clock.now() + TimeDelta::seconds(70);
    node.clock.observe(later, node.clock.monotonic());
    failed(11).await;
    assert_eq!(scene.circuits().await, [0, 0, 0]);
    // Counted anew: ten failures behind the success open it as ever.
    for n in 12..22 {
        failed(n).await;
    }
    let later = node.clock.now() + TimeDelta::seconds(70);
    node.clock.observe(later, node.clock.monotonic());
    failed(22).await;
    assert_eq!(scene.circuits().await, [1, 0, 0]);
}

/// A probe is an attempt of a parked delivery, another each time, and counts for it.
#[tokio::test]
async fn engine_circuit_probes_with_another_delivery_each_time() {
    let scene = Scene::begin().await;
    let (node, _endpoint) = scene.broken(Reply::status(500), 3).await;
    for n in 1..=3 {
        scene.probe(&node, n).await;
    }
    let of: std::collections::BTreeSet<_> = scene
        .receiver
        .map(|request| request.header("webhook-id").map(str::to_owned))
        .into_iter()
        .collect();
    let counted =
        "SELECT count(*) FROM attempts WHERE trigger = 'probe' AND n = 1 AND outcome = 'failed'";
    assert_eq!((of.len(), scene.rows.number(counted).await), (3, 3));
    assert_eq!(scene.circuits().await, [1, 0, 0]);
}

/// A receiver that is down behind something that asks for a second each time is not asked every few seconds for days.
#[tokio::test]
async fn engine_circuit_is_probed_ever_more_seldom_though_the_receiver_asks_for_less() {
    let scene = Scene::begin().await;
    let down = Reply::status(503).header("retry-after", "1");
    let (node, _endpoint) = scene.broken(down, 3).await;
    for n in 1..=3 {
        scene
            .rows
            .run("UPDATE endpoint_state SET retry_after = NULL")
            .await;
        scene.probe(&node, n).await;
    }
    let probes = "SELECT probes::bigint FROM endpoint_state";
    assert_eq!(scene.rows.number(probes).await, 3);
    let later =
        "SELECT count(*) FROM endpoint_state WHERE next_probe_at > now() + interval '15 seconds'";
    assert_eq!(scene.rows.number(later).await, 1);
}

#[tokio::test]
async fn engine_circuit_is_not_probed_before_its_time() {
    let scene = Scene::begin().await;
    let (node, _endpoint) = scene.broken(Reply::status(500), 3).await;
    scene.probe(&node, 1).await;
    node.parking.run_once().await;
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 1);
}

#[tokio::test]
async fn engine_circuit_that_is_open_is_told_with_its_endpoint() {
    let scene = Scene::begin().await;
    let (node, endpoint) = scene.broken(Reply::status(500), 1).await;
    scene.probe(&node, 1).await;
    let scope = TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE);
    let which = EndpointRef::Id(endpoint.id);
    let told = read::endpoint(&node.database, scope, &which).await;
    let health = told.unwrap().unwrap().health;
    assert_eq!(
        (health.status, health.failures_in_a_row, health.cause),
        (HealthStatus::CircuitOpen, 11, Some(ErrorKind::Status))
    );
    assert!(health.next_probe_at > health.since);
}

/// D08: what was parked goes out once a probe was answered well.
#[tokio::test]
async fn engine_circuit_closes_when_the_receiver_is_back_and_everything_is_delivered() {
    let scene = Scene::begin().await;
    let (node, _endpoint) = scene.broken(Reply::status(200), 6).await;
    scene.probe(&node, 1).await;
    assert_eq!(scene.circuits().await, [0, 1, 0]);
    node.parking.run_once().await;
    scene.attempted(&node, "/hook", 6).await;
    assert_eq!(scene.circuits().await, [0, 0, 1]);
    let failed = "SELECT count(*) FROM attempts WHERE outcome <> 'success'";
    assert_eq!(scene.rows.number(failed).await, 0);
}

#[tokio::test]
async fn engine_circuit_opens_again_at_a_failure_on_the_way_back() {
    let scene = Scene::begin().await;
    let script = Script::first(1, Reply::status(200)).then(Reply::status(500));
    let (node, _endpoint) = scene.broken(script, 4).await;
    scene.probe(&node, 1).await;
    node.parking.run_once().await;
    scene.attempted(&node, "/hook", 2).await;
    assert_eq!(scene.circuits().await, [1, 0, 0]);
    assert_eq!(scene.receiver.requests().len(), 2);
}

/// D30: five days of failures without a break.
#[tokio::test]
async fn engine_circuit_that_was_open_for_five_days_disables_its_endpoint() {
    let scene = Scene::begin().await;
    let (node, _endpoint) = scene.broken(Reply::status(500), 2).await;
    let disabled =
        "SELECT count(*) FROM endpoints WHERE state = 'disabled' AND state_cause = 'failing'";
    scene.probe(&node, 1).await;
    assert_eq!(scene.rows.number(disabled).await, 0);
    scene
        .rows
        .run("UPDATE endpoint_state SET opened_at = now() - interval '5 days'")
        .await;
    scene.probe(&node, 2).await;
    assert_eq!(scene.rows.number(disabled).await, 1);
}

/// D30: whoever enables it again is not told of the past.
#[tokio::test]
async fn engine_circuit_begins_afresh_when_its_endpoint_is_enabled_again() {
    let scene = Scene::begin().await;
    let (node, endpoint) = scene.broken(Reply::status(200), 2).await;
    for state in [EndpointState::Disabled, EndpointState::Enabled] {
        scene.tenants.set(&endpoint, state).await;
    }
    assert_eq!(scene.circuits().await, [0, 0, 1]);
    node.cache.refresh().await.unwrap();
    node.health.refresh().await.unwrap();
    node.parking.run_once().await;
    scene.attempted(&node, "/hook", 2).await;
}

/// Whoever mends the address does not wait for the next probe of the old one.
#[tokio::test]
async fn engine_circuit_begins_afresh_when_its_endpoint_is_sent_elsewhere() {
    let scene = Scene::begin().await;
    let (node, endpoint) = scene.broken(Reply::status(500), 2).await;
    let moved = EndpointPatch {
        url: Some(EndpointUrl::parse(&scene.receiver.url("/mended")).unwrap()),
        ..EndpointPatch::default()
    };
    scene.tenants.patch(&endpoint, moved).await;
    assert_eq!(scene.circuits().await, [0, 0, 1]);
    node.cache.refresh().await.unwrap();
    node.health.refresh().await.unwrap();
    node.parking.run_once().await;
    scene.attempted(&node, "/mended", 2).await;
}

/// A floor is the endpoint's, not the delivery's, and holds on every node; what waits for it uses up no attempt.
#[tokio::test]
async fn engine_circuit_a_floor_that_the_receiver_asked_for_holds_on_every_node() {
    let scene = Scene::begin().await;
    let busy = Reply::status(429).header("retry-after", "3600");
    scene
        .receiver
        .script("/hook", Script::first(1, busy).then(Reply::status(200)));
    scene.endpoint("/hook").await;
    let (node, other) = (scene.node(Runs::All).await, scene.node(Runs::All).await);
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    other.health.refresh().await.unwrap();
    for told in [&node, &other] {
        told.accept(scene.tenant, "{}").await;
    }
    scene.parked_for("retry_after", 2).await;
    for told in [&node, &other] {
        told.settled().await;
    }
    assert_eq!(scene.receiver.requests().len(), 1);
    let over =
        "UPDATE endpoint_state SET retry_after = now() - interval '1 second', changed_at = now()";
    scene.rows.run(over).await;
    // Swept again and again, as a node does: at their first pace the second waits a second, and the shard may change hands.
    until("both to be sent", AMPLE, || async {
        for told in [&node, &other] {
            told.health.refresh().await.unwrap();
            told.parking.run_once().await;
        }
        (scene.receiver.requests().len() == 3).then_some(())
    })
    .await;
    for told in [&node, &other] {
        told.settled().await;
    }
    let untouched = "SELECT count(*) FROM attempts WHERE outcome = 'success' AND n = 1";
    assert_eq!(scene.rows.number(untouched).await, 2);
}

/// INV-12: those that are out stay out, and no more follow; not even while the endpoint's row cannot be written.
#[tokio::test]
async fn engine_circuit_starts_no_request_after_a_410() {
    let scene = Scene::begin().await;
    let script = Script::first(1, Reply::status(410)).then(Reply::status(200).after(AMPLE / 60));
    scene.receiver.script("/hook", script);
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    scene.rows.run("BEGIN").await;
    scene.rows.run("SELECT FROM endpoints FOR UPDATE").await;
    let accepted = (0..60).map(|n: u32| node.accept(scene.tenant, n.to_string()));
    futures_util::future::join_all(accepted).await;
    until("the others to be parked", AMPLE, || async {
        let parked = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'disabled'";
        (scene.rows.number(parked).await == 44).then_some(())
    })
    .await;
    scene.rows.run("COMMIT").await;
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 16);
}

/// A person who has a delivery sent again is not put off to the next probe: it is one. Another that is asked for meanwhile waits.
#[tokio::test]
async fn engine_circuit_takes_a_replay_that_somebody_asked_for_as_its_probe() {
    let scene = Scene::begin().await;
    let script = Script::first(1, Reply::status(200).after(AMPLE / 60)).then(Reply::status(500));
    let (node, _endpoint) = scene.broken(script, 3).await;
    scene
        .rows
        .run("UPDATE endpoint_state SET next_probe_at = now() + interval '1 hour', changed_at = now()")
        .await;
    node.health.refresh().await.unwrap();
    let asked = "UPDATE pending SET due = now(), why = 'replay'
                 WHERE event_id IN (SELECT event_id FROM pending ORDER BY event_id DESC LIMIT 2)";
    assert_eq!(scene.rows.run(asked).await, 2);
    node.due.run_once().await;
    node.parking.run_once().await;
    scene.attempted(&node, "/hook", 1).await;
    let replayed = "SELECT count(*) FROM attempts WHERE trigger = 'replay' AND outcome = 'success'";
    assert_eq!(scene.rows.number(replayed).await, 1);
    assert_eq!(scene.receiver.requests().len(), 1);
    assert_eq!(scene.circuits().await, [0, 1, 0]);
    let waits = "SELECT count(*) FROM pending WHERE due IS NULL AND why = 'replay'";
    assert_eq!(scene.rows.number(waits).await, 1);
}

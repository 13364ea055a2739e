//! Housekeeping: what is removed with time, and what must not be.

use chrono::{Days as CalendarDays, NaiveDate};
use posthorn_domain::id::{DeliveryId, EventId};
use posthorn_domain::retention::{Days, Retention};
use posthorn_store::clock::Clock;
use posthorn_store::entropy::Entropy;
use posthorn_store::housekeeping::{Housekeeper, LeafOutcome};
use posthorn_store::oracle;
use posthorn_store::read;
use posthorn_store::record::DeliveryKey;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::engine::Runs;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_worker::{Housekeeping, HousekeepingParts, Round};

use crate::engine_scene::Scene;

mod crowd;
mod floor;
mod size;
mod steps;

/// Rows of `pending` whose event is nowhere.
pub(super) const WITHOUT_PAYLOAD: &str = "SELECT count(*) FROM pending AS p
     WHERE NOT EXISTS (SELECT 1 FROM events AS e WHERE e.tenant_id = p.tenant_id AND e.id = p.event_id)
       AND NOT EXISTS (SELECT 1 FROM kept_events AS k WHERE k.tenant_id = p.tenant_id AND k.id = p.event_id)";

const KEPT_EVENTS: &str = "SELECT count(*) FROM kept_events";

/// Days of `events` that are over and still have their leaf.
const OLD_LEAVES: &str =
    "SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
     WHERE i.inhparent = 'events'::regclass
       AND c.relname < 'events_' || to_char((now() AT TIME ZONE 'UTC')::date - 1, 'YYYYMMDD')";

const BURIED_LONG_AGO: &str = "UPDATE dead_letters SET died_at = now() - interval '91 days'";

/// A payload that no parser would give back as it is.
const AWKWARD: &str = "{\"b\" : 1.00,\n\"a\": \"\\u0000\", \"a\": 2}";

impl Scene {
    pub(super) fn house(&self, retention: Retention) -> Housekeeping {
        Housekeeping::new(HousekeepingParts {
            database: self.database.pools(2, 1),
            clock: Clock::start(),
            entropy: Entropy,
            retention,
        })
    }

    /// A whole round, with the settings as they are by themselves.
    pub(super) async fn round(&self) -> Round {
        self.round_with(Retention::default()).await
    }

    pub(super) async fn round_with(&self, retention: Retention) -> Round {
        self.rows.travel_to_round().await;
        let kept = self.house(retention).run_once().await.unwrap();
        let round = kept.round.unwrap();
        assert!(round.whole, "{round:?}");
        round
    }

    pub(super) async fn housekeeper(&self) -> Housekeeper {
        Housekeeper::connect(&self.database.pools(2, 1))
            .await
            .unwrap()
    }

    /// A delivery of an event of so many days ago.
    pub(super) async fn old(&self, endpoint: &TestEndpoint, days: i64) -> DeliveryKey {
        let event = self
            .rows
            .old_event(self.tenant, &[endpoint.id], days, AWKWARD)
            .await;
        self.key(endpoint, event)
    }

    pub(super) fn scope(&self) -> TenantScope {
        TenantScope::new_authenticated(self.tenant, Actor::COMMAND_LINE)
    }
}

pub(super) fn days(number: u16) -> Days {
    Days::new(number).unwrap()
}

pub(super) fn day_of(event: EventId) -> NaiveDate {
    event.minted_at().date_naive()
}

const fn id(key: DeliveryKey) -> DeliveryId {
    DeliveryId {
        event: key.event,
        endpoint: key.endpoint,
    }
}

/// INV-2, INV-3.
#[tokio::test]
async fn engine_housekeeping_keeps_what_is_pending_and_it_is_delivered_with_the_same_bytes() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene.rows.retrying(key).await;
    let round = scene.round().await;
    assert_eq!((round.kept, round.emptied), (1, 1));
    assert_eq!(scene.rows.events().await, []);
    let node = scene.node(Runs::All).await;
    node.due.run_once().await;
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(
        scene.receiver.requests_to("/hook")[0].body,
        AWKWARD.as_bytes()
    );
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
}

/// INV-2: with neither, the delivery ends on record, and says why.
#[tokio::test]
async fn engine_housekeeping_a_delivery_without_a_payload_is_dead_and_says_so() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    let key = scene.old(&endpoint, 3).await;
    scene.rows.retrying(key).await;
    scene
        .rows
        .change("DELETE FROM events WHERE id = $1", key.event)
        .await;
    node.due.run_once().await;
    node.settled().await;
    let letter = scene.rows.dead_letter(key).await.unwrap();
    assert_eq!(letter.cause, "payload_gone");
    assert_eq!(scene.rows.pending(key).await, None);
    assert_eq!(scene.receiver.requests().len(), 0);
}

/// G07: the log does not grow for ever, and nothing that is young goes.
#[tokio::test]
async fn engine_housekeeping_removes_events_and_attempts_after_their_days_and_no_sooner() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let (over, young) = (
        scene.old(&endpoint, 32).await,
        scene.old(&endpoint, 29).await,
    );
    for key in [over, young] {
        scene
            .rows
            .of_delivery(
                "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, config_seq)
                 VALUES ($1, $2, $3, 1, 1::bigint << 32, 'success', now(), 1, 1)",
                key,
            )
            .await;
    }
    scene.round().await;
    let left: Vec<_> = scene.rows.events().await.iter().map(|row| row.id).collect();
    assert_eq!(left, [young.event.uuid()]);
    assert_eq!(scene.rows.outcomes(over).await, [""; 0]);
    assert_eq!(scene.rows.outcomes(young).await, ["success"]);
}

/// G08: by the catalogue nothing of an old day is left once nothing refers to it.
#[tokio::test]
async fn engine_housekeeping_drops_the_leaves_of_a_day_when_nothing_refers_to_it() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene.rows.died(key).await;
    for _ in 0..3 {
        scene.round().await;
    }
    assert_eq!(scene.rows.number(OLD_LEAVES).await, 1);
    scene.rows.run(BURIED_LONG_AGO).await;
    for _ in 0..2 {
        scene.round().await;
    }
    assert_eq!(scene.rows.number(KEPT_EVENTS).await, 0);
    assert_eq!(scene.rows.number(OLD_LEAVES).await, 0);
}

/// INV-2: a dead letter that is removed leaves its delivery dead, not lost.
#[tokio::test]
async fn engine_housekeeping_removes_a_dead_letter_and_the_delivery_stays_dead() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 100).await;
    scene.rows.died(key).await;
    scene.rows.run(BURIED_LONG_AGO).await;
    let retention = Retention {
        events: days(365),
        dead_letters: days(90),
    };
    let round = scene.round_with(retention).await;
    assert_eq!(round.dead_letters, 1);
    assert_eq!(scene.rows.outcomes(key).await, ["dead_exhausted"]);
    let database = scene.database.pools(2, 1);
    assert_eq!(oracle::lost(&database, 10).await.unwrap(), []);
    let delivery = read::delivery(&database, scene.scope(), id(key))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(delivery.state.as_str(), "dead");
}

/// INV-2: while it is replayed, it stays.
#[tokio::test]
async fn engine_housekeeping_leaves_a_dead_letter_that_has_a_pending_row() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 100).await;
    scene.rows.died(key).await;
    scene.rows.retrying(key).await;
    scene.rows.run(BURIED_LONG_AGO).await;
    scene.round().await;
    assert!(scene.rows.dead_letter(key).await.is_some());
    assert_eq!(scene.rows.number(KEPT_EVENTS).await, 1);
}

/// What is read of a kept event: its payload, and the deliveries that live.
#[tokio::test]
async fn engine_housekeeping_shows_a_kept_event_with_the_deliveries_that_live() {
    let scene = Scene::begin().await;
    let (dead, done) = (scene.endpoint("/dead").await, scene.endpoint("/done").await);
    let event = scene
        .rows
        .old_event(scene.tenant, &[dead.id, done.id], 40, AWKWARD)
        .await;
    scene.rows.died(scene.key(&dead, event)).await;
    scene.round().await;
    let database = scene.database.pools(2, 2);
    let payload = read::payload(&database, scene.scope(), event)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(payload.bytes, AWKWARD.as_bytes());
    let state = async |endpoint: &TestEndpoint| {
        read::delivery(&database, scene.scope(), id(scene.key(endpoint, event)))
            .await
            .unwrap()
            .map(|delivery| delivery.state.as_str())
    };
    assert_eq!(
        (state(&dead).await, state(&done).await),
        (Some("dead"), None)
    );
}

/// INV-12: a node that is behind the log loads everything, and accepts.
#[tokio::test]
async fn engine_housekeeping_shortens_the_log_of_changes_and_a_node_that_is_behind_goes_on() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::All).await;
    scene.endpoint("/hook").await;
    scene
        .rows
        .run("UPDATE config_log SET at = now() - interval '2 hours'")
        .await;
    scene.round().await;
    assert_eq!(
        scene.rows.number("SELECT count(*) FROM config_log").await,
        0
    );
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
}

/// INV-2: the deliveries of a stream that was forgotten are still asked for.
#[tokio::test]
async fn engine_housekeeping_forgets_old_streams_and_the_oracle_still_finds_what_they_lost() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    scene
        .rows
        .run(
            "INSERT INTO nodes (stream, node, name, state, lease_until, watermark)
             SELECT s, gen_random_uuid(), 'old', CASE s WHEN 1 THEN 'recovered' ELSE 'closed' END, now() - interval '8 days',
                    posthorn_uuid_floor(now() - interval '8 days')
             FROM generate_series(1, 2) AS s",
        )
        .await;
    let lost = scene.old(&endpoint, 9).await;
    scene.rows.run("UPDATE events SET stream = 1").await;
    scene.round().await;
    assert_eq!(scene.rows.number("SELECT stream FROM nodes").await, 2);
    let found = oracle::lost(&scene.database.pools(1, 1), 10).await.unwrap();
    assert_eq!(found, [id(lost)]);
}

/// Leaves that are over are frozen once, by autovacuum; the present ones are left alone.
#[tokio::test]
async fn engine_housekeeping_has_cold_leaves_frozen() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    for days in [0, 1, 2, 5] {
        scene.old(&endpoint, days).await;
    }
    assert_eq!(scene.round().await.frozen, 2);
    assert_eq!(scene.round().await.frozen, 0);
}

/// INV-9: what an owner's function may not do, whoever calls it.
#[tokio::test]
async fn engine_housekeeping_cannot_empty_a_leaf_before_its_events_are_kept() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    let mut housekeeper = scene.housekeeper().await;
    housekeeper.raise_floor(days(30)).await.unwrap();
    housekeeper.empty(day_of(key.event)).await.unwrap_err();
    housekeeper
        .drop_leaves(day_of(key.event))
        .await
        .unwrap_err();
    assert_eq!(scene.rows.events().await.len(), 1);
}

/// G08: a day that never had leaves is nobody's fault.
#[tokio::test]
async fn engine_housekeeping_finds_nothing_to_do_where_a_day_has_no_leaves() {
    let scene = Scene::begin().await;
    let mut housekeeper = scene.housekeeper().await;
    let long_ago = Clock::start()
        .now()
        .date_naive()
        .checked_sub_days(CalendarDays::new(77))
        .unwrap();
    assert_eq!(
        housekeeper.empty(long_ago).await.unwrap(),
        LeafOutcome::Nothing
    );
}

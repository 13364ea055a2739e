//! The floor against whatever makes a delivery pending, in both orders (INV-2): kept whole, or refused.

use std::time::Duration;

use chrono::TimeDelta;
use posthorn_domain::delivery::{ErrorKind, Trigger, Why};
use posthorn_domain::id::{DeliveryId, EventId};
use posthorn_store::clock::Clock;
use posthorn_store::entropy::Entropy;
use posthorn_store::record::{
    Attempt, AttemptError, Consequence, DeliveryKey, Fact, Parked, RecordWriter, Retry, Source,
};
use posthorn_store::replay::{ReplayError, replay_dead_letter};
use posthorn_tests::engine::{AMPLE, Runs};
use posthorn_tests::rows::Rows;
use posthorn_tests::wait::until;
use sqlx::Executor as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{WITHOUT_PAYLOAD, days};
use crate::engine_scene::Scene;

/// Backends of this database that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND wait_event_type = 'Lock'";

fn parked(key: DeliveryKey) -> Fact {
    let parked = Parked {
        why: Why::Capacity,
        due: true,
        ends_at: Clock::start().now() + TimeDelta::days(1),
    };
    Fact::Parked { key, parked }
}

fn failed(key: DeliveryKey) -> Fact {
    let now = Clock::start().now();
    Fact::Attempted {
        key,
        attempt: Box::new(Attempt {
            n: 1,
            nonce: u32::from_be_bytes(Entropy.bytes()),
            success: false,
            status: Some(500),
            at: now,
            duration: Duration::from_millis(1),
            trigger: Trigger::Schedule,
            replay: None,
            remote_address: None,
            error: Some(AttemptError {
                kind: ErrorKind::Status,
                detail: "the endpoint answered 500".to_owned(),
            }),
            response: None,
            config_seq: 1,
        }),
        source: Source::Fresh,
        consequence: Consequence::Retry(Retry {
            step: 1,
            after: Duration::from_mins(1),
            ends_at: now + TimeDelta::days(1),
        }),
        event_type: "order.paid".to_owned(),
        application: None,
    }
}

impl Scene {
    fn writing(&self) -> RecordWriter {
        RecordWriter::new(self.database.pools(1, 1))
    }

    async fn wait_for_waiting(&self, backends: i64) {
        until("somebody to wait for a lock", AMPLE, || async {
            (self.rows.number(WAITING).await >= backends).then_some(())
        })
        .await;
    }

    async fn ask_for_replay(&self, key: DeliveryKey) -> Result<(), ReplayError> {
        let id = DeliveryId {
            event: key.event,
            endpoint: key.endpoint,
        };
        replay_dead_letter(&self.database.pools(1, 1), self.scope(), id)
            .await
            .map(drop)
    }
}

/// INV-2: the row is on its way when the floor rises. Its own transaction is held up by another one that has just written,
/// and then takes back, the same row.
#[tokio::test]
async fn engine_housekeeping_keeps_the_event_of_a_row_that_was_on_its_way_when_the_floor_rose() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    let mut other = scene.database.superuser().await;
    other.execute("BEGIN").await.unwrap();
    sqlx::query(
        "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, n, step, since, ends_at, why)
         VALUES ($1, $2, $3, 0, 1, 0, 1, now(), 'capacity')",
    )
    .bind(key.tenant.uuid())
    .bind(key.endpoint.uuid())
    .bind(key.event.uuid())
    .execute(&mut other)
    .await
    .unwrap();
    let mut writer = scene.writing();
    let recording = tokio::spawn(async move { writer.record(&[parked(key)]).await });
    scene.wait_for_waiting(1).await;
    let house = scene.house(posthorn_domain::retention::Retention::default());
    scene.rows.travel_to_round().await;
    let keeping = tokio::spawn(async move { house.run_once().await.unwrap().round.unwrap() });
    // Either it waits at the gate, or it is through without having waited.
    until("housekeeping to come to the gate", AMPLE, || async {
        (keeping.is_finished() || scene.rows.number(WAITING).await >= 2).then_some(())
    })
    .await;
    other.execute("ROLLBACK").await.unwrap();
    recording.await.unwrap().unwrap();
    keeping.await.unwrap();
    scene.round().await;
    assert!(scene.rows.pending(key).await.is_some());
    assert_eq!(scene.rows.number(WITHOUT_PAYLOAD).await, 0);
}

/// INV-2: the other order.
#[tokio::test]
async fn engine_housekeeping_makes_nothing_pending_below_the_floor_unless_it_is_kept() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let (gone, kept) = (
        scene.old(&endpoint, 40).await,
        scene.old(&endpoint, 40).await,
    );
    scene.rows.died(kept).await;
    scene.round().await;
    scene.rows.run("DELETE FROM dead_letters").await;
    let mut writer = scene.writing();
    for make in [parked, failed] {
        writer.record(&[make(gone), make(kept)]).await.unwrap();
        assert_eq!(scene.rows.pending(gone).await, None);
        assert!(scene.rows.pending(kept).await.is_some());
        scene.rows.run("DELETE FROM pending").await;
    }
}

/// INV-2: a replay between the rising of the floor and the copy comes again a moment later, and is then kept whole.
#[tokio::test]
async fn engine_housekeeping_lets_a_replay_wait_until_its_event_is_kept() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene.rows.died(key).await;
    let mut housekeeper = scene.housekeeper().await;
    housekeeper.raise_floor(days(30)).await.unwrap();
    let first = scene.ask_for_replay(key).await;
    assert!(matches!(first, Err(ReplayError::Moving)), "{first:?}");
    assert_eq!(scene.rows.pending(key).await, None);
    scene.round().await;
    scene.ask_for_replay(key).await.unwrap();
    let node = scene.node(Runs::All).await;
    node.due.run_once().await;
    scene.attempted(&node, "/hook", 1).await;
    assert_eq!(scene.rows.dead_letter(key).await, None);
}

/// INV-2: a delivery above its stream's watermark may be in memory alone, however old it is.
#[tokio::test]
async fn engine_housekeeping_never_raises_the_floor_above_a_stream_that_is_not_recovered() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene
        .rows
        .run(
            "INSERT INTO nodes (stream, node, name, state, lease_until, watermark)
             SELECT 0, gen_random_uuid(), 'hung', 'closed', posthorn_uuid_time(id), posthorn_uuid_floor(posthorn_uuid_time(id) - interval '2 seconds')
             FROM events",
        )
        .await;
    scene.round().await;
    assert_eq!(scene.rows.events().await.len(), 1);
    let node = scene.node(Runs::All).await;
    node.recovery.run_once().await;
    assert!(scene.rows.pending(key).await.is_some());
    scene.round().await;
    assert_eq!(scene.rows.events().await, []);
    assert_eq!(scene.rows.number(WITHOUT_PAYLOAD).await, 0);
}

/// INV-2: a result that comes when everything of its day is gone keeps no other from being recorded.
#[tokio::test]
async fn engine_housekeeping_lets_go_of_a_result_whose_day_is_gone_and_records_the_others() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let (gone, young) = (
        scene.old(&endpoint, 40).await,
        scene.old(&endpoint, 1).await,
    );
    for _ in 0..2 {
        scene.round().await;
    }
    let mut writer = scene.writing();
    writer.record(&[failed(gone), failed(young)]).await.unwrap();
    assert_eq!(scene.rows.outcomes(young).await, ["failed"]);
    assert!(scene.rows.pending(young).await.is_some());
    assert_eq!(scene.rows.pending(gone).await, None);
}

/// INV-11: the gate is asked for while there is always somebody inside, and is not waited for in vain.
#[tokio::test]
async fn engine_housekeeping_raises_the_floor_while_something_is_always_being_made_pending() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let old = scene.old(&endpoint, 40).await;
    let mut crowd = JoinSet::new();
    for _ in 0..6 {
        let mut writer = scene.writing();
        crowd.spawn(async move {
            loop {
                let facts: Vec<_> = (0..64).map(|_| parked(some_event_of(old))).collect();
                writer.record(&facts).await.unwrap();
            }
        });
    }
    until("the crowd to be at work", AMPLE, || async {
        let pending = "SELECT count(*) FROM pending";
        (scene.rows.number(pending).await > 2_000).then_some(())
    })
    .await;
    let mut housekeeper = scene.housekeeper().await;
    for number in [35, 34, 33, 32, 31] {
        let floor = housekeeper.raise_floor(days(number)).await.unwrap();
        let above = floor.floor.minted_at() + TimeDelta::days(i64::from(number) + 1);
        assert!(above >= Clock::start().now());
    }
    crowd.shutdown().await;
}

/// Inside the gate, as whoever makes something pending.
const INSIDE: &str = "SELECT floor FROM retention, pg_advisory_xact_lock_shared(hashtext('posthorn_gate')) FOR KEY SHARE OF retention";

/// INV-11: the same where nobody leaves before the next has come in, but for one who has waited for that in vain.
#[tokio::test]
async fn engine_housekeeping_raises_the_floor_though_whoever_is_inside_waits_for_the_next() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    scene.old(&endpoint, 40).await;
    let entered = watch::Sender::new(0_u64);
    let mut crowd = JoinSet::new();
    for _ in 0..4 {
        let (rows, entered) = (Rows::of(&scene.database).await, entered.clone());
        crowd.spawn(async move {
            loop {
                rows.run("BEGIN").await;
                rows.run(INSIDE).await;
                entered.send_modify(|count| *count += 1);
                let mut seen = entered.subscribe();
                let mine = *seen.borrow();
                let next = async { seen.wait_for(|count| *count > mine).await.is_ok() };
                let _in_vain = tokio::time::timeout(AMPLE / 100, next).await;
                rows.run("COMMIT").await;
            }
        });
    }
    entered
        .subscribe()
        .wait_for(|count| *count > 20)
        .await
        .unwrap();
    let mut housekeeper = scene.housekeeper().await;
    for number in [35, 34, 33] {
        housekeeper.raise_floor(days(number)).await.unwrap();
    }
    crowd.shutdown().await;
}

/// An event of this moment that nobody has accepted, for the same endpoint.
fn some_event_of(key: DeliveryKey) -> DeliveryKey {
    let event = EventId::mint(Clock::start().now(), Entropy.bytes());
    DeliveryKey { event, ..key }
}

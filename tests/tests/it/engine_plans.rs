//! Plans: on tables of some size no statement of the engine reads one whole.
//!
//! Told by what PostgreSQL itself counts for each table, so that the statements are the engine's own and not copies of them.

use std::time::Duration;

use chrono::DateTime;
use posthorn_domain::delivery::{Trigger, Why};
use posthorn_domain::id::EventId;
use posthorn_domain::retention::Days;
use posthorn_store::alarm;
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::housekeeping::Housekeeper;
use posthorn_store::pending::{self, Due, ParkedEndpoint, PendingReader};
use posthorn_store::record::{Attempt, Consequence, DeliveryKey, Fact, RecordWriter, Source};
use posthorn_store::recover::recover;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::engine::AMPLE;
use posthorn_tests::wait::until;

use crate::engine_scene::Scene;

mod lists;

/// A minute of 12,000 events of one closed stream. Nearly each has an attempt, and each a pending row and a dead letter: more
/// than can be, so that every table is of some size.
const SEED: [&str; 6] = [
    "INSERT INTO events (tenant_id, id, stream, type, endpoints, content_type, codec, size, payload)
     SELECT t.id, (left(posthorn_uuid_floor(now() - interval '2 minutes' + n * interval '5 ms')::text, 14)
                   || '7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
            1, 'order.paid', ARRAY[e.id], 'application/json', 0, 200, convert_to(repeat('x', 200), 'UTF8')
     FROM tenants AS t, endpoints AS e, generate_series(1, 12000) AS n",
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
     SELECT tenant_id, endpoints[1], id, 1, (1::bigint << 32) + 1, 'success', now(), 5, NULL, 1 FROM events WHERE get_byte(uuid_send(id), 15) % 100 <> 0",
    "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT tenant_id, endpoints[1], id, get_byte(uuid_send(endpoints[1]), 15), now() + interval '1 hour', 1, 0, 1, now() + interval '1 day', 'retry'
     FROM events",
    "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
     SELECT tenant_id, endpoints[1], id, type, 'exhausted', 1, now() FROM events",
    "INSERT INTO nodes (stream, node, name, state, lease_until, watermark)
     SELECT 1, id, 'seed', 'closed', now() - interval '1 minute', posthorn_uuid_floor(now() - interval '2 minutes') FROM tenants",
    // Summarises the BRIN, too.
    "VACUUM ANALYZE",
];

/// Counts of whole reads of tables that are of some size. Read after every other connection has ended and told its counts.
const WHOLE_READS: &str = "SELECT COALESCE(sum(seq_scan), 0)::bigint FROM pg_stat_user_tables
     WHERE n_live_tup > 1000 OR relname IN ('pending', 'dead_letters')";

const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'posthorn'";

struct Seeded {
    scene: Scene,
    key: DeliveryKey,
}

impl Seeded {
    async fn begin() -> Self {
        let scene = Scene::begin().await;
        let endpoint = scene.endpoint("/hook").await;
        for statement in SEED {
            scene.rows.run(statement).await;
        }
        let last = scene.rows.events().await.pop().unwrap();
        let key = scene.key(&endpoint, EventId::from_uuid(last.id));
        Self { scene, key }
    }

    /// How many tables `work` reads whole.
    async fn whole_reads(&self, work: impl AsyncFnOnce(&Database)) -> i64 {
        self.counted(WHOLE_READS, work).await
    }

    /// By how much `work` raises a count of PostgreSQL's; its connections are closed then, and their counts told.
    async fn counted(&self, count: &'static str, work: impl AsyncFnOnce(&Database)) -> i64 {
        let rows = &self.scene.rows;
        rows.run("SELECT pg_stat_force_next_flush()").await;
        rows.run("SELECT pg_stat_clear_snapshot()").await;
        let before = rows.number(count).await;
        let database = self.scene.database.pools(1, 1);
        work(&database).await;
        database.close().await;
        until("the connections to end", AMPLE, || async {
            (rows.number(OTHERS).await <= 2).then_some(())
        })
        .await;
        rows.run("SELECT pg_stat_clear_snapshot()").await;
        rows.number(count).await - before
    }
}

/// INV-2: recovery must not read `attempts` whole, however long the log is.
#[tokio::test]
async fn engine_plans_of_recovery_read_no_table_whole() {
    let seeded = Seeded::begin().await;
    let reads = seeded
        .whole_reads(async |database| {
            recover(database, 1).await.unwrap();
        })
        .await;
    assert_eq!(reads, 0);
}

/// INV-13.
#[tokio::test]
async fn engine_plans_of_a_due_scan_read_no_table_whole() {
    let seeded = Seeded::begin().await;
    let shards: Vec<_> = (0..256)
        .map(|shard| (shard, DateTime::UNIX_EPOCH))
        .collect();
    let reads = seeded
        .whole_reads(async |database| {
            for _ in 0..8 {
                pending::scan(database, &shards, 128, 1024).await.unwrap();
            }
        })
        .await;
    assert_eq!(reads, 0);
}

/// INV-13.
#[tokio::test]
async fn engine_plans_of_the_sweep_over_parked_rows_read_no_table_whole() {
    let seeded = Seeded::begin().await;
    let shards: Vec<_> = (0..256).map(|shard| (shard, None)).collect();
    let of = ParkedEndpoint {
        tenant: seeded.key.tenant,
        endpoint: seeded.key.endpoint,
    };
    let reads = seeded
        .whole_reads(async |database| {
            for _ in 0..8 {
                pending::parked_endpoints(database, &shards, 32, 100)
                    .await
                    .unwrap();
                pending::expire(database, of).await.unwrap();
                pending::parked(database, of, None, 64).await.unwrap();
            }
        })
        .await;
    assert_eq!(reads, 0);
}

/// INV-13.
#[tokio::test]
async fn engine_plans_of_a_load_read_no_table_whole() {
    let seeded = Seeded::begin().await;
    seeded.scene.rows.run("UPDATE pending SET due = NULL").await;
    let row = Due {
        key: seeded.key,
        n: 1,
        due: None,
    };
    let reads = seeded
        .whole_reads(async |database| {
            let mut reader = PendingReader::new(database.clone());
            for _ in 0..8 {
                reader.load(&[row, row]).await.unwrap();
            }
        })
        .await;
    assert_eq!(reads, 0);
}

/// INV-13.
#[tokio::test]
async fn engine_plans_of_a_record_read_no_table_whole() {
    let seeded = Seeded::begin().await;
    let reads = seeded
        .whole_reads(async |database| {
            let mut writer = RecordWriter::new(database.clone());
            for n in 1..=8 {
                writer.record(&[success(seeded.key, n)]).await.unwrap();
                writer
                    .record(&[parked(other(seeded.key)), success(other(seeded.key), 1)])
                    .await
                    .unwrap();
            }
        })
        .await;
    assert_eq!(reads, 0);
}

/// A delivery that nothing is known of.
fn other(key: DeliveryKey) -> DeliveryKey {
    let event = EventId::mint(Clock::start().now(), Entropy.bytes());
    DeliveryKey { event, ..key }
}

fn parked(key: DeliveryKey) -> Fact {
    let parked = posthorn_store::record::Parked {
        why: Why::Capacity,
        due: false,
        ends_at: Clock::start().now(),
    };
    Fact::Parked { key, parked }
}

fn success(key: DeliveryKey, n: u32) -> Fact {
    let attempt = Attempt {
        n,
        nonce: u32::from_be_bytes(Entropy.bytes()),
        success: true,
        status: Some(200),
        at: Clock::start().now(),
        duration: Duration::from_millis(1),
        trigger: Trigger::Schedule,
        replay: None,
        remote_address: None,
        error: None,
        response: None,
        config_seq: 1,
    };
    Fact::Attempted {
        key,
        attempt: Box::new(attempt),
        source: Source::Pending,
        consequence: Consequence::Delivered,
        event_type: "order.paid".to_owned(),
        application: None,
    }
}

/// The measure itself: a whole read is seen.
#[tokio::test]
async fn engine_plans_see_a_table_that_is_read_whole() {
    let seeded = Seeded::begin().await;
    let reads = seeded
        .whole_reads(async |database| {
            let scope = TenantScope::new_authenticated(seeded.key.tenant, Actor::COMMAND_LINE);
            let mut tx = database.tenant_tx(&scope).await.unwrap();
            sqlx::query("SELECT max(died_at - interval '1 s') FROM dead_letters WHERE type <> 'x'")
                .execute(&mut *tx)
                .await
                .unwrap();
            tx.commit().await.unwrap();
        })
        .await;
    assert!(reads > 0, "{reads}");
}

/// G12, G17: asked every few seconds, whatever the tables have grown to.
#[tokio::test]
async fn engine_plans_what_alarms_are_read_from_reads_no_table_whole() {
    let seeded = Seeded::begin().await;
    let reads = seeded
        .whole_reads(async |database| {
            alarm::standing(database).await.unwrap();
        })
        .await;
    assert_eq!(reads, 0);
}

/// G06: what retention looks for it walks to by key, in bounded steps.
#[tokio::test]
async fn engine_plans_a_round_of_retention_reads_no_table_whole() {
    let seeded = Seeded::begin().await;
    let reads = seeded
        .whole_reads(async |database| {
            let mut housekeeper = Housekeeper::connect(database).await.unwrap();
            let days = Days::new(30).unwrap();
            housekeeper.remove_dead_letters(days).await.unwrap();
            let now = EventId::floor_at(Clock::start().now());
            assert_eq!(housekeeper.keep(now).await.unwrap().copied, 12_000);
            housekeeper.remove_kept().await.unwrap();
        })
        .await;
    assert_eq!(reads, 0);
}

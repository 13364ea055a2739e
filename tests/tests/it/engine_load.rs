//! Load: rows are read for sending many at a time, as they stand at that moment; and what looking for them costs.

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;
use posthorn_store::pending::{self, Due, Load, ParkedEndpoint, PendingReader};
use posthorn_store::record::DeliveryKey;
use posthorn_tests::engine::AMPLE;
use posthorn_tests::tenants::TestEndpoint;
use posthorn_tests::wait::until;
use sqlx::Executor as _;
use uuid::Uuid;

use crate::engine_scene::Scene;

/// Buffers of the table and its indexes, read or found in memory.
const BUFFERS: &str =
    "SELECT (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
     FROM pg_statio_user_tables WHERE relname = 'pending'";

const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'posthorn'";

impl Scene {
    /// Due rows of an endpoint, as a scan finds them.
    async fn due_rows(&self, endpoint: &TestEndpoint, count: u32) -> Vec<Due> {
        self.rows
            .fill_pending(endpoint.tenant, endpoint.id, count)
            .await;
        let shard = i16::from(endpoint.id.shard());
        let from = [(shard, DateTime::UNIX_EPOCH)];
        let database = self.database.pools(1, 1);
        pending::scan(&database, &from, 1000, 1000).await.unwrap()
    }

    async fn load(&self, rows: &[Due]) -> Vec<Load> {
        let mut reader = PendingReader::new(self.database.pools(1, 1));
        reader.load(rows).await.unwrap()
    }

    /// How many buffers of `pending` `work` touches. A connection tells its counts when it ends, so that those of `work` are
    /// closed and waited for.
    async fn buffers(&self, work: impl AsyncFnOnce(&Database)) -> i64 {
        let rows = &self.rows;
        rows.run("SELECT pg_stat_force_next_flush()").await;
        rows.run("SELECT pg_stat_clear_snapshot()").await;
        let before = rows.number(BUFFERS).await;
        self.alone(work).await;
        rows.run("SELECT pg_stat_clear_snapshot()").await;
        let touched = rows.number(BUFFERS).await - before;
        assert!(touched > 0, "nothing was counted");
        touched
    }

    /// Does `work` over connections of its own, and waits until they have ended.
    async fn alone(&self, work: impl AsyncFnOnce(&Database)) {
        let others = self.rows.number(OTHERS).await;
        let database = self.database.pools(1, 1);
        work(&database).await;
        database.close().await;
        until("the connections to end", AMPLE, || async {
            self.rows.run("SELECT pg_stat_clear_snapshot()").await;
            (self.rows.number(OTHERS).await <= others).then_some(())
        })
        .await;
    }
}

fn told(loads: &[Load]) -> Vec<&'static str> {
    loads
        .iter()
        .map(|load| match load {
            Load::Ready(_) => "ready",
            Load::Expired => "expired",
            Load::PayloadGone => "payload gone",
            Load::Void => "void",
            Load::Moved => "moved",
            Load::Later => "later",
        })
        .collect()
}

/// Each row is told by itself, in the order in which it was asked for.
#[tokio::test]
async fn engine_load_tells_each_row_as_it_is_by_then() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let rows = scene.due_rows(&endpoint, 6).await;
    for (row, change) in rows.iter().skip(1).zip([
        "UPDATE pending SET n = 2 WHERE event_id = $1",
        "UPDATE pending SET due = NULL WHERE event_id = $1",
        "UPDATE pending SET ends_at = now() WHERE event_id = $1",
        "DELETE FROM events WHERE id = $1",
        "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, config_seq)
         SELECT tenant_id, endpoint_id, event_id, 1, 1::bigint << 32, 'success', now(), 1, 1 FROM pending WHERE event_id = $1",
    ]) {
        scene.rows.change(change, row.key.event).await;
    }
    assert_eq!(
        told(&scene.load(&rows).await),
        ["ready", "moved", "moved", "expired", "payload gone", "void"]
    );
}

/// INV-2: what is void has nothing left to do, and goes.
#[tokio::test]
async fn engine_load_removes_what_is_void() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let rows = scene.due_rows(&endpoint, 3).await;
    scene
        .rows
        .run(
            "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, config_seq)
             SELECT tenant_id, endpoint_id, event_id, 1, 1::bigint << 32, 'success', now(), 1, 1 FROM pending",
        )
        .await;
    scene.load(&rows).await;
    assert_eq!(scene.rows.number("SELECT count(*) FROM pending").await, 0);
}

/// INV-11: many large payloads are not read at once.
#[tokio::test]
async fn engine_load_reads_no_more_bytes_than_its_bound_and_one_payload() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let rows = scene.due_rows(&endpoint, 5).await;
    scene
        .rows
        .run("UPDATE events SET size = 700000, payload = convert_to(repeat('x', 700000), 'UTF8')")
        .await;
    assert_eq!(
        told(&scene.load(&rows).await),
        ["ready", "ready", "later", "later", "later"]
    );
}

/// A row that a drain took is read while it is parked, and dropped once somebody made it due.
#[tokio::test]
async fn engine_load_reads_a_parked_row_only_for_a_drain() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let rows = scene.due_rows(&endpoint, 1).await;
    let drained: Vec<_> = rows.iter().map(|row| Due { due: None, ..*row }).collect();
    let while_due = told(&scene.load(&drained).await);
    scene.rows.run("UPDATE pending SET due = NULL").await;
    let while_parked = told(&scene.load(&drained).await);
    assert_eq!((while_due, while_parked), (vec!["moved"], vec!["ready"]));
}

/// Pending rows of nobody: enough that the indexes have as many levels as with some millions.
const SPREAD: &str = "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT gen_random_uuid(), overlay(gen_random_uuid()::text PLACING lpad(to_hex(n % 256), 2, '0') FROM 35)::uuid,
            gen_random_uuid(), n % 256, now() + interval '1 hour', 1, 0, 1, now() + interval '1 day', 'retry'
     FROM generate_series(1, 50000) AS n";
const OF_ONE: &str = "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT t.id, ('00000000-0000-0000-0000-0000000000' || lpad(to_hex(n % 3), 2, '0'))::uuid, gen_random_uuid(), n % 3,
            now() - interval '1 hour' + n * interval '10 ms', 1, 0, 1, now() + interval '1 day', 'retry'
     FROM tenants AS t, generate_series(1, 30000) AS n";

fn shards() -> Vec<(i16, DateTime<Utc>)> {
    (0..256)
        .map(|shard| (shard, DateTime::UNIX_EPOCH))
        .collect()
}

/// S10: what a scan reads depends neither on how much is pending nor on how much of it is due.
#[tokio::test]
async fn engine_load_a_due_scan_reads_at_most_2000_buffers_whatever_is_pending() {
    let scene = Scene::begin().await;
    scene.rows.run(SPREAD).await;
    scene.rows.run("VACUUM ANALYZE pending").await;
    let scan = async |database: &Database| {
        pending::scan(database, &shards(), 128, 1024).await.unwrap();
    };
    let nothing_due = scene.buffers(scan).await;
    scene.rows.run(OF_ONE).await;
    let pile_due = scene.buffers(scan).await;
    scene.rows.run("UPDATE pending SET due = now()").await;
    scene.rows.run("VACUUM pending").await;
    let all_due = scene.buffers(scan).await;
    assert!(
        nothing_due <= 2000 && pile_due <= 2000 && all_due <= 2000,
        "{nothing_due}, {pile_due}, {all_due}"
    );
}

/// S10: the same for the sweep, and for one step of a drain in the middle of a backlog.
#[tokio::test]
async fn engine_load_a_sweep_and_a_drain_read_at_most_2000_buffers_whatever_is_parked() {
    let scene = Scene::begin().await;
    scene.rows.run(OF_ONE).await;
    scene.rows.run("UPDATE pending SET due = NULL").await;
    scene.rows.run("VACUUM ANALYZE pending").await;
    let all: Vec<_> = (0..256).map(|shard| (shard, None)).collect();
    let sweep = scene
        .buffers(async |database| {
            let found = pending::parked_endpoints(database, &all, 32, 256).await;
            assert_eq!(found.unwrap().len(), 3);
        })
        .await;
    let of = ParkedEndpoint {
        tenant: scene.tenant,
        endpoint: EndpointId::from_uuid(Uuid::from_u128(1)),
    };
    let middle = scene.middle(of).await;
    let drain = scene
        .buffers(async |database| {
            let found = pending::parked(database, of, Some(middle), 512).await;
            assert_eq!(found.unwrap().len(), 512);
        })
        .await;
    scene.rows.run(SPREAD).await;
    scene.rows.run("UPDATE pending SET due = NULL").await;
    scene.rows.run("VACUUM ANALYZE pending").await;
    let many = scene
        .buffers(async |database| {
            let found = pending::parked_endpoints(database, &all, 32, 256).await;
            assert_eq!(found.unwrap().len(), 256);
        })
        .await;
    assert!(
        sweep <= 2000 && drain <= 2000 && many <= 2000,
        "{sweep}, {drain}, {many}"
    );
}

/// Retries that came due one after the other, and were sent: each leaves a dead row in the table and in its index.
const SENT: [&str; 2] = [
    "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT t.id, '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 1,
            now() - interval '10 minutes' + n * interval '20 ms', 2, 1, 1, now() + interval '1 day', 'retry'
     FROM tenants AS t, generate_series(1, 29000) AS n",
    "DELETE FROM pending WHERE due < now()",
];

/// INV-13; G12: a snapshot that somebody holds keeps every dead row, and a scan goes on behind them.
#[tokio::test]
async fn engine_load_a_due_scan_reads_no_more_though_a_held_snapshot_keeps_dead_rows() {
    let scene = Scene::begin().await;
    let mut holding = scene.database.superuser().await;
    holding
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .await
        .unwrap();
    scene.rows.run(SPREAD).await;
    let now = Clock::start().now();
    let from: Vec<_> = (0..256)
        .map(|shard| (shard, now - TimeDelta::seconds(15)))
        .collect();
    let scan = async |database: &Database| {
        pending::scan(database, &from, 128, 1024).await.unwrap();
    };
    let before = scene.buffers(scan).await;
    for statement in SENT {
        scene.rows.run(statement).await;
    }
    scene.rows.run("VACUUM pending").await;
    let dead = "SELECT pg_stat_get_dead_tuples('pending'::regclass)";
    assert!(scene.rows.number(dead).await >= 29_000, "they were removed");
    let after = scene.buffers(scan).await;
    // An index may have grown by a level.
    assert!(after <= before + before / 2, "{before} → {after}");
    drop(holding);
}

impl Scene {
    /// A place in the middle of what is parked of an endpoint.
    async fn middle(&self, of: ParkedEndpoint) -> pending::Parked {
        let mut middle = None;
        self.alone(async |database| {
            let rows = pending::parked(database, of, None, 5_000).await.unwrap();
            middle = rows.last().copied();
        })
        .await;
        middle.unwrap()
    }
}

/// A row that is gone is told like one that was moved.
#[tokio::test]
async fn engine_load_of_nothing_known_answers_moved() {
    let scene = Scene::begin().await;
    let key = DeliveryKey {
        tenant: TenantId::from_uuid(Uuid::nil()),
        endpoint: EndpointId::from_uuid(Uuid::nil()),
        event: EventId::from_uuid(Uuid::nil()),
    };
    let row = Due {
        key,
        n: 1,
        due: None,
    };
    assert_eq!(told(&scene.load(&[row]).await), ["moved"]);
}

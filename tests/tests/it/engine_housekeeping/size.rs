//! Retention of very much at once, while events come in (G06).

use std::time::Duration;

use posthorn_store::clock::Clock;
use posthorn_tests::engine::Runs;

use super::KEPT_EVENTS;
use super::crowd::{DEADLOCKS, NOT_KEPT, steps};
use crate::engine_scene::Scene;

/// 100,000 events of each of two days that are over. One in a hundred is pending still, one is a dead letter, the others
/// were delivered.
const EXPIRED: [&str; 4] = [
    "INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload)
     SELECT e.tenant_id, (left(e.id::text, 14) || '7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
            0, e.type, e.endpoints, 0, 2, '{}'
     FROM events AS e, generate_series(1, 100000) AS n",
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, config_seq)
     SELECT tenant_id, endpoints[1], id, 1, 1::bigint << 32, 'success', now(), 5, 1 FROM events
     WHERE get_byte(uuid_send(id), 15) % 100 > 1",
    "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT tenant_id, endpoints[1], id, get_byte(uuid_send(endpoints[1]), 15), now() + interval '1 hour', 2, 1, 1,
            now() + interval '1 day', 'retry'
     FROM events WHERE get_byte(uuid_send(id), 15) % 100 = 0",
    "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
     SELECT tenant_id, endpoints[1], id, type, 'exhausted', 1, now() FROM events WHERE get_byte(uuid_send(id), 15) % 100 = 1",
];

const ALIVE: &str = "SELECT (SELECT count(*) FROM pending) + (SELECT count(*) FROM dead_letters)";

/// Of the events that are over, those in the log.
const OVER: &str =
    "SELECT count(*) FROM events WHERE id < posthorn_uuid_floor(now() - interval '30 days')";

/// Far above what a flush takes on a busy machine, and far below what a lock may make it wait.
const PROMPT: Duration = Duration::from_secs(1);

/// G06, INV-2: three nodes at once get through it without a deadlock, keep what lives, and hold up no caller.
#[tokio::test(flavor = "multi_thread")]
async fn engine_housekeeping_of_two_hundred_thousand_events_by_three_nodes_holds_up_no_caller() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    scene.old(&endpoint, 40).await;
    scene.old(&endpoint, 39).await;
    for statement in EXPIRED {
        scene.rows.run(statement).await;
    }
    let alive = scene.rows.number(ALIVE).await;
    let node = scene.node(Runs::All).await;
    let clock = Clock::start();
    let (mut slowest, mut accepted) = (Duration::ZERO, 0);
    let live = async {
        loop {
            let began = clock.monotonic();
            node.accept(scene.tenant, "{}").await;
            slowest = slowest.max(clock.monotonic() - began);
            accepted += 1;
        }
    };
    tokio::select! {
        () = async { tokio::join!(steps(&scene), steps(&scene), steps(&scene)); } => {}
        () = live => {}
    }
    assert!(accepted > 20 && slowest < PROMPT, "{accepted}: {slowest:?}");
    scene.rows.run("SELECT pg_stat_clear_snapshot()").await;
    assert_eq!(scene.rows.number(DEADLOCKS).await, 0);
    scene.round().await;
    let kept = (
        scene.rows.number(NOT_KEPT).await,
        scene.rows.number(OVER).await,
    );
    assert_eq!(kept, (0, 0));
    assert_eq!(scene.rows.number(KEPT_EVENTS).await, alive);
}

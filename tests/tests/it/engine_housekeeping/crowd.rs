//! Several nodes at once, readers in the way, and nodes that die or hang in the middle (G06, G08).

use posthorn_domain::limits;
use posthorn_domain::retention::Retention;
use posthorn_store::housekeeping::{self, Turn};
use posthorn_store::partitions;
use posthorn_tests::engine::Runs;
use sqlx::Executor as _;

use super::{KEPT_EVENTS, OLD_LEAVES, WITHOUT_PAYLOAD, day_of, days};
use crate::engine_leaves::NO_EVENTS;
use crate::engine_scene::Scene;

/// 600 old deliveries: a third pending, a third dead letters whose time is over, a third younger ones.
const CROWD: [&str; 5] = [
    "INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload)
     SELECT e.tenant_id, (left(e.id::text, 14) || '7' || lpad(to_hex(n), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 0,
            e.type, e.endpoints, 0, 2, '{}'
     FROM events AS e, generate_series(1, 600) AS n",
    "DELETE FROM events WHERE substr(id::text, 20, 4) <> '8000'",
    "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT tenant_id, endpoints[1], id, get_byte(uuid_send(endpoints[1]), 15), now() + interval '1 hour', 2, 1, 1, now() + interval '1 day', 'retry'
     FROM events WHERE get_byte(uuid_send(id), 15) % 3 = 0",
    "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
     SELECT tenant_id, endpoints[1], id, type, 'exhausted', 1, now() - interval '91 days'
     FROM events WHERE get_byte(uuid_send(id), 15) % 3 = 1",
    "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
     SELECT tenant_id, endpoints[1], id, type, 'exhausted', 1, now()
     FROM events WHERE get_byte(uuid_send(id), 15) % 3 = 2",
];

pub(super) const DEADLOCKS: &str =
    "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";

/// Pending rows and dead letters whose event is not kept.
pub(super) const NOT_KEPT: &str = "SELECT count(*) FROM (SELECT tenant_id, event_id FROM pending UNION SELECT tenant_id, event_id FROM dead_letters) AS l
     WHERE NOT EXISTS (SELECT 1 FROM kept_events AS k WHERE k.tenant_id = l.tenant_id AND k.id = l.event_id)";

async fn crowd() -> Scene {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    scene.old(&endpoint, 100).await;
    for statement in CROWD {
        scene.rows.run(statement).await;
    }
    scene
}

/// All the steps of a round, whoever else is doing them.
pub(super) async fn steps(scene: &Scene) {
    let mut housekeeper = scene.housekeeper().await;
    loop {
        let (found, removed) = housekeeper.remove_dead_letters(days(90)).await.unwrap();
        if found == 0 || removed == 0 {
            break;
        }
    }
    let next = housekeeper.next_floor(days(30)).await.unwrap();
    housekeeper.keep(next).await.unwrap();
    let floor = housekeeper.raise_floor(days(30)).await.unwrap();
    housekeeper.keep(floor.floor).await.unwrap();
    housekeeper.kept(floor.floor).await.unwrap();
    for leaf in housekeeper.leaves().await.unwrap() {
        if leaf.end().unwrap() <= floor.floor.minted_at() {
            housekeeper.empty(leaf.day).await.unwrap();
        }
    }
    housekeeper.remove_kept().await.unwrap();
}

/// G06, INV-2: whoever loses the turn goes on, so that two or three are at it for a while.
#[tokio::test]
async fn engine_housekeeping_by_three_nodes_at_once_ends_in_no_deadlock_and_keeps_what_lives() {
    let scene = crowd().await;
    tokio::join!(steps(&scene), steps(&scene), steps(&scene));
    scene.rows.run("SELECT pg_stat_clear_snapshot()").await;
    assert_eq!(scene.rows.number(DEADLOCKS).await, 0);
    scene.round().await;
    let kept = scene.rows.number(KEPT_EVENTS).await;
    assert_eq!(
        (
            scene.rows.number(NOT_KEPT).await,
            scene.rows.number(WITHOUT_PAYLOAD).await
        ),
        (0, 0)
    );
    assert_eq!(kept, 400);
}

/// G06: one node does it, the others go their way.
#[tokio::test]
async fn engine_housekeeping_is_one_nodes_turn_until_it_hangs_for_too_long() {
    let scene = Scene::begin().await;
    let database = scene.database.pools(2, 1);
    scene.rows.travel_to_round().await;
    let take = async |holder| housekeeping::take(&database, holder).await.unwrap();
    assert_eq!(take(1).await, Turn::OursWithRound);
    assert_eq!(take(2).await, Turn::Anothers);
    scene
        .rows
        .run("UPDATE housekeeping SET held_until = held_until - interval '15 minutes'")
        .await;
    assert_eq!(take(2).await, Turn::OursWithRound);
    // Who hung comes back, and what it says no longer counts.
    assert!(!housekeeping::finished(&database, 1).await.unwrap());
    housekeeping::give_back(&database, 1).await.unwrap();
    assert_eq!(take(1).await, Turn::Anothers);
}

/// INV-7, INV-11: a turn ends by itself before the next may begin.
#[test]
fn engine_housekeeping_is_held_for_longer_than_a_turn_can_last() {
    assert!(limits::HOUSEKEEPING_HOLD > limits::LONG_STEP);
}

/// G06: what waits is never the traffic.
#[tokio::test]
async fn engine_housekeeping_waits_for_a_reader_of_an_old_leaf_and_nobody_waits_for_it() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let key = scene.old(&endpoint, 40).await;
    scene.round().await;
    let second = scene.old(&endpoint, 38).await;
    let node = scene.node(Runs::All).await;
    let mut reader = scene.database.superuser().await;
    reader
        .execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM events; SELECT count(*) FROM attempts")
        .await
        .unwrap();
    let house = scene.house(Retention::default());
    scene.rows.travel_to_round().await;
    let keeping = tokio::spawn(async move { house.run_once().await.unwrap().round.unwrap() });
    let mut accepted = 0;
    while !keeping.is_finished() || accepted == 0 {
        node.accept(scene.tenant, "{}").await;
        accepted += 1;
    }
    let round = keeping.await.unwrap();
    assert_eq!((round.emptied, round.dropped, round.in_use), (0, 0, 2));
    reader.execute("COMMIT").await.unwrap();
    let round = scene.round().await;
    assert_eq!((round.emptied, round.dropped), (1, 1));
    assert!(day_of(key.event) < day_of(second.event));
}

/// INV-2: killed after any step, the next node begins anew and ends it.
#[tokio::test]
async fn engine_housekeeping_is_ended_by_another_node_wherever_the_first_was_killed() {
    for killed_after in 0..6 {
        let scene = crowd().await;
        let mut first = scene.housekeeper().await;
        let next = first.next_floor(days(30)).await.unwrap();
        for step in 0..killed_after {
            match step {
                0 => drop(first.remove_dead_letters(days(90)).await.unwrap()),
                1 | 3 => drop(first.keep(next).await.unwrap()),
                2 => drop(first.raise_floor(days(30)).await.unwrap()),
                4 => drop(first.kept(next).await.unwrap()),
                _ => drop(first.remove_kept().await.unwrap()),
            }
        }
        drop(first);
        scene.round().await;
        let left = (
            scene.rows.events().await.len(),
            scene.rows.number(NOT_KEPT).await,
            scene.rows.number(KEPT_EVENTS).await,
        );
        assert_eq!(left, (0, 0, 400), "killed after step {killed_after}");
    }
}

/// G08: the clock has passed the last leaf; two nodes find it so at the same moment.
#[tokio::test]
async fn engine_housekeeping_makes_missing_leaves_once_though_two_nodes_make_them() {
    let scene = Scene::begin().await;
    scene.rows.run(NO_EVENTS).await;
    let (first, second) = (scene.database.pools(2, 1), scene.database.pools(2, 1));
    assert_eq!(partitions::days_ready(&first).await.unwrap(), 0);
    let (one, two) = tokio::join!(
        partitions::make_ahead(&first),
        partitions::make_ahead(&second)
    );
    assert_eq!(one.unwrap() + two.unwrap(), 9);
    assert_eq!(partitions::days_ready(&first).await.unwrap(), 8);
}

/// G08: a table that only has the name of a leaf would be an insert that fails.
#[tokio::test]
async fn engine_housekeeping_does_not_take_a_table_for_a_leaf_because_of_its_name() {
    let scene = Scene::begin().await;
    let leaf = "DO $$ BEGIN
             EXECUTE format('ALTER TABLE events DETACH PARTITION %I', 'events_' || to_char((now() AT TIME ZONE 'UTC')::date + 3, 'YYYYMMDD'));
         END $$";
    scene.rows.run(leaf).await;
    let database = scene.database.pools(2, 1);
    assert_eq!(partitions::days_ready(&database).await.unwrap(), 3);
    partitions::make_ahead(&database).await.unwrap_err();
    assert_eq!(scene.rows.number(OLD_LEAVES).await, 0);
}

//! Recovery: what a closed stream left open, and nothing else, becomes pending (INV-2).

use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use posthorn_store::recover::{Recoverer, recover};
use posthorn_store::{oracle, shards};
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::receiver::Reply;
use posthorn_tests::rows::delivery;
use posthorn_tests::tenants::TestEndpoint;

use crate::engine_scene::Scene;

/// A stream with one accepted event that nothing has sent, then closed.
struct Left {
    scene: Scene,
    endpoint: TestEndpoint,
    event: EventId,
    stream: i64,
    node: Node,
}

impl Left {
    async fn open() -> Self {
        let scene = Scene::begin().await;
        let endpoint = scene.endpoint("/hook").await;
        let node = scene.node(Runs::AcceptOnly).await;
        let event = node.accept(scene.tenant, "{}").await.id;
        let stream = node.keeper.present().unwrap().id();
        Self {
            scene,
            endpoint,
            event,
            stream,
            node,
        }
    }

    /// The node dies, as far as the others can tell.
    async fn close(&self) {
        self.scene.close_as_another(self.stream).await;
    }

    async fn recover(&self) -> u64 {
        recover(&self.node.database, self.stream).await.unwrap()
    }

    /// Closes, recovers, and tells how many rows that made.
    async fn closed_and_recovered(&self) -> u64 {
        self.close().await;
        self.recover().await
    }

    fn key(&self) -> posthorn_store::record::DeliveryKey {
        delivery(self.scene.tenant, self.endpoint.id, self.event)
    }
}

/// INV-2.
#[tokio::test]
async fn engine_recover_writes_an_open_delivery_into_pending_due_at_once() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    let row = left.scene.rows.pending(left.key()).await.unwrap();
    assert_eq!(
        (row.n, row.step, row.why.as_str(), row.due.is_some()),
        (1, 0, "recovered", true)
    );
}

/// INV-2: the end of a delivery counts from accept, not from the crash.
#[tokio::test]
async fn engine_recover_counts_a_deliverys_end_from_its_accept() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    let wrong = left
        .scene
        .rows
        .number(
            "SELECT count(*) FROM pending JOIN endpoints ON id = endpoint_id
             WHERE ends_at <> posthorn_uuid_time(event_id) + make_interval(secs => max_age_s)",
        )
        .await;
    assert_eq!(wrong, 0);
}

/// INV-6: two nodes may take up the same stream.
#[tokio::test]
async fn engine_recover_done_twice_changes_nothing() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    let before = left.scene.rows.pending(left.key()).await;
    left.scene
        .rows
        .run("UPDATE nodes SET state = 'closed' WHERE state = 'recovered'")
        .await;
    let written = left.recover().await;
    let after = left.scene.rows.pending(left.key()).await;
    assert_eq!((written, after), (0, before));
}

/// INV-2.
#[tokio::test]
async fn engine_recover_marks_the_stream_recovered() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    assert_eq!(left.scene.rows.node_state(left.stream).await, "recovered");
}

/// A live stream is its own node's.
#[tokio::test]
async fn engine_recover_leaves_an_open_stream_alone() {
    let left = Left::open().await;
    assert_eq!(left.recover().await, 0);
}

/// Makes every pending row an ended delivery of another kind, after a first failed attempt.
const ATTEMPT: &str =
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
     SELECT tenant_id, endpoint_id, id, 1, (1::bigint << 32) + 7, 'success', now(), 1, NULL, 1 FROM events, unnest(endpoints) AS x (endpoint_id)";

const VERDICT: &str =
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
     SELECT tenant_id, endpoint_id, id, 1, 1::bigint << 32, 'discarded', now(), 0, NULL, 1 FROM events, unnest(endpoints) AS x (endpoint_id)";

const FAILURE: &str =
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
     SELECT tenant_id, endpoint_id, id, 1, (1::bigint << 32) + 7, 'failed', now(), 1, NULL, 1 FROM events, unnest(endpoints) AS x (endpoint_id)";

const DEAD_LETTER: &str =
    "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
     SELECT tenant_id, endpoint_id, id, type, 'exhausted', 1, now() FROM events, unnest(endpoints) AS x (endpoint_id)";

const PARKED: &str =
    "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, n, step, since, ends_at, why)
     SELECT tenant_id, endpoint_id, id, get_byte(uuid_send(endpoint_id), 15), 3, 2, 1, now() + interval '1 day', 'paused'
     FROM events, unnest(endpoints) AS x (endpoint_id)";

/// How many rows recovery writes where this was done before.
async fn recovered_after(statement: &'static str) -> u64 {
    let left = Left::open().await;
    assert_eq!(left.scene.rows.run(statement).await, 1);
    left.closed_and_recovered().await
}

/// INV-6.
#[tokio::test]
async fn engine_recover_leaves_a_delivery_with_a_success_alone() {
    assert_eq!(recovered_after(ATTEMPT).await, 0);
}

/// INV-2.
#[tokio::test]
async fn engine_recover_leaves_a_delivery_with_a_verdict_alone() {
    assert_eq!(recovered_after(VERDICT).await, 0);
}

/// INV-2.
#[tokio::test]
async fn engine_recover_leaves_a_dead_letter_alone() {
    assert_eq!(recovered_after(DEAD_LETTER).await, 0);
}

/// INV-2.
#[tokio::test]
async fn engine_recover_leaves_a_pending_row_as_it_is() {
    assert_eq!(recovered_after(PARKED).await, 0);
}

/// D24.
#[tokio::test]
async fn engine_recover_leaves_a_delivery_of_a_deleted_endpoint_alone() {
    let left = Left::open().await;
    left.scene.tenants.delete(&left.endpoint).await;
    assert_eq!(left.closed_and_recovered().await, 0);
}

/// INV-5: numbers count for ever, across a crash.
#[tokio::test]
async fn engine_recover_goes_on_counting_after_a_failed_attempt() {
    let left = Left::open().await;
    left.scene.rows.run(FAILURE).await;
    left.closed_and_recovered().await;
    let row = left.scene.rows.pending(left.key()).await.unwrap();
    assert_eq!((row.n, row.step), (2, 1));
}

/// INV-2: all at once, through another node's own steps, to the request.
#[tokio::test]
async fn engine_recover_hands_a_dead_nodes_deliveries_to_a_live_one() {
    let left = Left::open().await;
    let Left {
        scene,
        node,
        stream,
        ..
    } = left;
    // The process is gone: nobody renews.
    drop(node);
    let other = scene.node(Runs::WithoutLease).await;
    scene.close_as_another(stream).await;
    other.keeping.run_once().await;
    other.recovery.run_once().await;
    other.keeping.run_once().await;
    other.due.run_once().await;
    assert_eq!(scene.receiver.wait_for("/hook", 1, AMPLE).await.len(), 1);
}

/// INV-2: the oracle agrees.
#[tokio::test]
async fn engine_recover_leaves_nothing_for_the_oracle_to_find() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    let lost = oracle::lost(&left.node.database, 10).await.unwrap();
    assert_eq!(lost, []);
}

/// INV-2: an oracle that finds nothing when something is missing would prove nothing.
#[tokio::test]
async fn engine_recover_oracle_finds_a_delivery_that_is_removed_on_purpose() {
    let left = Left::open().await;
    left.closed_and_recovered().await;
    left.scene.rows.run("DELETE FROM pending").await;
    let lost = oracle::lost(&left.node.database, 10).await.unwrap();
    assert_eq!(
        lost.iter()
            .map(|delivery| (delivery.event, delivery.endpoint))
            .collect::<Vec<_>>(),
        [(left.event, left.endpoint.id)]
    );
}

/// INV-2: a watermark that passed an open delivery is found too, in a stream that is still open.
#[tokio::test]
async fn engine_recover_oracle_finds_an_open_delivery_below_its_streams_watermark() {
    let left = Left::open().await;
    left.scene
        .rows
        .run("UPDATE nodes SET watermark = 'ffffffff-ffff-7fff-bfff-ffffffffffff'")
        .await;
    let lost = oracle::lost(&left.node.database, 10).await.unwrap();
    assert_eq!(lost.len(), 1);
}

/// INV-2: the watermark stays below what is not resolved, however often the lease is renewed.
#[tokio::test]
async fn engine_recover_watermark_stays_below_an_unsent_delivery() {
    let left = Left::open().await;
    left.node.keeping.run_once().await;
    let lost = oracle::lost(&left.node.database, 10).await.unwrap();
    assert_eq!(lost, []);
}

/// INV-2: and rises above what is resolved, so that recovery reads little.
#[tokio::test]
async fn engine_recover_watermark_rises_above_what_was_delivered() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    node.keeping.run_once().await;
    let above = scene
        .rows
        .number("SELECT count(*) FROM events JOIN nodes USING (stream) WHERE id > watermark")
        .await;
    assert_eq!(above, 0);
}

/// INV-2: sent, and still open when the node dies: again, under the same id.
#[tokio::test]
async fn engine_recover_sends_again_what_was_under_way_when_the_node_died() {
    let scene = Scene::begin().await;
    scene.receiver.script("/hook", Reply::hang());
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    let accepted = node.accept(scene.tenant, "{}").await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    scene.receiver.script("/hook", Reply::status(200));
    let stream = node.keeper.present().unwrap().id();
    drop(node);
    let other = scene.node(Runs::WithoutLease).await;
    scene.close_as_another(stream).await;
    other.recovery.run_once().await;
    other.keeping.run_once().await;
    other.due.run_once().await;
    let requests = scene.receiver.wait_for("/hook", 2, AMPLE).await;
    assert_eq!(
        requests[1].header("webhook-id"),
        Some(accepted.id.to_string().as_str())
    );
}

/// INV-6: a closed stream's shards are taken up by whoever lives.
#[tokio::test]
async fn engine_recover_gives_a_dead_nodes_shards_to_a_live_one() {
    let scene = Scene::begin().await;
    let dead = scene.node(Runs::WithoutLease).await;
    let live = scene.node(Runs::WithoutLease).await;
    scene
        .close_as_another(dead.keeper.present().unwrap().id())
        .await;
    // The other's lease lapsed with it, and may be renewed.
    live.keeping.run_once().await;
    let stream = live.keeper.present().unwrap().id();
    let share = shards::take(&live.database, stream).await.unwrap();
    assert_eq!(share.owned.len(), 256);
}

/// INV-2: ids never go back, not even when the database's clock is set back between two leases.
#[tokio::test]
async fn engine_recover_finds_events_that_are_newer_than_their_streams_lease() {
    let left = Left::open().await;
    left.close().await;
    left.scene
        .rows
        .run("UPDATE nodes SET lease_until = now() - interval '1 hour' WHERE state = 'closed'")
        .await;
    assert_eq!(left.recover().await, 1);
}

/// 400 events of two seconds, of the stream that is closed, for each of 50 endpoints.
const MANY: &str =
    "INSERT INTO events (tenant_id, id, stream, type, endpoints, content_type, codec, size, payload)
     SELECT e.tenant_id, (left(posthorn_uuid_floor(now() - interval '2 minutes' + n * interval '5 ms')::text, 14)
                          || '7' || lpad(to_hex(n % 4096), 3, '0') || '-8000-' || lpad(to_hex(n), 12, '0'))::uuid,
            nodes.stream, 'order.paid', array_agg(e.id), 'application/json', 0, 2, '{}'
     FROM endpoints AS e, nodes, generate_series(1, 400) AS n
     WHERE nodes.state = 'closed'
     GROUP BY e.tenant_id, nodes.stream, n";

const PENDING: &str = "SELECT count(*) FROM pending";

impl Left {
    /// The stream is closed, and nothing in it has been looked at since this long ago.
    async fn closed_with_a_watermark(&self, ago: &'static str) {
        self.close().await;
        self.scene.rows.run(ago).await;
    }

    async fn recoverer(&self) -> Recoverer {
        let begun = Recoverer::begin(&self.node.database, self.stream).await;
        begun.unwrap().unwrap()
    }
}

/// INV-11: a watermark that stood still for long is no reason for as many statements as it is seconds old.
#[tokio::test]
async fn engine_recover_of_a_stream_whose_watermark_is_days_old_takes_few_steps() {
    let left = Left::open().await;
    left.closed_with_a_watermark(
        "UPDATE nodes SET watermark = posthorn_uuid_floor(now() - interval '6 days') WHERE state = 'closed'",
    )
    .await;
    let mut recoverer = left.recoverer().await;
    let (mut steps, mut written) = (0, 0);
    while let Some(rows) = recoverer.step().await.unwrap() {
        steps += 1;
        written += rows;
    }
    assert_eq!(written, 1);
    assert!(steps <= 20, "{steps}");
}

/// INV-2: a recovery that is killed leaves a watermark that tells the truth, and the next goes on from there.
#[tokio::test]
async fn engine_recover_goes_on_where_a_recovery_that_was_killed_had_come_to() {
    let left = Left::open().await;
    left.scene
        .rows
        .multiply_endpoint(left.endpoint.id, 49)
        .await;
    left.closed_with_a_watermark(
        "UPDATE nodes SET watermark = posthorn_uuid_floor(now() - interval '3 minutes') WHERE state = 'closed'",
    )
    .await;
    left.scene.rows.run(MANY).await;
    let mut killed = left.recoverer().await;
    let mut written = 0;
    while written == 0 {
        written = killed.step().await.unwrap().unwrap();
    }
    drop(killed);
    let above = "SELECT count(*) FROM events JOIN nodes USING (stream) WHERE id > watermark";
    let before = left.scene.rows.number(above).await;
    assert!((1..401).contains(&before), "{before} left");
    assert_eq!(oracle::lost(&left.node.database, 10).await.unwrap(), []);
    let rest = left.recover().await;
    assert_eq!(left.scene.rows.number(PENDING).await, 400 * 50 + 1);
    assert_eq!(written + rest, 400 * 50 + 1);
    assert_eq!(oracle::lost(&left.node.database, 10).await.unwrap(), []);
}

/// INV-11: no statement writes more than so many rows, however full the log is.
#[tokio::test]
async fn engine_recover_writes_no_more_rows_at_a_time_than_it_may() {
    let left = Left::open().await;
    left.scene
        .rows
        .multiply_endpoint(left.endpoint.id, 49)
        .await;
    left.closed_with_a_watermark(
        "UPDATE nodes SET watermark = posthorn_uuid_floor(now() - interval '2 hours') WHERE state = 'closed'",
    )
    .await;
    left.scene.rows.run(MANY).await;
    let mut recoverer = left.recoverer().await;
    let mut most = 0;
    while let Some(rows) = recoverer.step().await.unwrap() {
        most = most.max(rows);
    }
    let may = u64::try_from(limits::RECOVER_DELIVERIES).unwrap();
    assert!((1..=may).contains(&most), "{most}");
    assert_eq!(left.scene.rows.number(PENDING).await, 400 * 50 + 1);
}

//! Piles: what is due or parked in plenty for some endpoints hides no delivery of another (INV-13).
//!
//! Nothing is sent where only the queues matter: the nodes here mostly hold what they take.

use posthorn_domain::delivery::Why;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::id::{EndpointId, EventId};
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::pending::{self, ParkedEndpoint};
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::tenants::TestEndpoint;

use crate::engine_scene::Scene;

/// Scans that see any backlog here from end to end, with some to spare.
const SCANS: usize = 24;

impl Scene {
    /// A node that takes what is due, and sends nothing.
    async fn holding_node(&self) -> Node {
        self.node(Runs::AcceptOnly).await
    }

    /// So many rows, due an hour ago, for each of so many endpoints that never answer: nobody's here.
    async fn backlog(&self, endpoints: u32, rows: u32) {
        for _ in 0..endpoints {
            let id = EndpointId::mint(Clock::start().now(), Entropy.bytes());
            self.rows.fill_pending(self.tenant, id, rows).await;
        }
    }

    /// One due row of an endpoint of another tenant, later than all the others.
    async fn single(&self) -> TestEndpoint {
        let other = self.tenants.tenant().await;
        let single = self
            .tenants
            .endpoint(other, &self.receiver.url("/single"))
            .await;
        self.rows.fill_pending(other, single.id, 1).await;
        single
    }

    async fn parked_and_due(&self) -> (i64, i64) {
        let parked = "SELECT count(*) FROM pending WHERE due IS NULL";
        let due = "SELECT count(*) FROM pending WHERE due <= now()";
        (self.rows.number(parked).await, self.rows.number(due).await)
    }
}

/// Whether the node took the endpoint's row within some scans.
async fn taken(node: &Node, single: &TestEndpoint) -> bool {
    for _ in 0..SCANS {
        node.due.run_once().await;
        if !node.dispatcher.holding(single.tenant, single.id).is_empty() {
            return true;
        }
    }
    false
}

/// INV-13: however few rows of a full endpoint a scan meets, they are parked; what the node holds is not.
#[tokio::test]
async fn engine_park_parks_what_comes_due_of_an_endpoint_that_is_full() {
    let scene = Scene::begin().await;
    let node = scene.holding_node().await;
    let id = EndpointId::mint(Clock::start().now(), Entropy.bytes());
    scene.rows.fill_pending(scene.tenant, id, 64).await;
    node.due.run_once().await;
    assert_eq!(scene.parked_and_due().await, (0, 64));
    scene.rows.fill_pending(scene.tenant, id, 30).await;
    node.due.run_once().await;
    assert_eq!(scene.parked_and_due().await, (30, 64));
}

/// INV-13: eight endpoints of twelve have more due than there is room for and the database refuses to park any of it, one
/// endpoint after the other; the rest of the others is parked all the same.
#[tokio::test]
async fn engine_park_that_fails_for_some_endpoints_parks_the_others() {
    let scene = Scene::begin().await;
    scene.backlog(12, 70).await;
    let refused = "UPDATE pending SET n = 7 WHERE endpoint_id IN (SELECT DISTINCT endpoint_id FROM pending ORDER BY 1 LIMIT 8)";
    assert_eq!(scene.rows.run(refused).await, 8 * 70);
    let refuse = "ALTER TABLE pending ADD CONSTRAINT stays_due CHECK (due IS NOT NULL OR n <> 7)";
    scene.rows.run(refuse).await;
    let node = scene.holding_node().await;
    node.due.run_once().await;
    assert_eq!(scene.parked_and_due().await, (4 * 6, 8 * 70 + 4 * 64));
}

/// INV-13, INV-6: the rows that stay due are those that the node holds.
#[tokio::test]
async fn engine_park_leaves_due_exactly_what_the_node_holds() {
    let scene = Scene::begin().await;
    let node = scene.holding_node().await;
    let id = EndpointId::mint(Clock::start().now(), Entropy.bytes());
    scene.rows.fill_pending(scene.tenant, id, 500).await;
    node.due.run_once().await;
    let mut held = node.dispatcher.holding(scene.tenant, id);
    held.sort();
    assert_eq!(held.len(), limits::DUE_ROWS_PER_ENDPOINT);
    let mut due: Vec<_> = Vec::new();
    for event in scene.rows.events().await {
        let event = EventId::from_uuid(event.id);
        let key = posthorn_tests::rows::delivery(scene.tenant, id, event);
        if scene.rows.pending(key).await.unwrap().due.is_some() {
            due.push(event);
        }
    }
    assert_eq!(due, held);
}

/// INV-13: 64 endpoints with 200 due rows each, in turn; no scan meets more than a few of any one.
#[tokio::test]
async fn engine_park_takes_anothers_retry_behind_an_interleaved_backlog() {
    let scene = Scene::begin().await;
    scene.backlog(64, 200).await;
    let interleave = "UPDATE pending AS p SET due = now() - interval '1 hour' + place.n * interval '1 ms'
         FROM (SELECT endpoint_id, event_id, row_number() OVER (PARTITION BY endpoint_id ORDER BY event_id) AS n FROM pending) AS place
         WHERE p.endpoint_id = place.endpoint_id AND p.event_id = place.event_id";
    scene.rows.run(interleave).await;
    let single = scene.single().await;
    let node = scene.holding_node().await;
    assert!(taken(&node, &single).await);
}

/// INV-13: more rows of one and the same time than a scan takes, none of which has to be parked.
#[tokio::test]
async fn engine_park_takes_anothers_retry_behind_a_backlog_of_one_moment() {
    let scene = Scene::begin().await;
    scene.backlog(24, 60).await;
    let moment = "UPDATE pending SET due = date_trunc('minute', now()) - interval '1 hour'";
    scene.rows.run(moment).await;
    let single = scene.single().await;
    let node = scene.holding_node().await;
    assert!(taken(&node, &single).await);
}

/// INV-13: more paused endpoints with parked rows than one page lists, all in shards before the other's.
#[tokio::test]
async fn engine_park_drains_an_endpoint_behind_a_crowd_that_waits() {
    let scene = Scene::begin().await;
    let paused = scene.endpoint("/paused").await;
    scene.tenants.set(&paused, EndpointState::Paused).await;
    scene.rows.run(CROWD).await;
    scene.rows.run(CROWDS_ROWS).await;
    let parked = scene.parked_and_due().await.0;
    assert!(parked > limits::PARK_SWEEP_ENDPOINTS, "{parked}");
    // Its shard lies behind those of the crowd.
    let mut other = scene.endpoint("/other").await;
    while other.id.shard() < 37 {
        other = scene.endpoint("/other").await;
    }
    scene.rows.fill_pending(scene.tenant, other.id, 1).await;
    let park = "UPDATE pending SET due = NULL WHERE due IS NOT NULL";
    assert_eq!(scene.rows.run(park).await, 1);
    let node = scene.node(Runs::All).await;
    node.parking.run_once().await;
    assert_eq!(scene.receiver.wait_for("/other", 1, AMPLE).await.len(), 1);
}

/// 4,300 more endpoints like the one that is there, in the first shard.
const CROWD: &str = "INSERT INTO endpoints
     SELECT (jsonb_populate_record(e, jsonb_build_object('id', left(e.id::text, 24) || lpad(to_hex(n), 10, '0') || '00'))).*
     FROM endpoints AS e, generate_series(1, 4300) AS n";

/// A parked row for each.
const CROWDS_ROWS: &str = "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
     SELECT tenant_id, id, id, 0, NULL, 1, 0, 1, now() + interval '1 day', 'paused' FROM endpoints
     WHERE get_byte(uuid_send(id), 15) = 0";

impl Scene {
    /// An endpoint with so many due rows, of which the database's statistics know nothing.
    async fn unknown_pile(&self, rows: u32) -> (Database, ParkedEndpoint) {
        let own = "ALTER TABLE pending SET (autovacuum_enabled = off)";
        self.rows.run(own).await;
        let endpoint = self.endpoint("/pile").await;
        self.rows.fill_pending(self.tenant, endpoint.id, rows).await;
        let of = ParkedEndpoint {
            tenant: self.tenant,
            endpoint: endpoint.id,
        };
        (self.database.pools(2, 2), of)
    }
}

/// INV-11, INV-13: a statement that took each row of a pile with each would be ended by its time limit, and again.
#[tokio::test]
async fn engine_park_parks_a_pile_that_no_statistics_know() {
    let scene = Scene::begin().await;
    let (database, of) = scene.unknown_pile(10_000).await;
    let parked = pending::park_due(&database, of.tenant, of.endpoint, Why::Capacity, &[]).await;
    assert_eq!(parked.unwrap(), 10_000);
    assert_eq!(scene.parked_and_due().await, (10_000, 0));
}

/// The same where the rows end, a thousand at a time: all of them in the time that one statement has.
#[tokio::test]
async fn engine_park_ends_a_pile_that_no_statistics_know() {
    let scene = Scene::begin().await;
    let (database, of) = scene.unknown_pile(20_000).await;
    let over = "UPDATE pending SET due = NULL, ends_at = now() - interval '1 second'";
    scene.rows.run(over).await;
    let clock = Clock::start();
    let began = clock.monotonic();
    for _ in 0..10 {
        assert_eq!(pending::expire(&database, of).await.unwrap(), 1_000);
    }
    assert_eq!(pending::cancel(&database, of).await.unwrap(), 0);
    let gone = "UPDATE endpoints SET deleted_at = now()";
    scene.rows.run(gone).await;
    for _ in 0..10 {
        assert_eq!(pending::cancel(&database, of).await.unwrap(), 1_000);
    }
    let took = clock.monotonic().duration_since(began);
    assert!(took < limits::STATEMENT_TIMEOUT, "{took:?}");
    assert_eq!(scene.parked_and_due().await, (0, 0));
    let ended = "SELECT count(*) FROM attempts WHERE outcome = 'cancelled'";
    assert_eq!(scene.rows.number(ended).await, 10_000);
}

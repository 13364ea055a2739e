//! The lists that the API offers: a page costs what the page holds, however long the list is.
//!
//! Told by the rows that PostgreSQL fetched, from tables and by indexes alike: a list that is sorted before it is cut reads
//! no table whole where an index leads to its rows, and reads them all.

use chrono::TimeDelta;
use posthorn_domain::id::{DeliveryId, EndpointId};
use posthorn_store::read::{
    self, DeadLetterFilter, DeadLetterKey, Edge, EventFilter, Order, PageKey, Slice,
};

use super::*;

/// Rows of a page.
const PAGE: u32 = 50;

/// Pages of each list that are read, on one connection: more than PostgreSQL plans anew before it keeps a general plan.
const PAGES: usize = 8;

/// Rows that may be fetched for each row of a page: itself, what belongs to it in five tables, and the tenant's walls.
const FOR_EACH: i64 = 12;

/// 3,000 endpoints like the one that is there; the last event is for all of them, and each has tried it once.
const MORE: [&str; 4] = [
    "INSERT INTO endpoints
     SELECT (jsonb_populate_record(e, jsonb_build_object('id', left(e.id::text, 24) || lpad(to_hex(n), 12, '0')))).*
     FROM endpoints AS e, generate_series(1, 3000) AS n",
    "UPDATE events SET endpoints = (SELECT array_agg(id ORDER BY id) FROM endpoints) WHERE id = (SELECT max(id::text)::uuid FROM events)",
    "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
     SELECT e.tenant_id, e.id, (SELECT max(id::text)::uuid FROM events), 1, (1::bigint << 32) + 2, 'failed', now(), 5, NULL, 1 FROM endpoints AS e",
    "VACUUM ANALYZE",
];

/// Rows that were fetched, whichever way.
const FETCHED: &str = "SELECT COALESCE(sum(COALESCE(seq_tup_read, 0) + COALESCE(idx_tup_fetch, 0)), 0)::bigint FROM pg_stat_user_tables";

impl Seeded {
    async fn with_endpoints() -> Self {
        let seeded = Self::begin().await;
        for statement in MORE {
            seeded.scene.rows.run(statement).await;
        }
        seeded
    }

    fn scope(&self) -> TenantScope {
        TenantScope::new_authenticated(self.key.tenant, Actor::COMMAND_LINE)
    }

    /// Asserts that `page` fetches no more than its rows need, in both orders, from the beginning and from the middle.
    async fn walks<K: PageKey>(&self, middle: K, page: impl AsyncFn(&Database, Slice<K>) -> usize) {
        self.walks_beside(0, middle, page).await;
    }

    /// The same, where each page may fetch so many rows more.
    async fn walks_beside<K: PageKey>(
        &self,
        besides: i64,
        middle: K,
        page: impl AsyncFn(&Database, Slice<K>) -> usize,
    ) {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for edge in [Edge::Start, Edge::After(middle), Edge::Before(middle)] {
                let slice = Slice {
                    order,
                    edge,
                    limit: PAGE,
                };
                let mut given = 0;
                let fetched = self
                    .counted(FETCHED, async |database| {
                        for _ in 0..PAGES {
                            given += page(database, slice).await;
                        }
                    })
                    .await;
                assert_eq!(given, PAGES * PAGE as usize, "{order:?}");
                let rows = FOR_EACH * i64::try_from(given).unwrap();
                let most = rows + besides * i64::try_from(PAGES).unwrap();
                assert!(fetched <= most, "{order:?}: {fetched} of {most}");
            }
        }
    }
}

/// G23.
#[tokio::test]
async fn engine_plans_of_the_list_of_events_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let events = seeded.scene.rows.events().await;
    let middle = EventId::from_uuid(events[events.len() / 2].id);
    for since in [None, Some(Clock::start().now() - TimeDelta::days(1))] {
        let filter = EventFilter {
            since,
            until: since.map(|since| since + TimeDelta::days(2)),
        };
        let list = async |database: &Database, slice| {
            let page = read::events(database, seeded.scope(), filter, slice).await;
            page.unwrap().rows.len()
        };
        seeded.walks(middle, list).await;
    }
}

/// G23.
#[tokio::test]
async fn engine_plans_of_the_list_of_endpoints_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let list = async |database: &Database, slice| {
        let page = read::endpoints(database, seeded.scope(), slice).await;
        page.unwrap().rows.len()
    };
    seeded.walks(seeded.middle_endpoint().await, list).await;
}

/// G23: an event that is for 3,000 endpoints.
#[tokio::test]
async fn engine_plans_of_the_list_of_deliveries_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let list = async |database: &Database, slice| {
        let page = read::deliveries(database, seeded.scope(), seeded.key.event, slice).await;
        page.unwrap().unwrap().rows.len()
    };
    seeded.walks(seeded.middle_endpoint().await, list).await;
}

/// G23: the attempts of an endpoint with 12,000 events.
#[tokio::test]
async fn engine_plans_of_the_list_of_an_endpoints_attempts_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let (scope, endpoint) = (seeded.scope(), seeded.key.endpoint);
    let whole = Slice {
        order: Order::OldestFirst,
        edge: Edge::Start,
        limit: 1500,
    };
    let database = seeded.scene.database.pools(1, 1);
    let half = read::attempts_of_endpoint(&database, scope, endpoint, whole).await;
    database.close().await;
    let middle = half.unwrap().rows.pop().unwrap().key();
    let list = async |database: &Database, slice| {
        let page = read::attempts_of_endpoint(database, scope, endpoint, slice).await;
        page.unwrap().rows.len()
    };
    seeded.walks(middle, list).await;
}

/// G23: one delivery with as many attempts as a policy allows.
#[tokio::test]
async fn engine_plans_of_the_list_of_a_deliverys_attempts_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let tried = "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, config_seq)
         SELECT tenant_id, endpoint_id, event_id, k, k::bigint << 32, 'failed', now(), 5, 1
         FROM (SELECT * FROM pending ORDER BY event_id DESC LIMIT 1) AS p, generate_series(3, 1000) AS k";
    assert_eq!(seeded.scene.rows.run(tried).await, 998);
    seeded.scene.rows.run("VACUUM ANALYZE attempts").await;
    let id = DeliveryId {
        event: seeded.key.event,
        endpoint: seeded.key.endpoint,
    };
    let middle = read::AttemptKey {
        event: id.event,
        endpoint: id.endpoint,
        id: 500 << 32,
    };
    let list = async |database: &Database, slice| {
        let page = read::attempts_of_delivery(database, seeded.scope(), id, slice).await;
        page.unwrap().rows.len()
    };
    seeded.walks(middle, list).await;
}

/// G23: an event that is for 3,000 endpoints, each of which has tried it once.
#[tokio::test]
async fn engine_plans_of_the_list_of_an_events_attempts_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let middle = read::AttemptKey {
        event: seeded.key.event,
        endpoint: seeded.middle_endpoint().await,
        id: (1 << 32) + 2,
    };
    let list = async |database: &Database, slice| {
        let page = read::attempts_of_event(database, seeded.scope(), seeded.key.event, slice).await;
        page.unwrap().rows.len()
    };
    // The event itself, once.
    seeded.walks_beside(2, middle, list).await;
}

/// G23: of the tenant and of one endpoint, with and without a window.
#[tokio::test]
async fn engine_plans_of_the_list_of_dead_letters_fetch_the_page_alone() {
    let seeded = Seeded::with_endpoints().await;
    let spread = "UPDATE dead_letters AS d SET died_at = now() - place.n * interval '1 second'
         FROM (SELECT event_id, row_number() OVER (ORDER BY event_id) AS n FROM dead_letters) AS place
         WHERE d.event_id = place.event_id";
    seeded.scene.rows.run(spread).await;
    seeded.scene.rows.run("VACUUM ANALYZE dead_letters").await;
    let middle = DeadLetterKey {
        died_at: Clock::start().now() - TimeDelta::seconds(6000),
        event: seeded.key.event,
        endpoint: seeded.key.endpoint,
    };
    for endpoint in [None, Some(seeded.key.endpoint)] {
        for since in [None, Some(Clock::start().now() - TimeDelta::seconds(9000))] {
            let filter = DeadLetterFilter {
                endpoint,
                since,
                until: since.map(|since| since + TimeDelta::days(1)),
            };
            let list = async |database: &Database, slice| {
                let page = read::dead_letters(database, seeded.scope(), filter, slice).await;
                page.unwrap().rows.len()
            };
            seeded.walks(middle, list).await;
        }
    }
}

impl Seeded {
    /// One in the middle of all by id.
    async fn middle_endpoint(&self) -> EndpointId {
        let mut rows = self.scene.rows.events().await;
        let last = rows.pop().unwrap();
        EndpointId::from_uuid(last.endpoints[last.endpoints.len() / 2])
    }
}

/// The measure itself: an order that no index has is seen.
#[tokio::test]
async fn engine_plans_see_a_list_that_is_sorted_before_it_is_cut() {
    let seeded = Seeded::with_endpoints().await;
    let fetched = seeded
        .counted(FETCHED, async |database| {
            let mut tx = database.tenant_tx(&seeded.scope()).await.unwrap();
            for _ in 0..PAGES {
                sqlx::query("SELECT id FROM events ORDER BY size, id LIMIT 50")
                    .execute(&mut *tx)
                    .await
                    .unwrap();
            }
            tx.commit().await.unwrap();
        })
        .await;
    assert!(fetched >= 8 * 12_000, "{fetched}");
}

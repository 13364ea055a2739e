//! What lies in the tables, read by a superuser beside the program; and the time, moved where the database keeps it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_store::clock::Clock;
use posthorn_store::entropy::Entropy;
use posthorn_store::record::DeliveryKey;
use sqlx::{FromRow, PgConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::database::TestDatabase;

/// An event as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct EventRow {
    /// Its id.
    pub id: Uuid,
    /// The stream that it was written in.
    pub stream: i64,
    /// The endpoints that it is for.
    pub endpoints: Vec<Uuid>,
    /// Its payload as stored.
    pub payload: Vec<u8>,
}

/// An attempt or a verdict.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct AttemptRow {
    /// Its number.
    pub n: i32,
    /// `success`, `failed`, or a verdict.
    pub outcome: String,
    /// The status that came.
    pub status: Option<i16>,
    /// When it was sent.
    pub at: DateTime<Utc>,
    /// What asked for it.
    pub trigger: String,
    /// Words about a failure.
    pub error_detail: Option<String>,
}

/// A pending row.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct PendingRow {
    /// When; `None`: parked.
    pub due: Option<DateTime<Utc>>,
    /// The next attempt's number.
    pub n: i32,
    /// Failures that count.
    pub step: i32,
    /// From which number on a success makes it void.
    pub since: i32,
    /// Its end.
    pub ends_at: DateTime<Utc>,
    /// Why it is here.
    pub why: String,
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct DeadLetterRow {
    /// Why it died.
    pub cause: String,
    /// How often.
    pub deaths: i32,
}

/// A superuser's look at the tables.
pub struct Rows {
    connection: Mutex<PgConnection>,
}

/// The key of a delivery.
#[must_use]
pub const fn delivery(tenant: TenantId, endpoint: EndpointId, event: EventId) -> DeliveryKey {
    DeliveryKey {
        tenant,
        endpoint,
        event,
    }
}

impl Rows {
    /// Over a connection of its own.
    pub async fn of(database: &TestDatabase) -> Self {
        Self {
            connection: Mutex::new(database.superuser().await),
        }
    }

    /// Runs a statement that changes something, and answers how many rows it hit.
    pub async fn run(&self, statement: &'static str) -> u64 {
        let mut connection = self.connection.lock().await;
        let done = sqlx::query(statement).execute(&mut *connection).await;
        done.unwrap().rows_affected()
    }

    /// Runs a statement that changes something of one event.
    pub async fn change(&self, statement: &'static str, event: EventId) {
        let mut connection = self.connection.lock().await;
        let done = sqlx::query(statement).bind(event.uuid());
        done.execute(&mut *connection).await.unwrap();
    }

    /// One number.
    pub async fn number(&self, statement: &'static str) -> i64 {
        let mut connection = self.connection.lock().await;
        let found = sqlx::query_scalar(statement);
        found.fetch_one(&mut *connection).await.unwrap()
    }

    /// The texts that a query finds.
    pub async fn texts(&self, statement: &'static str) -> Vec<String> {
        let mut connection = self.connection.lock().await;
        sqlx::query_scalar(statement)
            .fetch_all(&mut *connection)
            .await
            .unwrap()
    }

    /// Every event, in the order of ids.
    pub async fn events(&self) -> Vec<EventRow> {
        let mut connection = self.connection.lock().await;
        sqlx::query_as("SELECT id, stream, endpoints, payload FROM events ORDER BY id")
            .fetch_all(&mut *connection)
            .await
            .unwrap()
    }

    /// The attempts and verdicts of a delivery, in order.
    pub async fn attempts(&self, key: DeliveryKey) -> Vec<AttemptRow> {
        let mut connection = self.connection.lock().await;
        sqlx::query_as(
            "SELECT n, outcome, status, at, coalesce(trigger, 'schedule') AS trigger, error_detail FROM attempts
             WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3 ORDER BY n, at",
        )
        .bind(key.tenant.uuid())
        .bind(key.endpoint.uuid())
        .bind(key.event.uuid())
        .fetch_all(&mut *connection)
        .await
        .unwrap()
    }

    /// The outcomes of a delivery, in order.
    pub async fn outcomes(&self, key: DeliveryKey) -> Vec<String> {
        let attempts = self.attempts(key).await;
        attempts.into_iter().map(|row| row.outcome).collect()
    }

    /// The pending row of a delivery.
    pub async fn pending(&self, key: DeliveryKey) -> Option<PendingRow> {
        let mut connection = self.connection.lock().await;
        sqlx::query_as(
            "SELECT due, n, step, since, ends_at, why FROM pending
             WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3",
        )
        .bind(key.tenant.uuid())
        .bind(key.endpoint.uuid())
        .bind(key.event.uuid())
        .fetch_optional(&mut *connection)
        .await
        .unwrap()
    }

    /// The dead letter of a delivery.
    pub async fn dead_letter(&self, key: DeliveryKey) -> Option<DeadLetterRow> {
        let mut connection = self.connection.lock().await;
        sqlx::query_as(
            "SELECT cause, deaths FROM dead_letters
             WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3",
        )
        .bind(key.tenant.uuid())
        .bind(key.endpoint.uuid())
        .bind(key.event.uuid())
        .fetch_optional(&mut *connection)
        .await
        .unwrap()
    }

    /// Moves the time of every delivery that has one to the moment at which it is due.
    pub async fn travel_to_due(&self) -> u64 {
        self.run(
            "UPDATE pending SET ends_at = ends_at - (due - now()), due = now() WHERE due > now()",
        )
        .await
    }

    /// Events of the past minute with one delivery each, all due: what an outage leaves behind.
    pub async fn fill_pending(&self, tenant: TenantId, endpoint: EndpointId, count: u32) {
        let now = Clock::start().now();
        let events: Vec<Uuid> = (0..count)
            .map(|n| now - TimeDelta::seconds(60) + TimeDelta::milliseconds(i64::from(n)))
            .map(|at| EventId::mint(at, Entropy.bytes()).uuid())
            .collect();
        let mut connection = self.connection.lock().await;
        sqlx::query(
            "WITH made AS (
                 INSERT INTO events (tenant_id, id, stream, type, endpoints, content_type, codec, size, payload)
                 SELECT $1, id, 0, 'order.paid', ARRAY[$2::uuid], 'application/json', 0, 2, '{}' FROM unnest($3::uuid[]) AS e (id)
                 RETURNING id
             )
             INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
             SELECT $1, $2, id, $4, now() - interval '10 seconds', 1, 0, 1, now() + interval '1 day', 'recovered' FROM made",
        )
        .bind(tenant.uuid())
        .bind(endpoint.uuid())
        .bind(events)
        .bind(i16::from(endpoint.shard()))
        .execute(&mut *connection)
        .await
        .unwrap();
    }

    /// An event that was accepted so many days ago, in the leaf of its day, with nothing known of its deliveries.
    pub async fn old_event(
        &self,
        tenant: TenantId,
        endpoints: &[EndpointId],
        days: i64,
        payload: &str,
    ) -> EventId {
        let at = Clock::start().now() - TimeDelta::days(days);
        let id = EventId::mint(at, Entropy.bytes());
        let endpoints: Vec<Uuid> = endpoints.iter().map(|endpoint| endpoint.uuid()).collect();
        let mut connection = self.connection.lock().await;
        sqlx::query("SELECT posthorn_make_leaves($1)")
            .bind(at.date_naive())
            .execute(&mut *connection)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload)
             VALUES ($1, $2, 0, 'order.paid', $3, 0, octet_length($4), $4)",
        )
        .bind(tenant.uuid())
        .bind(id.uuid())
        .bind(endpoints)
        .bind(payload.as_bytes())
        .execute(&mut *connection)
        .await
        .unwrap();
        id
    }

    /// A due row of a delivery that waits for its second attempt.
    pub async fn retrying(&self, key: DeliveryKey) {
        self.of_delivery(
            "INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
             VALUES ($1, $2, $3, get_byte(uuid_send($2), 15), now() - interval '1 second', 2, 1, 1, now() + interval '1 day', 'retry')",
            key,
        )
        .await;
    }

    /// A dead letter that died ten days ago.
    pub async fn died(&self, key: DeliveryKey) {
        self.of_delivery(
            "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
             VALUES ($1, $2, $3, 'order.paid', 'exhausted', 1, now() - interval '10 days')",
            key,
        )
        .await;
    }

    /// Runs a statement that changes something of one delivery.
    pub async fn of_delivery(&self, statement: &'static str, key: DeliveryKey) {
        let mut connection = self.connection.lock().await;
        sqlx::query(statement)
            .bind(key.tenant.uuid())
            .bind(key.endpoint.uuid())
            .bind(key.event.uuid())
            .execute(&mut *connection)
            .await
            .unwrap();
    }

    /// A round of housekeeping is due, and nobody has the turn.
    pub async fn travel_to_round(&self) {
        self.run(
            "UPDATE housekeeping SET held_until = now(), finished_at = now() - interval '2 hours'",
        )
        .await;
    }

    /// The lease of every open stream lapses.
    pub async fn lapse(&self) -> u64 {
        self.run("UPDATE nodes SET lease_until = now() - interval '1 minute' WHERE state = 'open'")
            .await
    }

    /// So many more endpoints like this one.
    pub async fn multiply_endpoint(&self, endpoint: EndpointId, by: i32) {
        let mut connection = self.connection.lock().await;
        sqlx::query(
            "INSERT INTO endpoints
             SELECT (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'uid', NULL))).*
             FROM endpoints AS e CROSS JOIN generate_series(1, $2)
             WHERE e.id = $1",
        )
        .bind(endpoint.uuid())
        .bind(by)
        .execute(&mut *connection)
        .await
        .unwrap();
    }

    /// Copies of an endpoint and its secret.
    pub async fn crowd(
        &self,
        like: EndpointId,
        endpoints: &[Uuid],
        secrets: &[Uuid],
        sealed: &[Vec<u8>],
    ) {
        let mut connection = self.connection.lock().await;
        sqlx::query(
            "WITH crowd AS (SELECT * FROM unnest($2::uuid[], $3::uuid[], $4::bytea[]) AS c (endpoint, secret, sealed)),
                  made AS (INSERT INTO endpoints
                           SELECT (jsonb_populate_record(e, jsonb_build_object('id', c.endpoint, 'uid', NULL))).*
                           FROM endpoints AS e CROSS JOIN crowd AS c WHERE e.id = $1
                           RETURNING 1)
             INSERT INTO endpoint_secrets
             SELECT (jsonb_populate_record(s, jsonb_build_object('id', c.secret, 'endpoint_id', c.endpoint, 'sealed', c.sealed))).*
             FROM endpoint_secrets AS s CROSS JOIN crowd AS c WHERE s.endpoint_id = $1",
        )
        .bind(like.uuid())
        .bind(endpoints)
        .bind(secrets)
        .bind(sealed)
        .execute(&mut *connection)
        .await
        .unwrap();
    }

    /// How many shards each node owns that owns any.
    pub async fn parts(&self) -> Vec<i64> {
        let mut connection = self.connection.lock().await;
        sqlx::query_scalar("SELECT count(*) FROM shards WHERE owner IS NOT NULL GROUP BY owner")
            .fetch_all(&mut *connection)
            .await
            .unwrap()
    }

    /// The state of a stream's node.
    pub async fn node_state(&self, stream: i64) -> String {
        let mut connection = self.connection.lock().await;
        sqlx::query_scalar("SELECT state FROM nodes WHERE stream = $1")
            .bind(stream)
            .fetch_one(&mut *connection)
            .await
            .unwrap()
    }
}

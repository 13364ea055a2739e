//! Keys: a tenant that submits an event again, under the same `Idempotency-Key` or `uid`, gets the first answer.
//!
//! The flush takes a row's keys and writes its event in one statement, and writes it only if it won them all, so a key
//! and its event are there together or not at all. What is told here is the second look, at rows that lost a key: another
//! statement sees by then who has it. A key that has expired, or whose event is not in the log, counts as unused: it is
//! deleted by compare-and-set on its event, and the row tries again.
//!
//! A committed key never gets its event later, for no statement writes an event by keys that it did not take itself. So
//! what is absent stays absent, and deleting such a key takes nothing from anybody.

use std::collections::HashMap;

use posthorn_domain::id::EventId;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::uid::Uid;
use sqlx::PgConnection;
use uuid::Uuid;

use super::flush::Row;
use super::{AcceptError, Accepted};
use crate::database::DatabaseError;

/// The route of keys that are uids.
const UID: &str = "uid";

/// The names under which a tenant may submit the same event again, and what tells whether it is the same.
#[derive(Clone, Debug)]
pub struct EventKeys {
    route: &'static str,
    key: Option<IdempotencyKey>,
    uid: Option<Uid>,
    body_hash: BodyHash,
}

impl EventKeys {
    /// The keys of a submission through `route`, such as `POST /v1/events`; `None` where it has neither. What tells it from
    /// others is only worked out where there is one.
    #[must_use]
    pub fn of(
        route: &'static str,
        key: Option<IdempotencyKey>,
        uid: Option<Uid>,
        body_hash: impl FnOnce() -> BodyHash,
    ) -> Option<Self> {
        (key.is_some() || uid.is_some()).then(|| Self {
            route,
            key,
            uid,
            body_hash: body_hash(),
        })
    }

    /// The sender's own name for the event.
    #[must_use]
    pub const fn uid(&self) -> Option<&Uid> {
        self.uid.as_ref()
    }

    /// Where the `Idempotency-Key` was given.
    pub(super) const fn route(&self) -> &'static str {
        self.route
    }

    /// The `Idempotency-Key`.
    pub(super) const fn key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// What tells the request from others.
    pub(super) const fn body_hash(&self) -> &BodyHash {
        &self.body_hash
    }

    /// Route and key of each.
    fn each(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = self.key.as_ref().map(|key| (self.route, key.as_str()));
        let uid = self.uid.as_ref().map(|uid| (UID, uid.as_str()));
        key.into_iter().chain(uid)
    }
}

/// How a row stands that was not written.
#[derive(Debug)]
pub(super) enum Standing {
    /// Its event is in the log already, by an earlier request.
    First(Accepted),
    /// One of its keys stands for another request.
    Refused(AcceptError),
    /// None of its keys stands in its way any more.
    Free,
}

/// One key of a row, as another row or an earlier one left it.
struct Held {
    row: Uuid,
    tenant_id: Uuid,
    route: String,
    key: String,
    event_id: Uuid,
    body_hash: Vec<u8>,
    expired: bool,
    /// The endpoints of its event; `None`: there is no such event.
    deliveries: Option<i32>,
}

impl Held {
    /// Whether it stands for an event of another row.
    fn is_taken(&self) -> bool {
        self.event_id != self.row && !self.expired && self.deliveries.is_some()
    }

    /// Whether it counts as unused, or was won in vain by the row itself.
    fn is_unused(&self) -> bool {
        self.deliveries.is_none() || (self.expired && self.event_id != self.row)
    }
}

/// Looks at the keys of rows that were not written, deletes those that count as unused, and says how each row stands.
/// Rows without keys are not looked at.
pub(super) async fn settle(
    connection: &mut PgConnection,
    rows: &[Row],
) -> Result<HashMap<Uuid, Standing>, DatabaseError> {
    let held = held(connection, rows).await?;
    free(connection, &held).await?;
    let mut by_row: HashMap<Uuid, Vec<Held>> = HashMap::new();
    for key in held {
        by_row.entry(key.row).or_default().push(key);
    }
    Ok(rows
        .iter()
        .filter_map(|row| {
            let keys = row.new.keys.as_ref()?;
            let held = by_row.remove(&row.id.uuid()).unwrap_or_default();
            Some((row.id.uuid(), standing(keys.body_hash(), &held)))
        })
        .collect())
}

fn standing(body_hash: &BodyHash, held: &[Held]) -> Standing {
    let taken = || held.iter().filter(|key| key.is_taken());
    let foreign = taken().find(|key| key.body_hash != body_hash.as_bytes());
    if let Some(key) = foreign {
        return Standing::Refused(if key.route == UID {
            AcceptError::UidReused
        } else {
            AcceptError::KeyReused
        });
    }
    match taken().next() {
        None => Standing::Free,
        Some(key) => {
            let id = EventId::from_uuid(key.event_id);
            Standing::First(Accepted {
                id,
                accepted_at: id.minted_at(),
                deliveries_count: key
                    .deliveries
                    .and_then(|n| usize::try_from(n).ok())
                    .unwrap_or(0),
                replayed: true,
            })
        }
    }
}

/// Who has the keys of these rows.
async fn held(connection: &mut PgConnection, rows: &[Row]) -> Result<Vec<Held>, DatabaseError> {
    let mut ids = Vec::new();
    let mut tenants = Vec::new();
    let mut routes = Vec::new();
    let mut keys = Vec::new();
    for row in rows {
        for (route, key) in row.new.keys.iter().flat_map(EventKeys::each) {
            ids.push(row.id.uuid());
            tenants.push(row.new.tenant.uuid());
            routes.push(route);
            keys.push(key);
        }
    }
    sqlx::query_as!(
        Held,
        r#"SELECT r.id AS "row!", k.tenant_id, k.route, k.key, k.event_id, k.body_hash, k.expires_at <= now() AS "expired!",
                  e.deliveries AS "deliveries?"
           FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[]) AS r (id, tenant_id, route, key)
           JOIN LATERAL (SELECT tenant_id, route, key, event_id, body_hash, expires_at
                         FROM idempotency_keys
                         WHERE tenant_id = r.tenant_id AND route = r.route AND key = r.key
                         LIMIT 1) AS k ON true
           LEFT JOIN LATERAL (SELECT cardinality(endpoints) AS deliveries
                              FROM events
                              WHERE tenant_id = k.tenant_id AND id = k.event_id
                              UNION ALL
                              SELECT cardinality(endpoints)
                              FROM kept_events
                              WHERE tenant_id = k.tenant_id AND id = k.event_id
                              LIMIT 1) AS e ON true"#,
        &ids,
        &tenants,
        &routes as _,
        &keys as _,
    )
    .fetch_all(connection)
    .await
    .map_err(DatabaseError::from)
}

/// Deletes the keys that count as unused, where they still belong to the event that was looked for. Their rows are
/// locked in the order in which flushes take keys.
async fn free(connection: &mut PgConnection, held: &[Held]) -> Result<(), DatabaseError> {
    let mut unused: Vec<&Held> = held.iter().filter(|key| key.is_unused()).collect();
    if unused.is_empty() {
        return Ok(());
    }
    unused.sort_by_key(|key| (key.tenant_id, key.route.as_str(), key.key.as_str()));
    unused.dedup_by_key(|key| (key.tenant_id, key.route.as_str(), key.key.as_str()));
    let tenants: Vec<_> = unused.iter().map(|key| key.tenant_id).collect();
    let routes: Vec<_> = unused.iter().map(|key| key.route.as_str()).collect();
    let keys: Vec<_> = unused.iter().map(|key| key.key.as_str()).collect();
    let events: Vec<_> = unused.iter().map(|key| key.event_id).collect();
    sqlx::query!(
        "WITH unused AS MATERIALIZED (
             SELECT k.tenant_id, k.route, k.key
             FROM unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[]) AS r (tenant_id, route, key, event_id)
             JOIN LATERAL (SELECT tenant_id, route, key
                           FROM idempotency_keys
                           WHERE tenant_id = r.tenant_id AND route = r.route AND key = r.key AND event_id = r.event_id
                           FOR UPDATE) AS k ON true
         )
         DELETE FROM idempotency_keys AS k
         USING unused
         WHERE k.tenant_id = unused.tenant_id AND k.route = unused.route AND k.key = unused.key",
        &tenants,
        &routes as _,
        &keys as _,
        &events,
    )
    .execute(connection)
    .await?;
    Ok(())
}

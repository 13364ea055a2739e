//! Pending: what the fast path did not finish, and how it comes back.
//!
//! A row is sent by the owner of its shard and by nobody else. Scans and drains find keys; at the moment of sending a
//! row is read again with its payload ([`PendingReader`]), and what is gone, has another number or is void is dropped.
//! Nothing here is held or locked while a request is under way (INV-7).

mod load;
mod sweep;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_domain::limits;

use crate::database::{Database, DatabaseError};
use crate::record::DeliveryKey;

pub use self::load::{Load, Loaded, PendingReader};
pub use self::sweep::{
    Listed, Parked, ParkedEndpoint, SweptFrom, bury, cancel, expire, parked, parked_endpoints,
};

/// A pending row that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due {
    /// Which delivery.
    pub key: DeliveryKey,
    /// The number that its next attempt has.
    pub n: u32,
    /// Since when it is due; `None`: it is parked, and sent by a drain.
    pub due: Option<DateTime<Utc>>,
}

impl Due {
    /// Whether it is parked.
    #[must_use]
    pub const fn is_parked(&self) -> bool {
        self.due.is_none()
    }
}

/// Due rows of these shards, from each one's moment on, the earliest of a shard first. Reads at most `per_shard` rows of
/// each shard, in the order given, and stops at `limit` rows: what a scan costs does not depend on how much is due.
///
/// # Errors
/// When the database does not answer.
pub async fn scan(
    database: &Database,
    shards: &[(i16, DateTime<Utc>)],
    per_shard: usize,
    limit: usize,
) -> Result<Vec<Due>, DatabaseError> {
    let (shards, after): (Vec<i16>, Vec<DateTime<Utc>>) = shards.iter().copied().unzip();
    // Not ordered as a whole, for that would have to read everything first.
    let rows = sqlx::query!(
        r#"SELECT p.tenant_id, p.endpoint_id, p.event_id, p.n, p.due AS "due!"
           FROM unnest($1::smallint[], $2::timestamptz[]) AS s (shard, after)
           CROSS JOIN LATERAL (
               SELECT tenant_id, endpoint_id, event_id, n, due
               FROM pending
               WHERE pending.shard = s.shard AND due >= s.after AND due <= now()
               ORDER BY due
               LIMIT $3
           ) AS p
           LIMIT $4"#,
        &shards,
        &after,
        i64::try_from(per_shard).unwrap_or(i64::MAX),
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(database.scans())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Due {
            key: DeliveryKey {
                tenant: TenantId::from_uuid(row.tenant_id),
                endpoint: EndpointId::from_uuid(row.endpoint_id),
                event: EventId::from_uuid(row.event_id),
            },
            n: u32::try_from(row.n).unwrap_or(0),
            due: Some(row.due),
        })
        .collect())
}

/// Of what is due for an endpoint, the first that a person asked for by itself, if there is one.
///
/// # Errors
/// When the database does not answer.
pub async fn asked_for(
    database: &Database,
    of: ParkedEndpoint,
) -> Result<Option<Due>, DatabaseError> {
    let row = sqlx::query!(
        r#"SELECT event_id, n, due AS "due!" FROM pending
           WHERE shard = $3 AND tenant_id = $1 AND endpoint_id = $2 AND due <= now() AND why = 'replay' AND replay_id IS NULL
           ORDER BY due
           LIMIT 1"#,
        of.tenant.uuid(),
        of.endpoint.uuid(),
        i16::from(of.endpoint.shard()),
    )
    .fetch_optional(database.scans())
    .await?;
    Ok(row.map(|row| Due {
        key: DeliveryKey {
            tenant: of.tenant,
            endpoint: of.endpoint,
            event: EventId::from_uuid(row.event_id),
        },
        n: u32::try_from(row.n).unwrap_or(0),
        due: Some(row.due),
    }))
}

/// Parks what of an endpoint is due, but for these events, which are about to be sent: one statement, and at most
/// [`limits::PARK_ROWS`] rows, the earliest first. Answers how many.
///
/// # Errors
/// When the database does not answer.
pub async fn park_due(
    database: &Database,
    tenant: TenantId,
    endpoint: EndpointId,
    why: Why,
    sending: &[EventId],
) -> Result<u64, DatabaseError> {
    let sending: Vec<_> = sending.iter().map(|event| event.uuid()).collect();
    let parked = sqlx::query!(
        // By their places, as all that changes many rows of an endpoint: see `sweep`.
        "UPDATE pending AS p SET due = NULL, why = CASE WHEN why = 'replay' THEN why ELSE $3 END
         WHERE p.ctid = ANY (ARRAY(
                   SELECT ctid FROM pending
                   WHERE shard = $5 AND tenant_id = $1 AND endpoint_id = $2 AND due <= now() AND event_id <> ALL ($4)
                   ORDER BY due
                   LIMIT $6
                   FOR UPDATE))",
        tenant.uuid(),
        endpoint.uuid(),
        why.as_str(),
        &sending,
        i16::from(endpoint.shard()),
        limits::PARK_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(parked.rows_affected())
}

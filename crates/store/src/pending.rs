//! Pending: what the fast path did not finish, and how it comes back.
//!
//! A row is sent by the owner of its shard and by nobody else. Scans find keys; at the moment of sending the
//! row is read again with its payload in one statement ([`load`]), and what is gone, has another number or is
//! void is dropped. Nothing here is held or locked while a request is under way (INV-7).

mod sweep;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{Trigger, Why};
use posthorn_domain::id::{EndpointId, EventId, ReplayId, TenantId};
use uuid::Uuid;

use crate::accept::decode;
use crate::database::Database;
use crate::record::DeliveryKey;

pub use self::sweep::{ParkedEndpoint, bury, cancel, expire, parked_endpoints, unpark};

/// A pending row that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Due {
    /// Which delivery.
    pub key: DeliveryKey,
    /// The number that its next attempt has.
    pub n: u32,
    /// Since when it is due.
    pub due: DateTime<Utc>,
}

/// A pending delivery, read for sending.
#[derive(Debug)]
pub struct Loaded {
    /// The number that this attempt has.
    pub n: u32,
    /// Failed attempts that count in the policy so far.
    pub step: u32,
    /// The delivery's end.
    pub ends_at: DateTime<Utc>,
    /// What asks for this attempt.
    pub trigger: Trigger,
    /// The replay that it is part of.
    pub replay: Option<ReplayId>,
    /// The event's type.
    pub event_type: String,
    /// The payload's media type.
    pub content_type: String,
    /// The payload.
    pub payload: Bytes,
    /// The event's own headers, a JSON object of strings.
    pub headers: Option<String>,
}

/// What a row turned out to be at the moment of sending.
#[derive(Debug)]
pub enum Load {
    /// To be sent.
    Ready(Box<Loaded>),
    /// Its end has come.
    Expired,
    /// The event is no longer there, or cannot be read.
    PayloadGone,
    /// A success is on record: the row has been removed.
    Void,
    /// Somebody else moved or removed it.
    Moved,
}

/// Due rows of these shards from `after` on, the earliest first, at most `limit`.
///
/// # Errors
/// When the database does not answer.
pub async fn scan(
    database: &Database,
    shards: &[i16],
    after: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Due>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT p.tenant_id, p.endpoint_id, p.event_id, p.n, p.due AS "due!"
           FROM unnest($1::smallint[]) AS s (shard)
           CROSS JOIN LATERAL (
               SELECT tenant_id, endpoint_id, event_id, n, due
               FROM pending
               WHERE pending.shard = s.shard AND due >= $2 AND due <= now()
               ORDER BY due
               LIMIT $3
           ) AS p
           ORDER BY p.due
           LIMIT $3"#,
        shards,
        after,
        limit,
    )
    .fetch_all(database.system())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| due(row.tenant_id, row.endpoint_id, row.event_id, row.n, row.due))
        .collect())
}

fn due(tenant: Uuid, endpoint: Uuid, event: Uuid, n: i32, due: DateTime<Utc>) -> Due {
    let key = DeliveryKey {
        tenant: TenantId::from_uuid(tenant),
        endpoint: EndpointId::from_uuid(endpoint),
        event: EventId::from_uuid(event),
    };
    Due {
        key,
        n: u32::try_from(n).unwrap_or(0),
        due,
    }
}

/// Reads a due row with its payload, or removes it where it is void.
///
/// # Errors
/// When the database does not answer.
pub async fn load(database: &Database, due: &Due) -> Result<Load, sqlx::Error> {
    let key = due.key;
    let row = sqlx::query!(
        r#"SELECT p.step, p.ends_at, p.ends_at <= now() AS "expired!", p.why, p.replay_id,
                  success.success IS NOT NULL AS "void!",
                  e.type AS "type?", e.content_type AS "content_type?", e.codec AS "codec?", e.size AS "size?",
                  e.payload AS "payload?", e.headers AS "headers?"
           FROM pending AS p
           LEFT JOIN LATERAL (
               SELECT 1 AS success FROM attempts AS a
               WHERE a.tenant_id = p.tenant_id AND a.endpoint_id = p.endpoint_id AND a.event_id = p.event_id
                 AND a.outcome = 'success' AND a.n >= p.since
               LIMIT 1
           ) AS success ON true
           LEFT JOIN LATERAL (
               SELECT type, coalesce(content_type, 'application/json') AS content_type, codec, size, payload, headers FROM events
               WHERE events.tenant_id = p.tenant_id AND events.id = p.event_id
               UNION ALL
               SELECT type, coalesce(content_type, 'application/json') AS content_type, codec, size, payload, headers FROM kept_events
               WHERE kept_events.tenant_id = p.tenant_id AND kept_events.id = p.event_id
               LIMIT 1
           ) AS e ON true
           WHERE p.tenant_id = $1 AND p.endpoint_id = $2 AND p.event_id = $3 AND p.n = $4 AND p.due <= now()"#,
        key.tenant.uuid(),
        key.endpoint.uuid(),
        key.event.uuid(),
        i32::try_from(due.n).unwrap_or(i32::MAX),
    )
    .fetch_optional(database.system())
    .await?;
    let Some(row) = row else {
        return Ok(Load::Moved);
    };
    if row.void {
        remove(database, due).await?;
        return Ok(Load::Void);
    }
    if row.expired {
        return Ok(Load::Expired);
    }
    let (Some(event_type), Some(content_type), Some(codec), Some(size), Some(stored)) = (
        row.r#type,
        row.content_type,
        row.codec,
        row.size,
        row.payload,
    ) else {
        return Ok(Load::PayloadGone);
    };
    let Some(payload) = decode(codec, size, stored) else {
        return Ok(Load::PayloadGone);
    };
    let trigger = if row.why == "replay" {
        Trigger::Replay
    } else {
        Trigger::Schedule
    };
    Ok(Load::Ready(Box::new(Loaded {
        n: due.n,
        step: u32::try_from(row.step).unwrap_or(0),
        ends_at: row.ends_at,
        trigger,
        replay: row.replay_id.map(ReplayId::from_uuid),
        event_type,
        content_type,
        payload,
        headers: row.headers,
    })))
}

/// Removes a row that has nothing left to do.
async fn remove(database: &Database, due: &Due) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "DELETE FROM pending WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3 AND n = $4",
        due.key.tenant.uuid(),
        due.key.endpoint.uuid(),
        due.key.event.uuid(),
        i32::try_from(due.n).unwrap_or(i32::MAX),
    )
    .execute(database.system())
    .await?;
    Ok(())
}

/// Parks everything of an endpoint that is due, but for these events, which are about to be sent: one statement,
/// however many rows. Answers how many.
///
/// # Errors
/// When the database does not answer.
pub async fn park_due(
    database: &Database,
    tenant: TenantId,
    endpoint: EndpointId,
    why: Why,
    sending: &[EventId],
) -> Result<u64, sqlx::Error> {
    let sending: Vec<_> = sending.iter().map(|event| event.uuid()).collect();
    let parked = sqlx::query!(
        "UPDATE pending SET due = NULL, why = CASE WHEN why = 'replay' THEN why ELSE $3 END
         WHERE tenant_id = $1 AND endpoint_id = $2 AND due <= now() AND event_id <> ALL ($4)",
        tenant.uuid(),
        endpoint.uuid(),
        why.as_str(),
        &sending,
    )
    .execute(database.system())
    .await?;
    Ok(parked.rows_affected())
}

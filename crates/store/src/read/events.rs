//! Events and their payloads.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthorn_domain::id::EventId;
use uuid::Uuid;

use super::DatabaseError;
use super::page::{Page, Slice};
use crate::database::Database;
use crate::scope::TenantScope;

/// An accepted event, without its payload.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its id, which also says when it was accepted.
    pub id: EventId,
    /// The sender's own name for it.
    pub uid: Option<String>,
    /// Its type.
    pub event_type: String,
    /// When it happened, if the sender said so.
    pub occurred_at: Option<DateTime<Utc>>,
    /// Bytes of its payload.
    pub size: u32,
    /// The media type of its payload.
    pub content_type: String,
    /// A JSON object of strings.
    pub metadata: Option<String>,
    /// How many endpoints it is for.
    pub deliveries_count: u32,
}

/// Which events a list has: those accepted in a half-open span.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFilter {
    /// Accepted at or after.
    pub since: Option<DateTime<Utc>>,
    /// Accepted before.
    pub until: Option<DateTime<Utc>>,
}

/// A payload, byte for byte as it was submitted.
#[derive(Clone, Debug)]
pub struct EventPayload {
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    pub bytes: Bytes,
}

struct EventRow {
    id: Uuid,
    uid: Option<String>,
    event_type: String,
    occurred_at: Option<DateTime<Utc>>,
    size: i32,
    content_type: String,
    metadata: Option<String>,
    deliveries_count: i32,
}

impl From<EventRow> for Event {
    fn from(row: EventRow) -> Self {
        Self {
            id: EventId::from_uuid(row.id),
            uid: row.uid,
            event_type: row.event_type,
            occurred_at: row.occurred_at,
            size: u32::try_from(row.size).unwrap_or(0),
            content_type: row.content_type,
            metadata: row.metadata,
            deliveries_count: u32::try_from(row.deliveries_count).unwrap_or(0),
        }
    }
}

/// One page of a tenant's events, by the time of accept. Events that outlived their partition for the sake of
/// a dead letter are found by id alone.
///
/// # Errors
/// When the database does not answer.
pub async fn events(
    database: &Database,
    scope: TenantScope,
    filter: EventFilter,
    slice: Slice<EventId>,
) -> Result<Page<Event>, DatabaseError> {
    let low = filter.since.map_or(EventId::from_uuid(Uuid::nil()), floor);
    let high = filter.until.map_or(EventId::from_uuid(Uuid::max()), floor);
    let scan = slice.scan(low, high);
    let (tenant, low, high) = (scope.tenant().uuid(), scan.low.uuid(), scan.high.uuid());
    let mut tx = database.tenant_tx(&scope).await?;
    /// The two directions differ in a word, which a checked statement cannot take as a parameter.
    macro_rules! list {
        ($direction:tt) => {
            sqlx::query_as!(
                EventRow,
                "SELECT id, uid, type AS event_type, occurred_at, size,
                        coalesce(content_type, 'application/json') AS \"content_type!\", metadata,
                        cardinality(endpoints) AS \"deliveries_count!\"
                 FROM events
                 WHERE tenant_id = $1 AND id >= $2 AND id < $3
                 ORDER BY id "
                    + $direction
                    + "
                 LIMIT $4",
                tenant,
                low,
                high,
                scan.rows,
            )
            .fetch_all(&mut *tx)
            .await?
        };
    }
    let rows = if scan.upward {
        list!("ASC")
    } else {
        list!("DESC")
    };
    tx.commit().await?;
    Ok(slice.page(rows).map(Event::from))
}

/// The smallest id of a moment; of one before 1970 the smallest of all.
fn floor(at: DateTime<Utc>) -> EventId {
    if at < DateTime::UNIX_EPOCH {
        EventId::from_uuid(Uuid::nil())
    } else {
        EventId::floor_at(at)
    }
}

/// One event, wherever it is kept.
///
/// # Errors
/// When the database does not answer.
pub async fn event(
    database: &Database,
    scope: TenantScope,
    id: EventId,
) -> Result<Option<Event>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = sqlx::query_as!(
        EventRow,
        r#"SELECT id AS "id!", uid, type AS "event_type!", occurred_at, size AS "size!",
                  coalesce(content_type, 'application/json') AS "content_type!",
                  metadata, cardinality(endpoints) AS "deliveries_count!"
           FROM events WHERE tenant_id = $1 AND id = $2
           UNION ALL
           SELECT id, uid, type, occurred_at, size, coalesce(content_type, 'application/json'), metadata, cardinality(endpoints)
           FROM kept_events WHERE tenant_id = $1 AND id = $2
           LIMIT 1"#,
        scope.tenant().uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(row.map(Event::from))
}

/// The payload of one event, wherever it is kept.
///
/// # Errors
/// When the database does not answer, or the bytes do not unpack.
pub async fn payload(
    database: &Database,
    scope: TenantScope,
    id: EventId,
) -> Result<Option<EventPayload>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = sqlx::query!(
        r#"SELECT codec AS "codec!", size AS "size!",
                  coalesce(content_type, 'application/json') AS "content_type!", payload AS "payload!"
           FROM events WHERE tenant_id = $1 AND id = $2
           UNION ALL
           SELECT codec, size, coalesce(content_type, 'application/json'), payload
           FROM kept_events WHERE tenant_id = $1 AND id = $2
           LIMIT 1"#,
        scope.tenant().uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    let Some(row) = row else { return Ok(None) };
    let bytes = crate::accept::decode(row.codec, row.size, row.payload)
        .ok_or(DatabaseError::Unreadable("the payload does not unpack"))?;
    Ok(Some(EventPayload {
        content_type: row.content_type,
        bytes,
    }))
}

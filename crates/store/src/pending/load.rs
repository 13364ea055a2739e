//! Load: pending rows read again with their payloads, at the moment of sending.
//!
//! Many rows in one statement, over a connection of its own: however many deliveries come due at once, nobody else waits for
//! a connection because of them. Bounded in rows and in bytes.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthorn_domain::content_type::ContentType;
use posthorn_domain::delivery::Trigger;
use posthorn_domain::id::ReplayId;
use posthorn_domain::limits;
use sqlx::PgConnection;
use uuid::Uuid;

use super::Due;
use crate::accept::decode;
use crate::database::{Database, DatabaseError, answered};

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
    /// What the payload says that it is.
    pub content_type: ContentType,
    /// The payload.
    pub payload: Bytes,
    /// When the event happened: when it was accepted, where its tenant does not say.
    pub happened_at: DateTime<Utc>,
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
    /// To be asked for again: the rows before it had as many bytes as one statement reads.
    Later,
}

/// Reads rows for sending.
pub struct PendingReader {
    database: Database,
    connection: Option<PgConnection>,
}

struct Row {
    ord: i64,
    step: i32,
    ends_at: DateTime<Utc>,
    expired: bool,
    why: String,
    replay_id: Option<Uuid>,
    void: bool,
    fits: bool,
    event_type: Option<String>,
    content_type: Option<String>,
    codec: Option<i16>,
    size: Option<i32>,
    payload: Option<Vec<u8>>,
    occurred_at: Option<DateTime<Utc>>,
    headers: Option<String>,
}

impl PendingReader {
    /// Connects at the first batch.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self {
            database,
            connection: None,
        }
    }

    /// Reads rows, and removes those that are void. Answers what each is, in the order of `rows`. The first is never
    /// [`Load::Later`].
    ///
    /// # Errors
    /// When the database does not answer in time; the next call uses a new connection.
    pub async fn load(&mut self, rows: &[Due]) -> Result<Vec<Load>, DatabaseError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.database.dedicated().await?,
        };
        let read = answered(limits::LOAD_WAIT, load(&mut connection, rows)).await?;
        self.connection = Some(connection);
        Ok(read)
    }
}

async fn load(connection: &mut PgConnection, rows: &[Due]) -> Result<Vec<Load>, DatabaseError> {
    let found = read(connection, rows).await?;
    let mut answers: Vec<_> = rows.iter().map(|_| Load::Moved).collect();
    let mut void = Vec::new();
    for row in found {
        let at = usize::try_from(row.ord - 1).unwrap_or(usize::MAX);
        let (Some(due), Some(answer)) = (rows.get(at), answers.get_mut(at)) else {
            continue;
        };
        *answer = judge(due, row);
        if matches!(answer, Load::Void) {
            void.push(*due);
        }
    }
    if !void.is_empty() {
        remove(connection, &void).await?;
    }
    Ok(answers)
}

/// The rows that are still as they were found by the scan or the drain.
async fn read(connection: &mut PgConnection, rows: &[Due]) -> Result<Vec<Row>, DatabaseError> {
    let keys = Keys::of(rows);
    let parked: Vec<_> = rows.iter().map(Due::is_parked).collect();
    sqlx::query_as!(
        Row,
        r#"WITH wanted AS MATERIALIZED (
               SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[], $5::boolean[])
                   WITH ORDINALITY AS w (tenant_id, endpoint_id, event_id, n, parked, ord)
           ), found AS MATERIALIZED (
               -- Large payloads are not touched here: their places are.
               SELECT w.ord, p.step, p.ends_at, p.why, p.replay_id, success.success IS NOT NULL AS void, e.*
               FROM wanted AS w
               JOIN pending AS p
                 ON p.tenant_id = w.tenant_id AND p.endpoint_id = w.endpoint_id AND p.event_id = w.event_id AND p.n = w.n
                AND CASE WHEN w.parked THEN p.due IS NULL ELSE p.due <= now() END
               LEFT JOIN LATERAL (
                   SELECT 1 AS success FROM attempts AS a
                   WHERE a.tenant_id = p.tenant_id AND a.endpoint_id = p.endpoint_id AND a.event_id = p.event_id
                     AND a.outcome = 'success' AND a.n >= p.since
                   LIMIT 1
               ) AS success ON true
               LEFT JOIN LATERAL (
                   SELECT type, coalesce(content_type, 'application/json') AS content_type, codec, size, payload, occurred_at,
                          headers
                   FROM events
                   WHERE events.tenant_id = p.tenant_id AND events.id = p.event_id
                   UNION ALL
                   SELECT type, coalesce(content_type, 'application/json') AS content_type, codec, size, payload, occurred_at,
                          headers
                   FROM kept_events
                   WHERE kept_events.tenant_id = p.tenant_id AND kept_events.id = p.event_id
                   LIMIT 1
               ) AS e ON true
           ), weighed AS (
               SELECT found.*,
                      COALESCE(sum(size) OVER (ORDER BY ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $6 AS fits
               FROM found
           )
           SELECT ord AS "ord!", step AS "step!", ends_at AS "ends_at!", ends_at <= now() AS "expired!", why AS "why!",
                  replay_id, void AS "void!", fits AS "fits!", type AS "event_type?", content_type AS "content_type?",
                  codec AS "codec?", size AS "size?", CASE WHEN fits THEN payload END AS "payload?",
                  occurred_at AS "occurred_at?", headers AS "headers?"
           FROM weighed"#,
        &keys.tenants,
        &keys.endpoints,
        &keys.events,
        &keys.numbers,
        &parked,
        i64::try_from(limits::LOAD_BYTES).unwrap_or(i64::MAX),
    )
    .fetch_all(connection)
    .await
    .map_err(DatabaseError::from)
}

fn judge(due: &Due, row: Row) -> Load {
    if row.void {
        return Load::Void;
    }
    if row.expired {
        return Load::Expired;
    }
    if !row.fits {
        return Load::Later;
    }
    let (Some(event_type), Some(content_type), Some(codec), Some(size), Some(stored)) = (
        row.event_type,
        row.content_type,
        row.codec,
        row.size,
        row.payload,
    ) else {
        return Load::PayloadGone;
    };
    let Some(payload) = decode(codec, size, stored) else {
        return Load::PayloadGone;
    };
    let trigger = if row.why == "replay" {
        Trigger::Replay
    } else {
        Trigger::Schedule
    };
    Load::Ready(Box::new(Loaded {
        n: due.n,
        step: u32::try_from(row.step).unwrap_or(0),
        ends_at: row.ends_at,
        trigger,
        replay: row.replay_id.map(ReplayId::from_uuid),
        event_type,
        content_type: ContentType::kept(content_type),
        payload,
        happened_at: row.occurred_at.unwrap_or_else(|| due.key.event.minted_at()),
        headers: row.headers,
    }))
}

/// Removes rows that have nothing left to do.
async fn remove(connection: &mut PgConnection, rows: &[Due]) -> Result<(), DatabaseError> {
    let keys = Keys::of(rows);
    sqlx::query!(
        "DELETE FROM pending AS p
         USING unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::int[]) AS v (tenant_id, endpoint_id, event_id, n)
         WHERE p.tenant_id = v.tenant_id AND p.endpoint_id = v.endpoint_id AND p.event_id = v.event_id AND p.n = v.n",
        &keys.tenants,
        &keys.endpoints,
        &keys.events,
        &keys.numbers,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Keys by column.
struct Keys {
    tenants: Vec<Uuid>,
    endpoints: Vec<Uuid>,
    events: Vec<Uuid>,
    numbers: Vec<i32>,
}

impl Keys {
    fn of(rows: &[Due]) -> Self {
        Self {
            tenants: rows.iter().map(|row| row.key.tenant.uuid()).collect(),
            endpoints: rows.iter().map(|row| row.key.endpoint.uuid()).collect(),
            events: rows.iter().map(|row| row.key.event.uuid()).collect(),
            numbers: rows
                .iter()
                .map(|row| i32::try_from(row.n).unwrap_or(i32::MAX))
                .collect(),
        }
    }
}

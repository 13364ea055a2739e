//! One flush: the statement, and what its outcome means.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use posthorn_domain::id::{EndpointId, EventId};
use posthorn_domain::limits;
use sqlx::PgConnection;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::handover::Handover;
use super::queue::Place;
use super::{AcceptError, Accepted, EventKeys, NewEvent, Taken};
use crate::database::DatabaseError;

/// One event in the queue or in a batch.
pub(super) struct Row {
    pub(super) new: NewEvent,
    pub(super) id: EventId,
    pub(super) endpoints: Vec<EndpointId>,
    /// Those of its deliveries that other nodes send.
    pub(super) handovers: Vec<Handover>,
    /// Its tenant has endpoints with strict limits.
    pub(super) has_strict: bool,
    /// The version of the configuration that the endpoints were matched against.
    pub(super) matched: i64,
    pub(super) codec: i16,
    pub(super) stored: Bytes,
    /// It was in a flush whose outcome is unknown: it may be in the log.
    pub(super) doubtful: bool,
    /// Since when a flush in the way has kept one of its batch's keys.
    pub(super) contested: Option<Instant>,
    pub(super) reply: oneshot::Sender<Result<Accepted, AcceptError>>,
    pub(super) taken: Taken,
    pub(super) _place: Place,
}

/// What PostgreSQL answered to a flush that ran to its end.
pub(super) struct Flushed {
    /// Whether the stream was open: where not, nothing was written.
    pub(super) open: bool,
    /// The version of the configuration at the time.
    pub(super) seq: i64,
    /// The ids that this statement wrote.
    pub(super) written: Vec<Uuid>,
}

/// What is known after a flush failed.
#[derive(Debug)]
pub(super) enum FlushError {
    /// Nothing was written, and the fault is in a row's data: each alone will tell which.
    Data(DatabaseError),
    /// Nothing was written: a lock was not to be had in time.
    Locked(DatabaseError),
    /// Nothing was written, through no fault of the rows.
    NotWritten(DatabaseError),
    /// It may have been written.
    Unknown(DatabaseError),
}

impl FlushError {
    /// Only an error with an SQLSTATE that is neither FATAL nor of class 08 says that nothing was written.
    pub(super) fn of(error: DatabaseError) -> Self {
        let Some(refusal) = error.mild_refusal() else {
            return Self::Unknown(error);
        };
        let code = refusal.code();
        if code.is_empty() || code.starts_with("08") {
            return Self::Unknown(error);
        }
        // A missing partition is a 23514 without a constraint's name: the table's state, not a row's fault.
        let partition = code == "23514" && refusal.constraint().is_none();
        let data = ["22", "23", "54"]
            .iter()
            .any(|class| code.starts_with(class))
            && !partition;
        if data {
            Self::Data(error)
        } else if ["55P03", "40P01"].contains(&code) {
            Self::Locked(error)
        } else {
            Self::NotWritten(error)
        }
    }
}

/// The arrays of one statement. Endpoint lists travel as one flat array, sliced by offset and length.
struct Columns<'a> {
    tenants: Vec<Uuid>,
    ids: Vec<Uuid>,
    types: Vec<&'a str>,
    occurred: Vec<Option<chrono::DateTime<chrono::Utc>>>,
    /// What nearly every row would say is not written: NULL is plain JSON.
    content_types: Vec<Option<&'a str>>,
    codecs: Vec<i16>,
    sizes: Vec<i32>,
    payloads: Vec<&'a [u8]>,
    metadata: Vec<Option<String>>,
    headers: Vec<Option<String>>,
    offsets: Vec<i32>,
    lengths: Vec<i32>,
    endpoints: Vec<Uuid>,
}

impl<'a> Columns<'a> {
    /// Columns with room for so many rows.
    fn with_room_for(rows: usize) -> Self {
        Self {
            tenants: Vec::with_capacity(rows),
            ids: Vec::with_capacity(rows),
            types: Vec::with_capacity(rows),
            occurred: Vec::with_capacity(rows),
            content_types: Vec::with_capacity(rows),
            codecs: Vec::with_capacity(rows),
            sizes: Vec::with_capacity(rows),
            payloads: Vec::with_capacity(rows),
            metadata: Vec::with_capacity(rows),
            headers: Vec::with_capacity(rows),
            offsets: Vec::with_capacity(rows),
            lengths: Vec::with_capacity(rows),
            endpoints: Vec::with_capacity(rows),
        }
    }

    fn of(rows: &'a [Row]) -> Self {
        let mut columns = Self::with_room_for(rows.len());
        for row in rows {
            columns.tenants.push(row.new.tenant.uuid());
            columns.ids.push(row.id.uuid());
            columns.types.push(row.new.event_type.as_str());
            columns.occurred.push(row.new.occurred_at);
            columns.content_types.push(row.new.content_type.unusual());
            columns.codecs.push(row.codec);
            columns.sizes.push(count(row.new.payload.len()));
            columns.payloads.push(&row.stored);
            columns
                .metadata
                .push(json(&row.new.metadata, row.new.metadata.is_empty()));
            columns
                .headers
                .push(json(&row.new.headers, row.new.headers.is_empty()));
            columns.offsets.push(count(columns.endpoints.len()));
            columns.lengths.push(count(row.endpoints.len()));
            columns
                .endpoints
                .extend(row.endpoints.iter().map(|id| id.uuid()));
        }
        columns
    }
}

/// The arrays that a flush with keys has besides.
#[derive(Default)]
struct KeyColumns<'a> {
    uids: Vec<Option<&'a str>>,
    routes: Vec<Option<&'a str>>,
    keys: Vec<Option<&'a str>>,
    hashes: Vec<Option<&'a [u8]>>,
}

impl<'a> KeyColumns<'a> {
    fn of(rows: &'a [Row]) -> Self {
        let mut columns = Self::default();
        for keys in rows.iter().map(|row| row.new.keys.as_ref()) {
            columns
                .uids
                .push(keys.and_then(|keys| Some(keys.uid()?.as_str())));
            columns.routes.push(keys.map(EventKeys::route));
            columns
                .keys
                .push(keys.and_then(|keys| Some(keys.key()?.as_str())));
            columns
                .hashes
                .push(keys.map(|keys| keys.body_hash().as_bytes().as_slice()));
        }
        columns
    }
}

/// The arrays that a flush with hand-overs has besides.
#[derive(Default)]
struct HandoverColumns {
    events: Vec<Uuid>,
    endpoints: Vec<Uuid>,
    max_ages: Vec<f64>,
}

impl HandoverColumns {
    fn of(rows: &[Row]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            for handover in &row.handovers {
                columns.events.push(row.id.uuid());
                columns.endpoints.push(handover.endpoint.uuid());
                columns.max_ages.push(handover.max_age.as_secs_f64());
            }
        }
        columns
    }
}

/// Pairs as JSON text; none are NULL.
fn json(pairs: &impl serde::Serialize, none: bool) -> Option<String> {
    if none {
        None
    } else {
        serde_json::to_string(pairs).ok()
    }
}

/// Every length here is bounded far below `i32::MAX`: a payload by 1 MiB, a batch by its bytes.
fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

/// Writes a batch in autocommit, so that no lock of it can be held open by this client. The answer is read
/// to `ReadyForQuery`: in the extended protocol rows arrive before the commit. Keys have a statement of their own, and so
/// have hand-overs, so that a batch without any pays nothing for them.
pub(super) async fn flush(
    connection: &mut PgConnection,
    (stream, lane): (i64, i16),
    rows: &[Row],
) -> Result<Flushed, FlushError> {
    let c = Columns::of(rows);
    let version = rows.iter().map(|row| row.matched).min().unwrap_or(0);
    macro_rules! run {
        ($file:literal $(, $more:expr)*) => {
            sqlx::query_file_as!(
                Flushed,
                $file,
                stream,
                lane,
                version,
                &c.tenants,
                &c.ids,
                &c.types as _,
                &c.occurred as _,
                &c.content_types as _,
                &c.codecs,
                &c.sizes,
                &c.payloads as _,
                &c.metadata as _,
                &c.headers as _,
                &c.offsets,
                &c.lengths,
                &c.endpoints
                $(, $more)*
            )
            .fetch_all(&mut *connection)
            .await
        };
    }
    let answer = if rows.iter().any(|row| !row.handovers.is_empty()) {
        let k = KeyColumns::of(rows);
        let h = HandoverColumns::of(rows);
        run!(
            "src/accept/flush_with_handover.sql",
            &k.uids as _,
            &k.routes as _,
            &k.keys as _,
            &k.hashes as _,
            key_wait(rows),
            limits::IDEMPOTENCY_LIFE.as_secs_f64(),
            &h.events,
            &h.endpoints,
            &h.max_ages
        )
    } else if rows.iter().any(|row| row.new.keys.is_some()) {
        let k = KeyColumns::of(rows);
        run!(
            "src/accept/flush_with_keys.sql",
            &k.uids as _,
            &k.routes as _,
            &k.keys as _,
            &k.hashes as _,
            key_wait(rows),
            limits::IDEMPOTENCY_LIFE.as_secs_f64()
        )
    } else if rows.iter().any(|row| row.doubtful) {
        run!("src/accept/flush_again.sql")
    } else {
        run!("src/accept/flush.sql")
    };
    let mut answer = answer.map_err(|error| FlushError::of(error.into()))?;
    answer
        .pop()
        .ok_or(FlushError::Unknown(DatabaseError::no_row()))
}

/// How long this flush waits for another that is taking one of its keys, as PostgreSQL reads it.
fn key_wait(rows: &[Row]) -> String {
    let wait = if rows.iter().any(|row| row.contested.is_some()) {
        limits::KEY_WAIT_AGAIN
    } else {
        limits::KEY_WAIT
    };
    format!("{}ms", wait.as_millis())
}

/// Those of the batch that are in the log, with the endpoints that were stored.
pub(super) async fn stored(
    connection: &mut PgConnection,
    rows: &[Row],
) -> Result<HashMap<Uuid, Vec<EndpointId>>, DatabaseError> {
    let tenants: Vec<_> = rows.iter().map(|row| row.new.tenant.uuid()).collect();
    let ids: Vec<_> = rows.iter().map(|row| row.id.uuid()).collect();
    let found = sqlx::query!(
        "SELECT e.id, e.endpoints
         FROM unnest($1::uuid[], $2::uuid[]) AS r (tenant_id, id)
         JOIN LATERAL (SELECT id, endpoints FROM events WHERE tenant_id = r.tenant_id AND id = r.id LIMIT 1) AS e ON true",
        &tenants,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    Ok(found
        .into_iter()
        .map(|row| {
            (
                row.id,
                row.endpoints
                    .into_iter()
                    .map(EndpointId::from_uuid)
                    .collect(),
            )
        })
        .collect())
}

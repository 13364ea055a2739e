//! The rows of `attempts` that a batch adds, each once however often the batch is sent.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::Trigger;
use posthorn_domain::id::{EndpointId, EventId, ReplayId, TenantId};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Keys, int};
use crate::database::DatabaseError;
use crate::record::fact::{Attempt, DeliveryKey};

/// Whether a batch may be on record already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::record) enum Sending {
    /// It was never sent.
    First,
    /// It was, and what came of it is not known: rows that are there stay as they are.
    Again,
}

/// The rows of a batch that this transaction inserted.
pub(super) enum Inserted {
    All,
    These(HashSet<(DeliveryKey, i64)>),
}

impl Inserted {
    pub(super) fn has(&self, key: DeliveryKey, attempt: &Attempt) -> bool {
        match self {
            Self::All => true,
            Self::These(rows) => rows.contains(&(key, attempt.row_id())),
        }
    }
}

/// Inserts the attempts that are not there yet.
///
/// The first time none can be, and PostgreSQL is spared the speculative insertion of `ON CONFLICT`, which
/// writes another record to the WAL for each row.
pub(super) async fn insert(
    connection: &mut PgConnection,
    attempts: &[(DeliveryKey, &Attempt)],
    sending: Sending,
) -> Result<Inserted, DatabaseError> {
    let c = Columns::of(attempts);
    macro_rules! insert {
        ($again:tt) => {
            sqlx::query!(
                "INSERT INTO attempts (tenant_id, endpoint_id, event_id, id, at, config_seq, n, duration_ms, status, outcome,
                                       trigger, replay_id, remote_address, error_kind, error_detail, response_headers,
                                       response_body, response_size, response_cut)
                 SELECT *
                 FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[], $5::timestamptz[], $6::bigint[], $7::integer[],
                             $8::integer[], $9::smallint[], $10::text[], $11::text[], $12::uuid[], $13::text[], $14::text[],
                             $15::text[], $16::text[], $17::bytea[], $18::integer[], $19::boolean[])"
                    + $again,
                &c.keys.tenants,
                &c.keys.endpoints,
                &c.keys.events,
                &c.ids,
                &c.at,
                &c.config_seqs,
                &c.n,
                &c.durations,
                &c.statuses as _,
                &c.outcomes as _,
                &c.triggers as _,
                &c.replays as _,
                &c.addresses as _,
                &c.error_kinds as _,
                &c.error_details as _,
                &c.response_headers as _,
                &c.response_bodies as _,
                &c.response_sizes as _,
                &c.response_cuts as _,
            )
        };
    }
    if sending == Sending::First {
        insert!("").execute(&mut *connection).await?;
        return Ok(Inserted::All);
    }
    let rows = insert!(" ON CONFLICT DO NOTHING RETURNING tenant_id, endpoint_id, event_id, id")
        .fetch_all(&mut *connection)
        .await?;
    let key = |tenant, endpoint, event| DeliveryKey {
        tenant: TenantId::from_uuid(tenant),
        endpoint: EndpointId::from_uuid(endpoint),
        event: EventId::from_uuid(event),
    };
    Ok(Inserted::These(
        rows.into_iter()
            .map(|row| (key(row.tenant_id, row.endpoint_id, row.event_id), row.id))
            .collect(),
    ))
}

/// The attempts' columns.
#[derive(Default)]
struct Columns<'a> {
    keys: Keys,
    n: Vec<i32>,
    ids: Vec<i64>,
    outcomes: Vec<&'static str>,
    statuses: Vec<Option<i16>>,
    at: Vec<DateTime<Utc>>,
    durations: Vec<i32>,
    triggers: Vec<Option<&'static str>>,
    replays: Vec<Option<Uuid>>,
    addresses: Vec<Option<&'a str>>,
    error_kinds: Vec<Option<&'static str>>,
    error_details: Vec<Option<&'a str>>,
    response_headers: Vec<Option<&'a str>>,
    response_bodies: Vec<Option<&'a [u8]>>,
    response_sizes: Vec<Option<i32>>,
    response_cuts: Vec<Option<bool>>,
    config_seqs: Vec<i64>,
}

impl<'a> Columns<'a> {
    fn of(attempts: &[(DeliveryKey, &'a Attempt)]) -> Self {
        let mut c = Self::default();
        for (key, attempt) in attempts {
            let response = attempt.response.as_ref();
            let error = attempt.error.as_ref();
            c.keys.push(*key);
            c.n.push(int(attempt.n));
            c.ids.push(attempt.row_id());
            c.outcomes
                .push(if attempt.success { "success" } else { "failed" });
            c.statuses
                .push(attempt.status.and_then(|status| i16::try_from(status).ok()));
            c.at.push(attempt.at);
            c.durations
                .push(i32::try_from(attempt.duration.as_millis()).unwrap_or(i32::MAX));
            // NULL is the schedule, as nearly all are.
            c.triggers
                .push((attempt.trigger != Trigger::Schedule).then_some(attempt.trigger.as_str()));
            c.replays.push(attempt.replay.map(ReplayId::uuid));
            c.addresses.push(attempt.remote_address.as_deref());
            c.error_kinds.push(error.map(|error| error.kind.as_str()));
            c.error_details
                .push(error.map(|error| error.detail.as_str()));
            c.response_headers
                .push(response.map(|kept| kept.headers.as_str()));
            c.response_bodies
                .push(response.map(|kept| kept.body.as_slice()));
            c.response_sizes
                .push(response.map(|kept| i32::try_from(kept.size).unwrap_or(i32::MAX)));
            c.response_cuts.push(response.map(|kept| kept.cut));
            c.config_seqs.push(attempt.config_seq);
        }
        c
    }
}

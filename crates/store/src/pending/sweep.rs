//! Sweeps over parked rows: drained, or ended on the word of their endpoint's own row.
//!
//! Every one may run again at any time, and is bounded in rows. The endpoints with parked rows are listed from
//! the index, never from a flag.
//!
//! Rows are chosen and locked first, and then changed by their places (`ctid`) and nothing else: whatever more is said of them
//! lets PostgreSQL look for them by it, and compare each row of the endpoint with each that was chosen, where its statistics
//! do not know the endpoint yet. So 10,000 rows took 49 s. One that another transaction changes meanwhile is left alone: its new
//! version has another place.

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::Cause;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use uuid::Uuid;

use super::Due;
use crate::database::{Database, DatabaseError};
use crate::record::DeliveryKey;

/// Rows that one sweep of one endpoint touches at most.
const SWEEP_ROWS: i64 = 1000;

/// An endpoint that has parked rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ParkedEndpoint {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub endpoint: EndpointId,
}

/// An endpoint as a sweep finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub of: ParkedEndpoint,
    /// The end of one of its deliveries has come.
    pub over: bool,
}

/// A shard, and behind which of its endpoints to look; `None`: from the first.
pub type SweptFrom = (i16, Option<ParkedEndpoint>);

/// The endpoints with parked rows in these shards, in the order given, at most `per_shard` of each and `limit` in all: a loose
/// scan of the index, one probe an endpoint.
///
/// # Errors
/// When the database does not answer.
pub async fn parked_endpoints(
    database: &Database,
    from: &[SweptFrom],
    per_shard: i64,
    limit: i64,
) -> Result<Vec<Listed>, DatabaseError> {
    let shards: Vec<_> = from.iter().map(|(shard, _)| *shard).collect();
    let (tenants, endpoints): (Vec<_>, Vec<_>) = from
        .iter()
        .map(|(_, after)| {
            after.map_or((Uuid::nil(), Uuid::nil()), |of| {
                (of.tenant.uuid(), of.endpoint.uuid())
            })
        })
        .unzip();
    let rows = sqlx::query!(
        r#"SELECT found.tenant_id AS "tenant_id!", found.endpoint_id AS "endpoint_id!", found.ends_at <= now() AS "over!"
           FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) AS s (shard, tenant_id, endpoint_id)
           CROSS JOIN LATERAL (
               WITH RECURSIVE walk AS (
                   (SELECT p.tenant_id, p.endpoint_id, p.ends_at FROM pending AS p
                    WHERE p.shard = s.shard AND p.due IS NULL
                      AND (p.tenant_id, p.endpoint_id) > (s.tenant_id, s.endpoint_id)
                    ORDER BY p.tenant_id, p.endpoint_id, p.ends_at LIMIT 1)
                   UNION ALL
                   SELECT next.tenant_id, next.endpoint_id, next.ends_at
                   FROM walk
                   CROSS JOIN LATERAL (
                       SELECT p.tenant_id, p.endpoint_id, p.ends_at FROM pending AS p
                       WHERE p.shard = s.shard AND p.due IS NULL
                         AND (p.tenant_id, p.endpoint_id) > (walk.tenant_id, walk.endpoint_id)
                       ORDER BY p.tenant_id, p.endpoint_id, p.ends_at LIMIT 1
                   ) AS next
               )
               SELECT tenant_id, endpoint_id, ends_at FROM walk LIMIT $4
           ) AS found
           LIMIT $5"#,
        &shards,
        &tenants,
        &endpoints,
        per_shard,
        limit,
    )
    .fetch_all(database.scans())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Listed {
            of: ParkedEndpoint {
                tenant: TenantId::from_uuid(row.tenant_id),
                endpoint: EndpointId::from_uuid(row.endpoint_id),
            },
            over: row.over,
        })
        .collect())
}

/// A parked row, and its place in the order in which they are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The row.
    pub row: Due,
    /// The delivery's end.
    pub ends_at: DateTime<Utc>,
}

/// Up to `limit` parked rows of an endpoint, those whose end is nearest first, behind the row `after`. They stay parked: a
/// drain that is cut short leaves nothing to put back.
///
/// # Errors
/// When the database does not answer.
pub async fn parked(
    database: &Database,
    of: ParkedEndpoint,
    after: Option<Parked>,
    limit: usize,
) -> Result<Vec<Parked>, DatabaseError> {
    let (ends_at, event) = after.map_or((DateTime::UNIX_EPOCH, Uuid::nil()), |parked| {
        (parked.ends_at, parked.row.key.event.uuid())
    });
    let rows = sqlx::query!(
        "SELECT event_id, n, ends_at FROM pending
         WHERE shard = $3 AND tenant_id = $1 AND endpoint_id = $2 AND due IS NULL AND (ends_at, event_id) > ($4, $5)
         ORDER BY ends_at, event_id
         LIMIT $6",
        of.tenant.uuid(),
        of.endpoint.uuid(),
        i16::from(of.endpoint.shard()),
        ends_at,
        event,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(database.scans())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Parked {
            row: Due {
                key: DeliveryKey {
                    tenant: of.tenant,
                    endpoint: of.endpoint,
                    event: EventId::from_uuid(row.event_id),
                },
                n: u32::try_from(row.n).unwrap_or(0),
                due: None,
            },
            ends_at: row.ends_at,
        })
        .collect())
}

/// Lays an endpoint's rows whose end has come in the dead letters, cause `expired`. Answers how many.
///
/// # Errors
/// When the database does not answer.
pub async fn expire(database: &Database, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
    into_dead_letters(database, of, Cause::Expired).await
}

/// The same for one row whose payload is gone, whatever its end.
///
/// # Errors
/// When the database does not answer.
pub async fn bury(database: &Database, row: &Due, cause: Cause) -> Result<u64, DatabaseError> {
    let buried = sqlx::query!(
        "WITH died AS (
             DELETE FROM pending
             WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3 AND n = $4
             RETURNING tenant_id, endpoint_id, event_id, replay_id
         )
         INSERT INTO dead_letters AS d (tenant_id, endpoint_id, event_id, type, application_id, cause, deaths, replay_id, died_at)
         SELECT died.tenant_id, died.endpoint_id, died.event_id, COALESCE(e.type, ''), e.application_id, $5, 1, died.replay_id, now()
         FROM died
         LEFT JOIN LATERAL (SELECT type, application_id FROM events
                            WHERE events.tenant_id = died.tenant_id AND events.id = died.event_id
                            UNION ALL
                            SELECT type, application_id FROM kept_events
                            WHERE kept_events.tenant_id = died.tenant_id AND kept_events.id = died.event_id
                            LIMIT 1) AS e ON true
         LEFT JOIN LATERAL (SELECT 1 AS success FROM attempts AS a
                            WHERE a.tenant_id = died.tenant_id AND a.endpoint_id = died.endpoint_id
                              AND a.event_id = died.event_id AND a.outcome = 'success' LIMIT 1) AS success ON true
         WHERE success.success IS NULL
         ON CONFLICT (tenant_id, endpoint_id, event_id) DO UPDATE
         SET cause = excluded.cause, deaths = d.deaths + 1, replay_id = excluded.replay_id, died_at = excluded.died_at",
        row.key.tenant.uuid(),
        row.key.endpoint.uuid(),
        row.key.event.uuid(),
        i32::try_from(row.n).unwrap_or(i32::MAX),
        cause.as_str(),
    )
    .execute(database.system())
    .await?;
    Ok(buried.rows_affected())
}

async fn into_dead_letters(
    database: &Database,
    of: ParkedEndpoint,
    cause: Cause,
) -> Result<u64, DatabaseError> {
    let died = sqlx::query!(
        "WITH died AS (
             DELETE FROM pending AS p
             WHERE p.ctid = ANY (ARRAY(
                       SELECT ctid FROM pending
                       WHERE shard = $3 AND tenant_id = $1 AND endpoint_id = $2 AND due IS NULL AND ends_at <= now()
                       ORDER BY ends_at
                       LIMIT $5
                       FOR UPDATE))
             RETURNING p.tenant_id, p.endpoint_id, p.event_id, p.replay_id
         )
         INSERT INTO dead_letters AS d (tenant_id, endpoint_id, event_id, type, application_id, cause, deaths, replay_id, died_at)
         SELECT died.tenant_id, died.endpoint_id, died.event_id, COALESCE(e.type, ''), e.application_id, $4, 1, died.replay_id, now()
         FROM died
         LEFT JOIN LATERAL (SELECT type, application_id FROM events
                            WHERE events.tenant_id = died.tenant_id AND events.id = died.event_id
                            UNION ALL
                            SELECT type, application_id FROM kept_events
                            WHERE kept_events.tenant_id = died.tenant_id AND kept_events.id = died.event_id
                            LIMIT 1) AS e ON true
         LEFT JOIN LATERAL (SELECT 1 AS success FROM attempts AS a
                            WHERE a.tenant_id = died.tenant_id AND a.endpoint_id = died.endpoint_id
                              AND a.event_id = died.event_id AND a.outcome = 'success' LIMIT 1) AS success ON true
         WHERE success.success IS NULL
         ON CONFLICT (tenant_id, endpoint_id, event_id) DO UPDATE
         SET cause = excluded.cause, deaths = d.deaths + 1, replay_id = excluded.replay_id, died_at = excluded.died_at",
        of.tenant.uuid(),
        of.endpoint.uuid(),
        i16::from(of.endpoint.shard()),
        cause.as_str(),
        SWEEP_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(died.rows_affected())
}

/// Ends the rows of an endpoint that its own row says is deleted, or disabled because it is gone, by a verdict.
/// Answers how many; 0 where the endpoint is neither.
///
/// # Errors
/// When the database does not answer.
pub async fn cancel(database: &Database, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
    let ended = sqlx::query!(
        "WITH ended AS (
             DELETE FROM pending AS p
             USING endpoints AS e
             WHERE p.ctid = ANY (ARRAY(
                       SELECT own.ctid
                       FROM endpoints AS ended_by
                       JOIN pending AS own ON own.tenant_id = ended_by.tenant_id AND own.endpoint_id = ended_by.id
                       WHERE ended_by.tenant_id = $1 AND ended_by.id = $2
                         AND (ended_by.deleted_at IS NOT NULL OR (ended_by.state = 'disabled' AND ended_by.state_cause = 'gone'))
                       LIMIT $3
                       FOR UPDATE OF own))
               AND e.tenant_id = $1 AND e.id = $2
               AND (e.deleted_at IS NOT NULL OR (e.state = 'disabled' AND e.state_cause = 'gone'))
             RETURNING p.tenant_id, p.endpoint_id, p.event_id, p.n, p.replay_id, e.config_seq,
                       CASE WHEN e.deleted_at IS NOT NULL THEN 'cancelled' ELSE 'dead_gone' END AS verdict
         )
         INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, replay_id, config_seq)
         SELECT tenant_id, endpoint_id, event_id, n, n::bigint << 32, verdict, now(), 0, replay_id, config_seq
         FROM ended
         ON CONFLICT DO NOTHING",
        of.tenant.uuid(),
        of.endpoint.uuid(),
        SWEEP_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(ended.rows_affected())
}

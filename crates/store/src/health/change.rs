//! Changes of an endpoint's health. Each is one statement, which hits nothing where somebody was faster.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::ErrorKind;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_domain::limits;
use uuid::Uuid;

use crate::database::{Database, DatabaseError, TenantTransaction};

/// Which endpoint.
type Of = (TenantId, EndpointId);

/// A circuit that opens.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Failed attempts in a row.
    pub failures: u32,
    /// When the first of them was.
    pub first_failed_at: DateTime<Utc>,
    /// What the last of them failed by.
    pub cause: ErrorKind,
    /// When the first probe is made, from now.
    pub next_probe: Duration,
}

/// A probe that failed.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// The revision that the probe was made by.
    pub revision: i64,
    /// What it failed by.
    pub cause: ErrorKind,
    /// When the next is made, from now.
    pub next_probe: Duration,
}

/// The receiver asked to be left alone for this long. A later moment that is known already stays.
///
/// # Errors
/// When the database does not answer.
pub async fn floor(database: &Database, of: Of, span: Duration) -> Result<(), DatabaseError> {
    sqlx::query!(
        "INSERT INTO endpoint_state AS s (tenant_id, endpoint_id, revision, retry_after, circuit, failures, probes)
         VALUES ($1, $2, 1, now() + make_interval(secs => $3), 'closed', 0, 0)
         ON CONFLICT (tenant_id, endpoint_id) DO UPDATE
         SET retry_after = greatest(s.retry_after, excluded.retry_after), revision = s.revision + 1, changed_at = now()",
        of.0.uuid(),
        of.1.uuid(),
        span.as_secs_f64(),
    )
    .execute(database.system())
    .await?;
    Ok(())
}

/// Opens a circuit that is closed. Answers whether it did: not where it was open, nor where another node has recorded a
/// success since the first of these failures, tests aside. First attempts are made by whoever accepted the event and later ones by the owner
/// of the shard, so that one of them may see failures alone of an endpoint that takes everything in the end.
///
/// # Errors
/// When the database does not answer.
pub async fn open(database: &Database, of: Of, opening: Opening) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "INSERT INTO endpoint_state AS s
             (tenant_id, endpoint_id, revision, circuit, opened_at, failures, first_failed_at, cause, probes, next_probe_at)
         SELECT $1::uuid, $2::uuid, 1, 'open', now(), $3::integer, $4::timestamptz, $5::text, 0, now() + make_interval(secs => $6)
         WHERE NOT EXISTS (
             SELECT 1
             FROM (SELECT a.at, a.outcome FROM attempts AS a
                   WHERE a.tenant_id = $1 AND a.endpoint_id = $2
                     AND a.event_id >= posthorn_uuid_floor($4::timestamptz - interval '1 day')
                     AND a.trigger IS DISTINCT FROM 'test'
                   ORDER BY a.event_id DESC
                   LIMIT $7) AS latest
             WHERE latest.outcome = 'success' AND latest.at >= $4
         )
         ON CONFLICT (tenant_id, endpoint_id) DO UPDATE
         SET circuit = 'open', opened_at = now(), failures = excluded.failures, first_failed_at = excluded.first_failed_at,
             cause = excluded.cause, probes = 0, next_probe_at = excluded.next_probe_at, revision = s.revision + 1,
             changed_at = now()
         WHERE s.circuit = 'closed'",
        of.0.uuid(),
        of.1.uuid(),
        i32::try_from(opening.failures).unwrap_or(i32::MAX),
        opening.first_failed_at,
        opening.cause.as_str(),
        opening.next_probe.as_secs_f64(),
        limits::CIRCUIT_LOOKS_BACK,
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A probe of an open circuit failed. Answers whether it still was what was probed.
///
/// # Errors
/// When the database does not answer.
pub async fn probed(database: &Database, of: Of, probed: Probed) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "UPDATE endpoint_state
         SET probes = probes + 1, failures = failures + 1, cause = $4, next_probe_at = now() + make_interval(secs => $5), revision = revision + 1,
             changed_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND revision = $3 AND circuit = 'open'",
        of.0.uuid(),
        of.1.uuid(),
        probed.revision,
        probed.cause.as_str(),
        probed.next_probe.as_secs_f64(),
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A probe of an open circuit succeeded: more and more is sent. Answers whether it was open.
///
/// # Errors
/// When the database does not answer.
pub async fn ramp(database: &Database, of: Of, revision: i64) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "UPDATE endpoint_state
         SET circuit = 'ramping', failures = 0, first_failed_at = NULL, next_probe_at = NULL, last_success_at = now(),
             revision = revision + 1, changed_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND revision = $3 AND circuit = 'open'",
        of.0.uuid(),
        of.1.uuid(),
        revision,
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// An attempt failed on the way back: the circuit is open again. Answers whether it was on its way.
///
/// # Errors
/// When the database does not answer.
pub async fn reopen(database: &Database, of: Of, again: Probed) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "UPDATE endpoint_state
         SET circuit = 'open', opened_at = now(), failures = 1, first_failed_at = now(), cause = $4, probes = 0,
             next_probe_at = now() + make_interval(secs => $5), revision = revision + 1, changed_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND revision = $3 AND circuit = 'ramping'",
        of.0.uuid(),
        of.1.uuid(),
        again.revision,
        again.cause.as_str(),
        again.next_probe.as_secs_f64(),
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The way back is over: all is well. Answers whether it was on its way.
///
/// # Errors
/// When the database does not answer.
pub async fn close(database: &Database, of: Of, revision: i64) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "UPDATE endpoint_state
         SET circuit = 'closed', opened_at = NULL, failures = 0, first_failed_at = NULL, cause = NULL, probes = 0,
             last_success_at = now(), revision = revision + 1, changed_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND revision = $3 AND circuit = 'ramping'",
        of.0.uuid(),
        of.1.uuid(),
        revision,
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A person enabled the endpoint again, or sent it elsewhere: whatever was, it begins afresh.
pub(crate) async fn start_afresh(
    tx: &mut TenantTransaction,
    tenant: TenantId,
    endpoint: Uuid,
) -> Result<(), DatabaseError> {
    sqlx::query!(
        "UPDATE endpoint_state
         SET circuit = 'closed', retry_after = NULL, opened_at = NULL, failures = 0, first_failed_at = NULL, cause = NULL,
             probes = 0, next_probe_at = NULL, revision = revision + 1, changed_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2",
        tenant.uuid(),
        endpoint,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Forgets endpoints that have been well for a while, and those that are deleted: at most so many rows. Answers how many.
///
/// # Errors
/// When the database does not answer.
pub async fn forget(database: &Database) -> Result<u64, DatabaseError> {
    let done = sqlx::query!(
        "WITH well AS MATERIALIZED (
             SELECT s.tenant_id, s.endpoint_id FROM endpoint_state AS s
             WHERE s.changed_at < now() - make_interval(secs => $1)
               AND ((s.circuit = 'closed' AND coalesce(s.retry_after < now(), true))
                    OR EXISTS (SELECT 1 FROM endpoints AS e
                               WHERE e.tenant_id = s.tenant_id AND e.id = s.endpoint_id AND e.deleted_at IS NOT NULL))
             ORDER BY s.changed_at
             LIMIT $2
         )
         DELETE FROM endpoint_state AS s USING well
         WHERE s.tenant_id = well.tenant_id AND s.endpoint_id = well.endpoint_id
           AND s.changed_at < now() - make_interval(secs => $1)",
        limits::HEALTH_KEPT.as_secs_f64(),
        limits::EXPIRE_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected())
}

//! Replay: a dead letter becomes due again because somebody asked.
//!
//! A replay writes one row into `pending`, with the next number and the policy's first step, and a `max_age`
//! of its own. The dead letter stays: a success removes it, a last failure raises its deaths.
//!
//! The row in `pending` is written before the letter is looked at again, in the order in which a recorder
//! touches the two, so that the two cannot wait for each other.

use posthorn_domain::audit::Action;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::id::DeliveryId;

use crate::audit::{self, Entry, Fields};
use crate::database::{self, Database, TenantTransaction};
use crate::idempotent;
use crate::read::{DatabaseError, Delivery, delivery_in};
use crate::scope::TenantScope;

/// Why a dead letter was not replayed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The tenant has no such dead letter.
    #[error("there is no such dead letter")]
    NotFound,
    /// An attempt is coming already.
    #[error("the delivery is retrying already")]
    Retrying,
    /// The endpoint is disabled.
    #[error("the endpoint is disabled")]
    EndpointDisabled,
    /// The endpoint was deleted.
    #[error("the endpoint was deleted")]
    EndpointDeleted,
    /// The payload is gone.
    #[error("the payload is gone")]
    PayloadGone,
    /// Retention has just passed the event, and is about to keep it for this dead letter: to be asked again soon.
    #[error("the event is being moved")]
    Moving,
}

impl From<database::DatabaseError> for ReplayError {
    fn from(error: database::DatabaseError) -> Self {
        Self::Database(error.into())
    }
}

crate::database::from_driver!(ReplayError);

/// Makes a dead letter's delivery due at once. Answers the delivery as it then stands; the caller rings the
/// [`crate::due::DueHint`].
///
/// # Errors
/// See [`ReplayError`].
pub async fn replay_dead_letter(
    database: &Database,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<Delivery, ReplayError> {
    let mut tx = database.tenant_tx(&scope).await?;
    check(&mut tx, scope, id).await?;
    idempotent::mark(&mut tx).await?;
    insert(&mut tx, scope, id).await?;
    if !still_dead(&mut tx, scope, id).await? {
        // A success was recorded in between: it removed the letter, and our row goes with the transaction.
        return Err(ReplayError::NotFound);
    }
    let delivery = delivery_in(&mut tx, scope, id)
        .await?
        .ok_or(ReplayError::PayloadGone)?;
    let entry = Entry {
        action: Action::DeadLetterReplayed,
        target: id.to_string(),
        before: Fields::new(),
        after: Fields::new(),
    };
    audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    tx.commit().await?;
    Ok(delivery)
}

/// Refuses what cannot be replayed, with the reason.
async fn check(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<(), ReplayError> {
    let (tenant, endpoint, event) = (scope.tenant().uuid(), id.endpoint.uuid(), id.event.uuid());
    let found = sqlx::query!(
        r#"SELECT e.state AS "state?", e.deleted_at,
                  EXISTS (SELECT 1 FROM events WHERE tenant_id = $1 AND id = $3)
                      OR EXISTS (SELECT 1 FROM kept_events WHERE tenant_id = $1 AND id = $3) AS "kept!",
                  EXISTS (SELECT 1 FROM pending WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3) AS "pending!"
           FROM dead_letters d
           LEFT JOIN endpoints e ON e.tenant_id = $1 AND e.id = d.endpoint_id
           WHERE d.tenant_id = $1 AND d.endpoint_id = $2 AND d.event_id = $3"#,
        tenant,
        endpoint,
        event,
    )
    .fetch_optional(&mut **tx)
    .await?;
    let found = found.ok_or(ReplayError::NotFound)?;
    if found.pending {
        return Err(ReplayError::Retrying);
    }
    match found.state.as_deref() {
        None => return Err(ReplayError::EndpointDeleted),
        Some(_) if found.deleted_at.is_some() => return Err(ReplayError::EndpointDeleted),
        Some(state) if state == EndpointState::Disabled.as_str() => {
            return Err(ReplayError::EndpointDisabled);
        }
        Some(_) => {}
    }
    if found.kept {
        Ok(())
    } else {
        Err(ReplayError::PayloadGone)
    }
}

/// Writes the pending row, unless there is one already, or the event is at or below the floor of retention and not kept:
/// its leaf may be emptied at any moment (INV-2).
async fn insert(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<(), ReplayError> {
    let (tenant, endpoint, event) = (scope.tenant().uuid(), id.endpoint.uuid(), id.event.uuid());
    // Held until the commit: the floor rises before it or after it, and nothing that it keeps is removed meanwhile.
    let gate = sqlx::query!(
        "SELECT floor FROM retention, pg_advisory_xact_lock_shared(hashtext('posthorn_gate')) FOR KEY SHARE OF retention"
    )
    .fetch_one(&mut **tx)
    .await?;
    // A look of its own, since what was kept while the lock was waited for is not seen by the statement that waited.
    let kept = event > gate.floor
        || sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT 1 FROM kept_events WHERE tenant_id = $1 AND id = $2) AS "kept!""#,
            tenant,
            event,
        )
        .fetch_one(&mut **tx)
        .await?;
    if !kept {
        return Err(ReplayError::Moving);
    }
    let hit = sqlx::query!(
        "WITH last AS (
             SELECT coalesce(max(n), 0) AS n
             FROM attempts
             WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3
         )
         INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
         SELECT $1, $2, $3, $4, now(), last.n + 1, 0, last.n + 1, now() + e.max_age_s * interval '1 second', 'replay'
         FROM last, endpoints e
         WHERE e.tenant_id = $1 AND e.id = $2 AND e.deleted_at IS NULL
         ON CONFLICT DO NOTHING",
        tenant,
        endpoint,
        event,
        i16::from(id.endpoint.shard()),
    )
    .execute(&mut **tx)
    .await?;
    if hit.rows_affected() == 1 {
        Ok(())
    } else {
        Err(ReplayError::Retrying)
    }
}

async fn still_dead(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<bool, database::DatabaseError> {
    sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM dead_letters WHERE tenant_id = $1 AND endpoint_id = $2 AND event_id = $3) AS "dead!""#,
        scope.tenant().uuid(),
        id.endpoint.uuid(),
        id.event.uuid(),
    )
    .fetch_one(&mut **tx)
    .await
    .map_err(database::DatabaseError::from)
}

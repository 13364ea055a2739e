//! An endpoint that Posthorn disables: it says by 410 that it is gone, or has failed for days.
//!
//! The deliveries of one that is gone become dead by verdict when the sweep finds its row so ([`crate::pending::cancel`]).

use posthorn_domain::audit::Action;
use posthorn_domain::endpoint::{EndpointState, StateCause};
use posthorn_domain::id::{EndpointId, TenantId};

use crate::audit::{self, Entry};
use crate::database::{Database, DatabaseError};
use crate::scope::Actor;

/// Disables an endpoint, if it still is the version that was asked: an endpoint whose URL was changed meanwhile did not say
/// anything yet. Answers whether it was disabled.
///
/// # Errors
/// When the database does not answer; the next answer asks again.
pub async fn disable(
    database: &Database,
    tenant: TenantId,
    endpoint: EndpointId,
    config_seq: i64,
    cause: StateCause,
) -> Result<bool, DatabaseError> {
    let mut tx = database.system_tx().await?;
    // Changes of configuration take this row last of all, so the endpoint's own comes first here, too.
    let found = sqlx::query!(
        "SELECT url, header_names, retry_policy, state FROM endpoints
         WHERE tenant_id = $1 AND id = $2 AND config_seq = $3 AND state <> 'disabled' AND deleted_at IS NULL
         FOR UPDATE",
        tenant.uuid(),
        endpoint.uuid(),
        config_seq,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(found) = found else { return Ok(false) };
    let seq = sqlx::query_scalar!("UPDATE config_head SET seq = seq + 1 RETURNING seq")
        .fetch_one(&mut *tx)
        .await?;
    sqlx::query!(
        "INSERT INTO config_log (seq, tenant_id) VALUES ($1, $2)",
        seq,
        tenant.uuid()
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "UPDATE endpoints SET state = 'disabled', state_cause = $4, config_seq = $3, updated_at = now()
         WHERE tenant_id = $1 AND id = $2",
        tenant.uuid(),
        endpoint.uuid(),
        seq,
        cause.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "INSERT INTO endpoint_versions (tenant_id, endpoint_id, config_seq, url, header_names, retry_policy)
         VALUES ($1, $2, $3, $4, $5, $6)",
        tenant.uuid(),
        endpoint.uuid(),
        seq,
        found.url,
        &found.header_names,
        found.retry_policy,
    )
    .execute(&mut *tx)
    .await?;
    let entry = Entry {
        action: Action::EndpointDisabled,
        target: endpoint.to_string(),
        before: audit::fields([("state", found.state.into())]),
        after: audit::fields([
            ("state", EndpointState::Disabled.as_str().into()),
            ("state_cause", cause.as_str().into()),
        ]),
    };
    audit::write(&mut tx, tenant, Actor::POSTHORN, entry).await?;
    tx.commit().await?;
    Ok(true)
}

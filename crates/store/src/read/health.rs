//! Health of endpoints, as their tenant sees it.

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::ErrorKind;

use super::DatabaseError;
use super::endpoints::{Endpoint, word};
use crate::database::TenantTransaction;
use crate::scope::TenantScope;

/// How an endpoint does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HealthStatus {
    /// Nothing is known against it.
    #[default]
    Ok,
    /// It answers again after its circuit was open, and is sent more and more.
    Failing,
    /// Nothing is sent to it but probes.
    CircuitOpen,
}

impl HealthStatus {
    /// The word of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::CircuitOpen => "circuit_open",
        }
    }
}

/// What Posthorn sees of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointHealth {
    /// How it does.
    pub status: HealthStatus,
    /// Since when its circuit is not closed.
    pub since: Option<DateTime<Utc>>,
    /// What its last attempt failed by.
    pub cause: Option<ErrorKind>,
    /// Failed attempts without a success between them, as far as they are counted for all nodes.
    pub failures_in_a_row: u32,
    /// Its last success since its circuit opened.
    pub last_success_at: Option<DateTime<Utc>>,
    /// When it is probed next.
    pub next_probe_at: Option<DateTime<Utc>>,
}

/// Adds what is known of the health of these endpoints.
pub(crate) async fn add_health(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoints: &mut [Endpoint],
) -> Result<(), DatabaseError> {
    let ids: Vec<_> = endpoints
        .iter()
        .map(|endpoint| endpoint.id.uuid())
        .collect();
    let rows = sqlx::query!(
        "SELECT endpoint_id, circuit, opened_at, cause, failures, last_success_at, next_probe_at
         FROM endpoint_state
         WHERE tenant_id = $1 AND endpoint_id = ANY ($2)",
        scope.tenant().uuid(),
        &ids,
    )
    .fetch_all(&mut **tx)
    .await?;
    for row in rows {
        let of = |endpoint: &&mut Endpoint| endpoint.id.uuid() == row.endpoint_id;
        let Some(endpoint) = endpoints.iter_mut().find(of) else {
            continue;
        };
        let status = match row.circuit.as_str() {
            "open" => HealthStatus::CircuitOpen,
            "ramping" => HealthStatus::Failing,
            _ => HealthStatus::Ok,
        };
        let cause = row
            .cause
            .as_deref()
            .map(|cause| word(cause, "the cause of a failure"));
        endpoint.health = EndpointHealth {
            status,
            since: row.opened_at,
            cause: cause.transpose()?,
            failures_in_a_row: u32::try_from(row.failures).unwrap_or(0),
            last_success_at: row.last_success_at,
            next_probe_at: row.next_probe_at,
        };
    }
    Ok(())
}

//! Endpoints: made, changed, deleted, in their tenant's own role.

mod merge;
mod secrets;

pub use merge::{Changes, EndpointPatch, HeaderChanges, Patch, RateChanges};
use posthorn_domain::endpoint::{EndpointState, KeepResponses, SigningScheme};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::rate::RateLimit;
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::seal::Sealed;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::url::EndpointUrl;
pub use secrets::Sealer;
use sqlx::{Postgres, Transaction};

use super::{ConfigureError, raise};
use crate::database::Database;
use crate::health;
use crate::read::{
    Endpoint, EndpointHealth, EndpointRef, EndpointRow, add_health, endpoint_for_update,
};
use crate::scope::TenantScope;

/// An endpoint to be made.
pub struct NewEndpoint {
    /// The tenant's own name for it.
    pub uid: Option<String>,
    /// Where requests go.
    pub url: EndpointUrl,
    /// A person's words about it.
    pub description: String,
    /// What it listens to.
    pub event_types: Vec<EventTypePattern>,
    /// Headers of its own.
    pub headers: CustomHeaders,
    /// When a failed attempt is followed by another.
    pub retry_policy: RetryPolicy,
    /// Every delivery's end, in seconds from accept; `None`: what the policy says.
    pub max_age_s: Option<u32>,
    /// How many requests may start; `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// How many requests may be under way over all nodes; `None`: each node's default.
    pub max_in_flight: Option<u32>,
    /// One deadline over connect, headers and body, in milliseconds.
    pub timeout_ms: u32,
    /// Statuses that end a delivery at once.
    pub fatal_statuses: Vec<u16>,
    /// How requests are signed.
    pub signing_schemes: Vec<SigningScheme>,
    /// Which answers are kept.
    pub keep_responses: KeepResponses,
    /// Pairs that are shown and never sent.
    pub metadata: Metadata,
    /// What people set.
    pub state: EndpointState,
    /// Why, in their words.
    pub state_reason: Option<String>,
    /// A secret for one of the schemes; the others' are generated.
    pub secret: Option<SigningSecret>,
}

/// An endpoint as it was made, and its secrets, to be shown this once.
pub struct Created {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// One for each scheme.
    pub secrets: Vec<SigningSecret>,
}

/// An endpoint as it was changed.
pub struct Patched {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Secrets that were generated for schemes that it did not sign with before, to be shown this once.
    pub secrets: Vec<SigningSecret>,
}

/// Makes an endpoint.
///
/// # Errors
/// When the uid is taken, the tenant has too many endpoints, or the database does not answer.
pub async fn create_endpoint(
    database: &Database,
    scope: TenantScope,
    new: NewEndpoint,
    sealer: &Sealer<'_>,
) -> Result<Created, ConfigureError> {
    let id = EndpointId::mint(sealer.clock.now(), sealer.entropy.bytes());
    let headers = sealer.seal_headers(scope.tenant(), id, &new.headers)?;
    let names = new.headers.names().map(str::to_owned).collect();
    let (endpoint, given) = as_endpoint(id, new, sealer)?;
    let secrets = sealer.secrets_for(&endpoint.signing_schemes, given)?;
    let written = Written::of(id, names, endpoint)?;
    let mut tx = database.tenant_tx(&scope).await?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    if count(&mut tx, scope).await? >= limits::ENDPOINTS_PER_TENANT {
        return Err(ConfigureError::TooManyEndpoints);
    }
    let row = insert(&mut tx, scope, &written, headers.as_ref(), seq).await?;
    insert_version(&mut tx, scope, &written, seq).await?;
    secrets::insert(&mut tx, scope, id, &secrets, sealer).await?;
    tx.commit().await?;
    Ok(Created {
        endpoint: row.told()?,
        secrets,
    })
}

/// Changes an endpoint by merging `patch` into it. An empty patch changes nothing.
///
/// # Errors
/// When there is no such endpoint, the merged headers or metadata are not valid, the uid is taken, or the
/// database does not answer.
pub async fn patch_endpoint(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
    patch: EndpointPatch,
    sealer: &Sealer<'_>,
) -> Result<Patched, ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = endpoint_for_update(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let sealed = row.headers_key_id.clone().zip(row.headers_sealed.clone());
    let mut before = row.told()?;
    if patch.is_empty() {
        add_health(&mut tx, scope, std::slice::from_mut(&mut before)).await?;
        return Ok(Patched {
            endpoint: before,
            secrets: Vec::new(),
        });
    }
    let id = before.id;
    let (headers, names) = match patch.headers {
        None => (
            sealed.map(|(key_id, bytes)| Sealed { key_id, bytes }),
            before.header_names.clone(),
        ),
        Some(ref changes) => {
            let old = sealer.open_headers(scope.tenant(), id, sealed.as_ref())?;
            let merged = changes.merge(&old)?;
            (
                sealer.seal_headers(scope.tenant(), id, &merged)?,
                merged.names().map(str::to_owned).collect(),
            )
        }
    };
    let schemes = before.signing_schemes.clone();
    let was = before.state;
    let after = patch.merge(before)?;
    let begins_afresh = after.state == EndpointState::Enabled && was != EndpointState::Enabled;
    let added: Vec<_> = after
        .signing_schemes
        .iter()
        .copied()
        .filter(|scheme| !schemes.contains(scheme))
        .collect();
    let dropped: Vec<_> = schemes
        .iter()
        .copied()
        .filter(|scheme| !after.signing_schemes.contains(scheme))
        .collect();
    let secrets = sealer.secrets_for(&added, None)?;
    let written = Written::of(id, names, after)?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    let row = update(&mut tx, scope, &written, headers.as_ref(), seq).await?;
    if begins_afresh {
        health::start_afresh(&mut tx, scope.tenant(), id.uuid()).await?;
    }
    insert_version(&mut tx, scope, &written, seq).await?;
    secrets::retire(&mut tx, scope, id, &dropped).await?;
    secrets::insert(&mut tx, scope, id, &secrets, sealer).await?;
    let mut endpoint = row.told()?;
    add_health(&mut tx, scope, std::slice::from_mut(&mut endpoint)).await?;
    tx.commit().await?;
    Ok(Patched { endpoint, secrets })
}

/// Deletes an endpoint. What waits for it is cancelled; its history stays.
///
/// # Errors
/// When there is no such endpoint, or the database does not answer.
pub async fn delete_endpoint(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
) -> Result<(), ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = endpoint_for_update(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    let hit = sqlx::query!(
        "UPDATE endpoints SET deleted_at = now(), updated_at = now(), config_seq = $3
         WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL",
        scope.tenant().uuid(),
        row.id,
        seq,
    )
    .execute(&mut *tx)
    .await?;
    if hit.rows_affected() == 0 {
        return Err(ConfigureError::NotFound);
    }
    tx.commit().await?;
    Ok(())
}

/// The new endpoint, but for what the database sets, and the secret that was given.
fn as_endpoint(
    id: EndpointId,
    new: NewEndpoint,
    sealer: &Sealer<'_>,
) -> Result<(Endpoint, Option<SigningSecret>), ConfigureError> {
    let now = sealer.clock.now();
    let endpoint = Endpoint {
        id,
        uid: new.uid,
        url: new.url.as_str().to_owned(),
        description: new.description,
        event_types: new
            .event_types
            .iter()
            .map(|pattern| pattern.as_str().to_owned())
            .collect(),
        header_names: Vec::new(),
        max_age_s: new
            .max_age_s
            .unwrap_or_else(|| merge::default_max_age_s(&new.retry_policy)),
        max_age_given: new.max_age_s.is_some(),
        retry_policy: new.retry_policy,
        rate_limit: new.rate_limit,
        max_in_flight: new.max_in_flight,
        timeout_ms: new.timeout_ms,
        fatal_statuses: new.fatal_statuses,
        signing_schemes: new.signing_schemes,
        keep_responses: new.keep_responses,
        metadata: serde_json::to_string(&new.metadata)?,
        state: new.state,
        state_cause: None,
        state_reason: new.state_reason,
        health: EndpointHealth::default(),
        created_at: now,
        updated_at: now,
    };
    Ok((endpoint, new.secret))
}

/// An endpoint's columns, as they are written.
struct Written {
    id: EndpointId,
    header_names: Vec<String>,
    retry_policy: String,
    max_age_s: i32,
    rate_burst: Option<i32>,
    max_in_flight: Option<i32>,
    timeout_ms: i32,
    fatal_statuses: Vec<i16>,
    schemes: Vec<String>,
    endpoint: Endpoint,
}

impl Written {
    fn of(
        id: EndpointId,
        header_names: Vec<String>,
        endpoint: Endpoint,
    ) -> Result<Self, ConfigureError> {
        Ok(Self {
            id,
            header_names,
            retry_policy: serde_json::to_string(&endpoint.retry_policy)?,
            max_age_s: i32::try_from(endpoint.max_age_s).unwrap_or(i32::MAX),
            rate_burst: endpoint
                .rate_limit
                .and_then(|limit| i32::try_from(limit.burst()).ok()),
            max_in_flight: endpoint
                .max_in_flight
                .and_then(|limit| i32::try_from(limit).ok()),
            timeout_ms: i32::try_from(endpoint.timeout_ms).unwrap_or(i32::MAX),
            fatal_statuses: endpoint
                .fatal_statuses
                .iter()
                .filter_map(|status| i16::try_from(*status).ok())
                .collect(),
            schemes: endpoint
                .signing_schemes
                .iter()
                .map(|scheme| scheme.as_str().to_owned())
                .collect(),
            endpoint,
        })
    }
}

async fn count(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
) -> Result<usize, sqlx::Error> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM endpoints WHERE tenant_id = $1 AND deleted_at IS NULL"#,
        scope.tenant().uuid(),
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
    written: &Written,
    headers: Option<&Sealed>,
    seq: i64,
) -> Result<EndpointRow, sqlx::Error> {
    let endpoint = &written.endpoint;
    sqlx::query_as!(
        EndpointRow,
        "INSERT INTO endpoints
             (tenant_id, id, uid, url, description, event_types, headers_sealed, headers_key_id, header_names,
              retry_policy, max_age_s, max_age_given, timeout_ms, fatal_statuses, signing_schemes, keep_responses,
              metadata, state, state_reason, config_seq, rate_per_second, rate_burst, max_in_flight)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)
         RETURNING id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                   retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                   fatal_statuses, signing_schemes, keep_responses, metadata, state, state_cause, state_reason,
                   created_at, updated_at",
        scope.tenant().uuid(),
        written.id.uuid(),
        endpoint.uid,
        endpoint.url,
        endpoint.description,
        &endpoint.event_types,
        headers.map(|sealed| sealed.bytes.as_slice()),
        headers.map(|sealed| sealed.key_id.as_str()),
        &written.header_names,
        written.retry_policy,
        written.max_age_s,
        endpoint.max_age_given,
        written.timeout_ms,
        &written.fatal_statuses,
        &written.schemes,
        endpoint.keep_responses.as_str(),
        endpoint.metadata,
        endpoint.state.as_str(),
        endpoint.state_reason,
        seq,
        endpoint.rate_limit.map(|limit| limit.per_second()),
        written.rate_burst,
        written.max_in_flight,
    )
    .fetch_one(&mut **tx)
    .await
}

async fn update(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
    written: &Written,
    headers: Option<&Sealed>,
    seq: i64,
) -> Result<EndpointRow, sqlx::Error> {
    let endpoint = &written.endpoint;
    sqlx::query_as!(
        EndpointRow,
        "UPDATE endpoints
         SET uid = $3, url = $4, description = $5, event_types = $6, headers_sealed = $7, headers_key_id = $8,
             header_names = $9, retry_policy = $10, max_age_s = $11, max_age_given = $12, timeout_ms = $13,
             fatal_statuses = $14, signing_schemes = $15, keep_responses = $16, metadata = $17, state = $18,
             state_cause = $19, state_reason = $20, config_seq = $21, rate_per_second = $22, rate_burst = $23,
             max_in_flight = $24, updated_at = now()
         WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
         RETURNING id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                   retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                   fatal_statuses, signing_schemes, keep_responses, metadata, state, state_cause, state_reason,
                   created_at, updated_at",
        scope.tenant().uuid(),
        written.id.uuid(),
        endpoint.uid,
        endpoint.url,
        endpoint.description,
        &endpoint.event_types,
        headers.map(|sealed| sealed.bytes.as_slice()),
        headers.map(|sealed| sealed.key_id.as_str()),
        &written.header_names,
        written.retry_policy,
        written.max_age_s,
        endpoint.max_age_given,
        written.timeout_ms,
        &written.fatal_statuses,
        &written.schemes,
        endpoint.keep_responses.as_str(),
        endpoint.metadata,
        endpoint.state.as_str(),
        endpoint.state_cause.map(posthorn_domain::endpoint::StateCause::as_str),
        endpoint.state_reason,
        seq,
        endpoint.rate_limit.map(|limit| limit.per_second()),
        written.rate_burst,
        written.max_in_flight,
    )
    .fetch_one(&mut **tx)
    .await
}

/// Keeps what attempts made by this version will be shown with.
async fn insert_version(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
    written: &Written,
    seq: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO endpoint_versions (tenant_id, endpoint_id, config_seq, url, header_names, retry_policy)
         VALUES ($1, $2, $3, $4, $5, $6)",
        scope.tenant().uuid(),
        written.id.uuid(),
        seq,
        written.endpoint.url,
        &written.header_names,
        written.retry_policy,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

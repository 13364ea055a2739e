//! An endpoint's row, and the version of it that its attempts name, written.

use posthorn_domain::compat::CompatForm;
use posthorn_domain::id::EndpointId;
use posthorn_domain::signature_headers::SignatureHeaders;

use super::sealed::SealedParts;
use crate::configure::ConfigureError;
use crate::database::{DatabaseError, TenantTransaction};
use crate::read::{Endpoint, EndpointRow};
use crate::scope::TenantScope;

/// An endpoint's columns, as they are written.
pub(super) struct Written {
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
    /// Refuses headers whose names its signatures take.
    pub(super) fn of(
        id: EndpointId,
        header_names: Vec<String>,
        endpoint: Endpoint,
    ) -> Result<Self, ConfigureError> {
        SignatureHeaders::new(&endpoint.header_prefix, endpoint.compat.as_ref())?
            .leave_free(header_names.iter().map(String::as_str))
            .map_err(ConfigureError::Headers)?;
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

/// How many endpoints the tenant has.
pub(super) async fn count(
    tx: &mut TenantTransaction,
    scope: TenantScope,
) -> Result<usize, DatabaseError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM endpoints WHERE tenant_id = $1 AND deleted_at IS NULL"#,
        scope.tenant().uuid(),
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Writes a new endpoint.
pub(super) async fn insert(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    written: &Written,
    sealed: &SealedParts,
    seq: i64,
) -> Result<EndpointRow, DatabaseError> {
    let endpoint = &written.endpoint;
    let compat = endpoint.compat.as_ref();
    let SealedParts {
        headers,
        compat: compat_sealed,
    } = sealed;
    sqlx::query_as!(
        EndpointRow,
        "INSERT INTO endpoints
             (tenant_id, id, uid, url, description, event_types, headers_sealed, headers_key_id, header_names,
              retry_policy, max_age_s, max_age_given, timeout_ms, fatal_statuses, signing_schemes, keep_responses,
              metadata, state, state_reason, config_seq, rate_per_second, rate_burst, max_in_flight, header_prefix,
              compat_kind, compat_header, compat_key_id, compat_sealed, body)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24,
                 $25, $26, $27, $28, $29)
         RETURNING id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                   retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                   fatal_statuses, signing_schemes, header_prefix, compat_kind, compat_header, compat_key_id, compat_sealed,
                   body, keep_responses, metadata, state, state_cause, state_reason, created_at, updated_at",
        scope.tenant().uuid(),
        written.id.uuid(),
        endpoint.uid,
        endpoint.url,
        endpoint.description,
        &endpoint.event_types,
        headers.as_ref().map(|sealed| sealed.bytes.as_slice()),
        headers.as_ref().map(|sealed| sealed.key_id.as_str()),
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
        endpoint.header_prefix.as_str(),
        compat.map(|form| form.kind().as_str()),
        compat.and_then(CompatForm::given_header),
        compat_sealed.as_ref().map(|sealed| sealed.key_id.as_str()),
        compat_sealed.as_ref().map(|sealed| sealed.bytes.as_slice()),
        endpoint.body.as_str(),
    )
    .fetch_one(&mut **tx)
    .await
    .map_err(DatabaseError::from)
}

/// Writes a changed endpoint.
pub(super) async fn update(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    written: &Written,
    sealed: &SealedParts,
    seq: i64,
) -> Result<EndpointRow, DatabaseError> {
    let endpoint = &written.endpoint;
    let compat = endpoint.compat.as_ref();
    let SealedParts {
        headers,
        compat: compat_sealed,
    } = sealed;
    sqlx::query_as!(
        EndpointRow,
        "UPDATE endpoints
         SET uid = $3, url = $4, description = $5, event_types = $6, headers_sealed = $7, headers_key_id = $8,
             header_names = $9, retry_policy = $10, max_age_s = $11, max_age_given = $12, timeout_ms = $13,
             fatal_statuses = $14, signing_schemes = $15, keep_responses = $16, metadata = $17, state = $18,
             state_cause = $19, state_reason = $20, config_seq = $21, rate_per_second = $22, rate_burst = $23,
             max_in_flight = $24, header_prefix = $25, compat_kind = $26, compat_header = $27, compat_key_id = $28,
             compat_sealed = $29, body = $30, updated_at = now()
         WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL
         RETURNING id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                   retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                   fatal_statuses, signing_schemes, header_prefix, compat_kind, compat_header, compat_key_id, compat_sealed,
                   body, keep_responses, metadata, state, state_cause, state_reason, created_at, updated_at",
        scope.tenant().uuid(),
        written.id.uuid(),
        endpoint.uid,
        endpoint.url,
        endpoint.description,
        &endpoint.event_types,
        headers.as_ref().map(|sealed| sealed.bytes.as_slice()),
        headers.as_ref().map(|sealed| sealed.key_id.as_str()),
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
        endpoint.header_prefix.as_str(),
        compat.map(|form| form.kind().as_str()),
        compat.and_then(CompatForm::given_header),
        compat_sealed.as_ref().map(|sealed| sealed.key_id.as_str()),
        compat_sealed.as_ref().map(|sealed| sealed.bytes.as_slice()),
        endpoint.body.as_str(),
    )
    .fetch_one(&mut **tx)
    .await
    .map_err(DatabaseError::from)
}

/// Keeps what attempts made by this version will be shown with.
pub(super) async fn insert_version(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    written: &Written,
    seq: i64,
) -> Result<(), DatabaseError> {
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

//! Endpoints, as people set them. Secrets and header values stay sealed; only headers' names are read.

use std::str::FromStr;

use chrono::{DateTime, Utc};
use posthorn_domain::body::BodyForm;
use posthorn_domain::compat::CompatForm;
use posthorn_domain::endpoint::{EndpointState, KeepResponses, SigningScheme, StateCause};
use posthorn_domain::id::{EndpointId, IdError};
use posthorn_domain::rate::RateLimit;
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::signature_headers::HeaderPrefix;
use posthorn_domain::uid::Uid;
use uuid::Uuid;

use super::DatabaseError;
use super::health::{EndpointHealth, add_health};
use super::page::{Page, Slice};
use crate::database::{Database, TenantTransaction};
use crate::scope::TenantScope;

/// An endpoint, without its secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// The tenant's own name for it.
    pub uid: Option<String>,
    /// Where requests go.
    pub url: String,
    /// A person's words about it.
    pub description: String,
    /// Patterns of the types that it listens to.
    pub event_types: Vec<String>,
    /// The names of its own headers.
    pub header_names: Vec<String>,
    /// When a failed attempt is followed by another.
    pub retry_policy: RetryPolicy,
    /// Every delivery's end, in seconds from accept.
    pub max_age_s: u32,
    /// The end was given; else it follows from the policy.
    pub max_age_given: bool,
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
    /// What the names of the signature's headers begin with.
    pub header_prefix: HeaderPrefix,
    /// A further signature in the form of others.
    pub compat: Option<CompatForm>,
    /// What its requests carry.
    pub body: BodyForm,
    /// Which answers are kept.
    pub keep_responses: KeepResponses,
    /// A JSON object of strings.
    pub metadata: String,
    /// What people set.
    pub state: EndpointState,
    /// Why Posthorn disabled it, if Posthorn did.
    pub state_cause: Option<StateCause>,
    /// Why a person set the state, in their words.
    pub state_reason: Option<String>,
    /// What Posthorn sees of it.
    pub health: EndpointHealth,
    /// When it was created.
    pub created_at: DateTime<Utc>,
    /// When it was changed last.
    pub updated_at: DateTime<Utc>,
}

/// How a caller names an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointRef {
    /// By our id.
    Id(EndpointId),
    /// By the tenant's own name.
    Uid(String),
}

impl FromStr for EndpointRef {
    type Err = IdError;

    /// An id, or `uid:` and the tenant's name for it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("uid:") {
            // What cannot be a uid names nothing, and a NUL is no character to the database.
            Some(uid) => Uid::parse(uid)
                .map(|uid| Self::Uid(uid.as_str().to_owned()))
                .map_err(|_| IdError::Character),
            None => text.parse().map(Self::Id),
        }
    }
}

impl EndpointRef {
    /// The id and the uid, of which one is none: as statements take it.
    pub(crate) fn parts(&self) -> (Option<Uuid>, Option<&str>) {
        match self {
            Self::Id(id) => (Some(id.uuid()), None),
            Self::Uid(uid) => (None, Some(uid)),
        }
    }
}

/// An endpoint's row, before it is understood.
pub(crate) struct EndpointRow {
    pub(crate) id: Uuid,
    pub(crate) uid: Option<String>,
    pub(crate) url: String,
    pub(crate) description: String,
    pub(crate) event_types: Vec<String>,
    pub(crate) header_names: Vec<String>,
    pub(crate) headers_key_id: Option<String>,
    pub(crate) headers_sealed: Option<Vec<u8>>,
    pub(crate) retry_policy: String,
    pub(crate) max_age_s: i32,
    pub(crate) max_age_given: bool,
    pub(crate) rate_per_second: Option<f64>,
    pub(crate) rate_burst: Option<i32>,
    pub(crate) max_in_flight: Option<i32>,
    pub(crate) timeout_ms: i32,
    pub(crate) fatal_statuses: Vec<i16>,
    pub(crate) signing_schemes: Vec<String>,
    pub(crate) header_prefix: String,
    pub(crate) compat_kind: Option<String>,
    pub(crate) compat_header: Option<String>,
    pub(crate) compat_key_id: Option<String>,
    pub(crate) compat_sealed: Option<Vec<u8>>,
    pub(crate) body: String,
    pub(crate) keep_responses: String,
    pub(crate) metadata: String,
    pub(crate) state: String,
    pub(crate) state_cause: Option<String>,
    pub(crate) state_reason: Option<String>,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) updated_at: DateTime<Utc>,
}

impl EndpointRow {
    /// Understands the row.
    pub(crate) fn told(self) -> Result<Endpoint, DatabaseError> {
        let cause = self
            .state_cause
            .map(|cause| word(&cause, "the endpoint's state_cause"))
            .transpose()?;
        let schemes = self
            .signing_schemes
            .iter()
            .map(|scheme| word(scheme, "a signing scheme"));
        Ok(Endpoint {
            id: EndpointId::from_uuid(self.id),
            uid: self.uid,
            url: self.url,
            description: self.description,
            event_types: self.event_types,
            header_names: self.header_names,
            retry_policy: serde_json::from_str(&self.retry_policy)
                .map_err(|_| DatabaseError::Unreadable("the endpoint's retry policy"))?,
            max_age_s: u32::try_from(self.max_age_s).unwrap_or(0),
            max_age_given: self.max_age_given,
            rate_limit: rate_limit(self.rate_per_second, self.rate_burst),
            max_in_flight: self
                .max_in_flight
                .and_then(|limit| u32::try_from(limit).ok()),
            timeout_ms: u32::try_from(self.timeout_ms).unwrap_or(0),
            fatal_statuses: self
                .fatal_statuses
                .iter()
                .filter_map(|status| u16::try_from(*status).ok())
                .collect(),
            signing_schemes: schemes.collect::<Result<_, _>>()?,
            header_prefix: HeaderPrefix::parse(&self.header_prefix)
                .map_err(|_| DatabaseError::Unreadable("the endpoint's header_prefix"))?,
            compat: compat_form(self.compat_kind.as_deref(), self.compat_header.as_deref())?,
            body: word(&self.body, "the endpoint's body")?,
            keep_responses: word(&self.keep_responses, "the endpoint's keep_responses")?,
            metadata: self.metadata,
            state: word(&self.state, "the endpoint's state")?,
            state_cause: cause,
            state_reason: self.state_reason,
            health: EndpointHealth::default(),
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// A rate as it lies in its two columns. One that this program does not understand is none: the columns' own
/// constraints are no wider.
pub(crate) fn rate_limit(per_second: Option<f64>, burst: Option<i32>) -> Option<RateLimit> {
    RateLimit::new(per_second?, u32::try_from(burst?).ok()?).ok()
}

/// The form of others as it lies in its two columns.
pub(crate) fn compat_form(
    kind: Option<&str>,
    header: Option<&str>,
) -> Result<Option<CompatForm>, DatabaseError> {
    let unreadable = || DatabaseError::Unreadable("the endpoint's compatibility scheme");
    kind.map(|kind| {
        let kind = kind.parse().map_err(|_| unreadable())?;
        CompatForm::new(kind, header).map_err(|_| unreadable())
    })
    .transpose()
}

pub(super) fn word<T: FromStr>(text: &str, what: &'static str) -> Result<T, DatabaseError> {
    text.parse().map_err(|_| DatabaseError::Unreadable(what))
}

/// One page of a tenant's endpoints, by when they were created. Deleted ones are left out.
///
/// # Errors
/// When the database does not answer.
pub async fn endpoints(
    database: &Database,
    scope: TenantScope,
    slice: Slice<EndpointId>,
) -> Result<Page<Endpoint>, DatabaseError> {
    let scan = slice.scan(
        EndpointId::from_uuid(Uuid::nil()),
        EndpointId::from_uuid(Uuid::max()),
    );
    let (tenant, low, high) = (scope.tenant().uuid(), scan.low.uuid(), scan.high.uuid());
    let mut tx = database.tenant_tx(&scope).await?;
    /// The two directions differ in a word, which a checked statement cannot take as a parameter.
    macro_rules! list {
        ($direction:tt) => {
            sqlx::query_as!(
                EndpointRow,
                "SELECT id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                        retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                        fatal_statuses, signing_schemes, header_prefix, compat_kind, compat_header, compat_key_id, compat_sealed,
                        body, keep_responses, metadata, state, state_cause, state_reason, created_at, updated_at
                 FROM endpoints
                 WHERE tenant_id = $1 AND id >= $2 AND id < $3 AND deleted_at IS NULL
                 ORDER BY id " + $direction + "
                 LIMIT $4",
                tenant,
                low,
                high,
                scan.rows,
            )
            .fetch_all(&mut *tx)
            .await?
        };
    }
    let rows = if scan.upward {
        list!("ASC")
    } else {
        list!("DESC")
    };
    let mut page = slice.page(rows).try_map(EndpointRow::told)?;
    add_health(&mut tx, scope, &mut page.rows).await?;
    tx.commit().await?;
    Ok(page)
}

/// One endpoint, unless it was deleted.
///
/// # Errors
/// When the database does not answer.
pub async fn endpoint(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
) -> Result<Option<Endpoint>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = find_endpoint(&mut tx, scope, which).await?;
    let mut endpoint = row.map(EndpointRow::told).transpose()?;
    if let Some(endpoint) = &mut endpoint {
        add_health(&mut tx, scope, std::slice::from_mut(endpoint)).await?;
    }
    tx.commit().await?;
    Ok(endpoint)
}

/// One endpoint's row, unless it was deleted.
pub(crate) async fn find_endpoint(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    which: &EndpointRef,
) -> Result<Option<EndpointRow>, DatabaseError> {
    let (id, uid) = which.parts();
    let row = sqlx::query_as!(
        EndpointRow,
        "SELECT id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                fatal_statuses, signing_schemes, header_prefix, compat_kind, compat_header, compat_key_id, compat_sealed,
                body, keep_responses, metadata, state, state_cause, state_reason, created_at, updated_at
         FROM endpoints
         WHERE tenant_id = $1 AND (id = $2 OR uid = $3) AND deleted_at IS NULL",
        scope.tenant().uuid(),
        id,
        uid,
    )
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row)
}

/// One endpoint's row, locked until the transaction ends, unless it was deleted.
pub(crate) async fn endpoint_for_update(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    which: &EndpointRef,
) -> Result<Option<EndpointRow>, DatabaseError> {
    let (id, uid) = which.parts();
    let row = sqlx::query_as!(
        EndpointRow,
        "SELECT id, uid, url, description, event_types, header_names, headers_key_id, headers_sealed,
                retry_policy, max_age_s, max_age_given, rate_per_second, rate_burst, max_in_flight, timeout_ms,
                fatal_statuses, signing_schemes, header_prefix, compat_kind, compat_header, compat_key_id, compat_sealed,
                body, keep_responses, metadata, state, state_cause, state_reason, created_at, updated_at
         FROM endpoints
         WHERE tenant_id = $1 AND (id = $2 OR uid = $3) AND deleted_at IS NULL
         FOR UPDATE",
        scope.tenant().uuid(),
        id,
        uid,
    )
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_by_our_id_or_by_the_tenants_own_name() {
        let id = EndpointId::from_uuid(Uuid::from_u128(7));
        assert_eq!(
            id.to_string().parse::<EndpointRef>().unwrap(),
            EndpointRef::Id(id)
        );
        assert_eq!(
            "uid:shop-1".parse::<EndpointRef>().unwrap(),
            EndpointRef::Uid("shop-1".into())
        );
        assert!("shop-1".parse::<EndpointRef>().is_err());
    }
}

//! What people change: tenants, API keys, endpoints.
//!
//! Each change is one transaction that also raises `config_head` and appends to `config_log`, so that numbers
//! commit in order and every node learns which tenant to load again (INV-12). The caller refreshes its
//! [`crate::configuration::ConfigCache`] before it answers. An endpoint is changed in its tenant's own role;
//! tenants and keys are made by the command line, which holds the database and acts as the system.
//!
//! Secrets and header values are sealed here, bound to tenant and object, and never leave sealed (INV-10).

mod endpoint;
mod key;
mod tenant;

pub use endpoint::{
    Changes, CompatChanges, Created, EndpointPatch, HeaderChanges, NewEndpoint, OpenedSecret,
    OpenedSecrets, Patch, Patched, RateChanges, Rotated, Rotation, Sealer, create_endpoint,
    delete_endpoint, endpoint_secrets, patch_endpoint, rotate_secret,
};
pub use key::{NewKey, Revoked, create_key, revoke_key, tenant_of_key};
use posthorn_domain::compat::CompatError;
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::header::HeadersError;
use posthorn_domain::id::TenantId;
use posthorn_domain::metadata::MetadataError;
use posthorn_domain::rate::RateLimitError;
use sqlx::PgConnection;
pub use tenant::{NewTenant, Tenant, create_tenant, tenants};

use crate::database;
use crate::idempotent;
use crate::read::DatabaseError;

/// Why a change was not made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// There is no such object in the tenant.
    #[error("there is no such object")]
    NotFound,
    /// Another object of the tenant has this uid.
    #[error("the uid is taken")]
    UidTaken,
    /// The tenant has as many endpoints as it may have.
    #[error("the tenant has too many endpoints")]
    TooManyEndpoints,
    /// The tenant has as many API keys in force as it may have.
    #[error("the tenant has too many API keys")]
    TooManyKeys,
    /// The headers, merged with those that stay, are not valid.
    #[error("a header is not valid: {0}")]
    Headers(#[source] HeadersError),
    /// The metadata, merged with what stays, is not valid.
    #[error("the metadata is not valid: {0}")]
    Metadata(#[source] MetadataError),
    /// The rate, merged with what stays, is not valid.
    #[error("the rate limit is not valid: {0}")]
    RateLimit(#[source] RateLimitError),
    /// The endpoint does not sign with this scheme.
    #[error("the endpoint does not sign with {0}")]
    SchemeUnused(SigningScheme),
    /// The endpoint signs with more than one scheme, and it was not said which one is meant.
    #[error("the endpoint signs with v1 and v1a: say which secret is to be changed")]
    SchemeMissing,
    /// The endpoint signs with the given secret already.
    #[error("the endpoint signs with this secret already")]
    SecretInForce,
    /// As many old secrets sign for the endpoint as may.
    #[error("too many old secrets still sign")]
    TooManyOldSecrets,
    /// The form of others, merged with what stays, is not valid.
    #[error("the compatibility scheme is not valid: {0}")]
    Compat(#[from] CompatError),
    /// A secret could not be sealed, or what is sealed could not be opened.
    #[error("the master keys do not serve: {0}")]
    Seal(#[from] posthorn_domain::seal::SealError),
    /// A key pair could not be made.
    #[error("no key could be made: {0}")]
    Secret(#[from] posthorn_domain::secret::SecretError),
    /// A value could not be written as JSON.
    #[error("a value could not be written")]
    Json(#[from] serde_json::Error),
}

impl From<database::DatabaseError> for ConfigureError {
    fn from(error: database::DatabaseError) -> Self {
        if error.constraint() == Some("endpoint_uid_is_unique") {
            Self::UidTaken
        } else {
            Self::Database(error.into())
        }
    }
}

crate::database::from_driver!(ConfigureError);

/// Raises the version of the configuration, for a change of `tenant`. Changes queue up behind the one row,
/// so that whoever reads version `seq` also sees every change below it; call it as late as may be.
async fn raise(
    connection: &mut PgConnection,
    tenant: TenantId,
) -> Result<i64, database::DatabaseError> {
    // Before the row that all wait for.
    idempotent::mark(&mut *connection).await?;
    let seq = sqlx::query_scalar!("UPDATE config_head SET seq = seq + 1 RETURNING seq")
        .fetch_one(&mut *connection)
        .await?;
    sqlx::query!(
        "INSERT INTO config_log (seq, tenant_id) VALUES ($1, $2)",
        seq,
        tenant.uuid()
    )
    .execute(connection)
    .await?;
    Ok(seq)
}

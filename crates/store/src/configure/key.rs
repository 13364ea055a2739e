//! API keys: made and revoked in their tenant's own role. Only their hashes are kept (INV-10).

use chrono::{DateTime, SecondsFormat, Utc};
use posthorn_domain::api_key::KeyHash;
use posthorn_domain::audit::Action;
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::limits;
use posthorn_domain::scope::Scope;

use super::{ConfigureError, raise};
use crate::audit::{self, Entry, Fields};
use crate::database::{Database, DatabaseError, TenantTransaction};
use crate::read;
use crate::scope::TenantScope;

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its id, freshly minted.
    pub id: KeyId,
    /// A person's name for it.
    pub name: String,
    /// Its first characters, to tell keys apart.
    pub prefix: String,
    /// SHA-256 of its text.
    pub hash: KeyHash,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Refused from here on.
    pub expires_at: Option<DateTime<Utc>>,
}

/// What revoking a key found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The key was in force; this version of the configuration is the first without it.
    Now(i64),
    /// It had been revoked before.
    Before,
    /// There is no such key.
    Unknown,
}

/// Makes a key of the tenant. Answers the version of the configuration that has it.
///
/// # Errors
/// [`ConfigureError::NotFound`] when there is no such tenant; [`ConfigureError::TooManyKeys`]; when the database does not answer.
pub async fn create_key(
    database: &Database,
    scope: TenantScope,
    new: &NewKey,
) -> Result<i64, ConfigureError> {
    let scopes: Vec<String> = new
        .scopes
        .iter()
        .map(|scope| scope.as_str().to_owned())
        .collect();
    let (tenant, actor) = (scope.tenant(), scope.actor());
    let mut tx = database.tenant_tx(&scope).await?;
    let entry = Entry {
        action: Action::ApiKeyCreated,
        target: new.id.to_string(),
        before: Fields::new(),
        after: audit::fields([
            ("name", new.name.as_str().into()),
            ("prefix", new.prefix.as_str().into()),
            ("scopes", scopes.clone().into()),
            (
                "expires_at",
                new.expires_at
                    .map(|end| end.to_rfc3339_opts(SecondsFormat::Micros, true))
                    .into(),
            ),
        ]),
    };
    audit::write(&mut tx, tenant, actor, entry).await?;
    // Changes queue up behind it: those who count after it see one another.
    let seq = raise(&mut tx, tenant).await?;
    if count(&mut tx, tenant).await? >= limits::KEYS_PER_TENANT {
        return Err(ConfigureError::TooManyKeys);
    }
    let made = sqlx::query!(
        "INSERT INTO api_keys (tenant_id, id, name, prefix, hash, scopes, expires_at, created_by_kind, created_by_id)
         SELECT id, $2, $3, $4, $5, $6, $7, $8, $9 FROM tenants WHERE id = $1 AND deleted_at IS NULL",
        tenant.uuid(),
        new.id.uuid(),
        new.name,
        new.prefix,
        new.hash.as_bytes().as_slice(),
        &scopes,
        new.expires_at,
        actor.kind().as_str(),
        actor.id(),
    )
    .execute(&mut *tx)
    .await?;
    if made.rows_affected() == 0 {
        return Err(ConfigureError::NotFound);
    }
    tx.commit().await?;
    Ok(seq)
}

/// How many keys of the tenant are in force.
async fn count(tx: &mut TenantTransaction, tenant: TenantId) -> Result<usize, DatabaseError> {
    let count = sqlx::query_scalar!(
        r#"SELECT count(*) AS "count!" FROM api_keys
           WHERE tenant_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"#,
        tenant.uuid(),
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Whose key it is, in force or not.
///
/// # Errors
/// When the database does not answer.
pub async fn tenant_of_key(
    database: &Database,
    id: KeyId,
) -> Result<Option<TenantId>, read::DatabaseError> {
    let tenant = sqlx::query_scalar!("SELECT tenant_id FROM api_keys WHERE id = $1", id.uuid())
        .fetch_optional(database.system())
        .await?;
    Ok(tenant.map(TenantId::from_uuid))
}

/// Revokes a key of the tenant, for ever. Every node refuses it within a second.
///
/// # Errors
/// When the database does not answer.
pub async fn revoke_key(
    database: &Database,
    scope: TenantScope,
    id: KeyId,
) -> Result<Revoked, ConfigureError> {
    let tenant = scope.tenant();
    let mut tx = database.tenant_tx(&scope).await?;
    let key = sqlx::query!(
        "SELECT name, revoked_at FROM api_keys WHERE tenant_id = $1 AND id = $2 FOR UPDATE",
        tenant.uuid(),
        id.uuid()
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(key) = key else {
        return Ok(Revoked::Unknown);
    };
    if key.revoked_at.is_some() {
        return Ok(Revoked::Before);
    }
    sqlx::query!(
        "UPDATE api_keys SET revoked_at = now() WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL",
        tenant.uuid(),
        id.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    let entry = Entry {
        action: Action::ApiKeyRevoked,
        target: id.to_string(),
        before: audit::fields([("name", key.name.into())]),
        after: Fields::new(),
    };
    audit::write(&mut tx, tenant, scope.actor(), entry).await?;
    let seq = raise(&mut tx, tenant).await?;
    tx.commit().await?;
    Ok(Revoked::Now(seq))
}

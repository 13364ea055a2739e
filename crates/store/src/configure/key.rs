//! API keys: made, listed and revoked by the command line. Only their hashes are kept (INV-10).

use chrono::{DateTime, Utc};
use posthorn_domain::api_key::KeyHash;
use posthorn_domain::audit::Action;
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::scope::Scope;

use super::{ConfigureError, raise};
use crate::audit::{self, Entry, Fields};
use crate::database::Database;
use crate::read::DatabaseError;
use crate::scope::Actor;

/// A key to be made.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its id, freshly minted.
    pub id: KeyId,
    /// The tenant that it acts in.
    pub tenant: TenantId,
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

/// A key, without its text, which nobody has but its holder.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// The tenant that it acts in.
    pub tenant: TenantId,
    /// A person's name for it.
    pub name: String,
    /// Its first characters.
    pub prefix: String,
    /// What it may do, as words of the list of scopes.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Refused from here on.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
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

/// Makes a key, on behalf of `actor`. Answers the version of the configuration that has it.
///
/// # Errors
/// [`ConfigureError::NotFound`] when there is no such tenant; else when the database does not answer.
pub async fn create_key(
    database: &Database,
    new: &NewKey,
    actor: Actor,
) -> Result<i64, ConfigureError> {
    let scopes: Vec<String> = new
        .scopes
        .iter()
        .map(|scope| scope.as_str().to_owned())
        .collect();
    let mut tx = database.system_tx().await?;
    let made = sqlx::query!(
        "INSERT INTO api_keys (tenant_id, id, name, prefix, hash, scopes, expires_at)
         SELECT id, $2, $3, $4, $5, $6, $7 FROM tenants WHERE id = $1 AND deleted_at IS NULL",
        new.tenant.uuid(),
        new.id.uuid(),
        new.name,
        new.prefix,
        new.hash.as_bytes().as_slice(),
        &scopes,
        new.expires_at,
    )
    .execute(&mut *tx)
    .await?;
    if made.rows_affected() == 0 {
        return Err(ConfigureError::NotFound);
    }
    let entry = Entry {
        action: Action::ApiKeyCreated,
        target: new.id.to_string(),
        before: Fields::new(),
        after: audit::fields([
            ("name", new.name.as_str().into()),
            ("prefix", new.prefix.as_str().into()),
            ("scopes", scopes.into()),
            (
                "expires_at",
                new.expires_at.map(|end| end.to_rfc3339()).into(),
            ),
        ]),
    };
    audit::write(&mut tx, new.tenant, actor, entry).await?;
    let seq = raise(&mut tx, new.tenant).await?;
    tx.commit().await?;
    Ok(seq)
}

/// Revokes a key, for ever, on behalf of `actor`. Every node refuses it within a second.
///
/// # Errors
/// When the database does not answer.
pub async fn revoke_key(
    database: &Database,
    id: KeyId,
    actor: Actor,
) -> Result<Revoked, ConfigureError> {
    let mut tx = database.system_tx().await?;
    let key = sqlx::query!(
        "SELECT tenant_id, revoked_at FROM api_keys WHERE id = $1 FOR UPDATE",
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
        key.tenant_id,
        id.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    let tenant = TenantId::from_uuid(key.tenant_id);
    let entry = Entry {
        action: Action::ApiKeyRevoked,
        target: id.to_string(),
        before: Fields::new(),
        after: Fields::new(),
    };
    audit::write(&mut tx, tenant, actor, entry).await?;
    let seq = raise(&mut tx, tenant).await?;
    tx.commit().await?;
    Ok(Revoked::Now(seq))
}

/// A tenant's keys, revoked ones included, in the order of their making.
///
/// # Errors
/// When the database does not answer.
pub async fn keys(database: &Database, tenant: TenantId) -> Result<Vec<Key>, DatabaseError> {
    let rows = sqlx::query!(
        "SELECT id, name, prefix, scopes, created_at, expires_at, revoked_at
         FROM api_keys WHERE tenant_id = $1 ORDER BY id",
        tenant.uuid(),
    )
    .fetch_all(database.system())
    .await?;
    let keys = rows.into_iter().map(|row| Key {
        id: KeyId::from_uuid(row.id),
        tenant,
        name: row.name,
        prefix: row.prefix,
        scopes: row.scopes,
        created_at: row.created_at,
        expires_at: row.expires_at,
        revoked_at: row.revoked_at,
    });
    Ok(keys.collect())
}

//! API keys in force or expired, without their texts, which nobody has but their holders. Revoked ones are in the audit log alone.

use chrono::{DateTime, Utc};
use posthorn_domain::id::KeyId;
use uuid::Uuid;

use super::DatabaseError;
use super::page::{Page, Slice};
use crate::database::Database;
use crate::scope::TenantScope;

/// An API key.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// A person's name for it.
    pub name: String,
    /// Its first characters, to tell keys apart.
    pub prefix: String,
    /// What it may do, as words of the list of scopes.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// What kind of caller made it, as the audit log has it; `None`: it was made before that was kept.
    pub created_by_kind: Option<String>,
    /// The API key with which it was made, if it was by one.
    pub created_by_key: Option<KeyId>,
    /// Refused from here on.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was used last, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
}

struct KeyRow {
    id: Uuid,
    name: String,
    prefix: String,
    scopes: Vec<String>,
    created_at: DateTime<Utc>,
    created_by_kind: Option<String>,
    created_by_id: Option<Uuid>,
    expires_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
}

impl From<KeyRow> for ApiKey {
    fn from(row: KeyRow) -> Self {
        Self {
            id: KeyId::from_uuid(row.id),
            name: row.name,
            prefix: row.prefix,
            scopes: row.scopes,
            created_at: row.created_at,
            created_by_kind: row.created_by_kind,
            created_by_key: row.created_by_id.map(KeyId::from_uuid),
            expires_at: row.expires_at,
            last_used_at: row.last_used_at,
        }
    }
}

/// One page of a tenant's API keys, by when they were made.
///
/// # Errors
/// When the database does not answer.
pub async fn api_keys(
    database: &Database,
    scope: TenantScope,
    slice: Slice<KeyId>,
) -> Result<Page<ApiKey>, DatabaseError> {
    let scan = slice.scan(KeyId::from_uuid(Uuid::nil()), KeyId::from_uuid(Uuid::max()));
    let mut tx = database.tenant_tx(&scope).await?;
    /// The two directions differ in a word, which a checked statement cannot take as a parameter.
    macro_rules! list {
        ($direction:tt) => {
            sqlx::query_as!(
                KeyRow,
                "SELECT id, name, prefix, scopes, created_at, created_by_kind, created_by_id, expires_at, last_used_at
                 FROM api_keys
                 WHERE tenant_id = $1 AND id >= $2 AND id < $3 AND revoked_at IS NULL
                 ORDER BY id " + $direction + "
                 LIMIT $4",
                scope.tenant().uuid(),
                scan.low.uuid(),
                scan.high.uuid(),
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
    tx.commit().await?;
    Ok(slice.page(rows).map(ApiKey::from))
}

/// One API key, unless it was revoked.
///
/// # Errors
/// When the database does not answer.
pub async fn api_key(
    database: &Database,
    scope: TenantScope,
    id: KeyId,
) -> Result<Option<ApiKey>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = sqlx::query_as!(
        KeyRow,
        "SELECT id, name, prefix, scopes, created_at, created_by_kind, created_by_id, expires_at, last_used_at
         FROM api_keys
         WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL",
        scope.tenant().uuid(),
        id.uuid(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(row.map(ApiKey::from))
}

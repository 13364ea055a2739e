//! Tenants: made and listed by the command line.

use chrono::{DateTime, Utc};
use posthorn_domain::api_key::Environment;
use posthorn_domain::audit::Action;
use posthorn_domain::id::TenantId;

use super::{ConfigureError, raise};
use crate::audit::{self, Entry, Fields};
use crate::database::Database;
use crate::read::DatabaseError;
use crate::scope::Actor;

/// A tenant to be made.
#[derive(Clone, Debug)]
pub struct NewTenant {
    /// Its id, freshly minted.
    pub id: TenantId,
    /// Its name, 1 to 100 characters.
    pub name: String,
    /// Live or test.
    pub environment: Environment,
}

/// A tenant.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// Live or test.
    pub environment: Environment,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Makes a tenant, on behalf of `actor`. Answers the version of the configuration that has it.
///
/// # Errors
/// When the database does not answer, or the name has no 1 to 100 characters.
pub async fn create_tenant(
    database: &Database,
    new: &NewTenant,
    actor: Actor,
) -> Result<i64, ConfigureError> {
    let mut tx = database.system_tx().await?;
    sqlx::query!(
        "INSERT INTO tenants (id, name, environment) VALUES ($1, $2, $3)",
        new.id.uuid(),
        new.name,
        new.environment.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    let entry = Entry {
        action: Action::TenantCreated,
        target: new.id.to_string(),
        before: Fields::new(),
        after: audit::fields([
            ("name", new.name.as_str().into()),
            ("environment", new.environment.as_str().into()),
        ]),
    };
    audit::write(&mut tx, new.id, actor, entry).await?;
    let seq = raise(&mut tx, new.id).await?;
    tx.commit().await?;
    Ok(seq)
}

/// All tenants that were not deleted, in the order of their making.
///
/// # Errors
/// When the database does not answer.
pub async fn tenants(database: &Database) -> Result<Vec<Tenant>, DatabaseError> {
    let rows = sqlx::query!(
        "SELECT id, name, environment, created_at FROM tenants WHERE deleted_at IS NULL ORDER BY id"
    )
    .fetch_all(database.system())
    .await?;
    rows.into_iter()
        .map(|row| {
            let environment = row
                .environment
                .parse()
                .map_err(|_| DatabaseError::Unreadable("the tenant's environment"))?;
            Ok(Tenant {
                id: TenantId::from_uuid(row.id),
                name: row.name,
                environment,
                created_at: row.created_at,
            })
        })
        .collect()
}

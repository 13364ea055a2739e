//! The audit log of a tenant, newest first.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use posthorn_domain::id::{AuditId, KeyId, TenantId};
use uuid::Uuid;

use super::DatabaseError;
use super::page::{Page, Scan, Slice};
use crate::database::{Database, TenantTransaction};
use crate::scope::TenantScope;

/// One change, and who made it.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    /// Its id, which says when it was made.
    pub id: AuditId,
    /// What kind of caller, as a word of a documented list.
    pub actor_kind: String,
    /// The API key that it came with.
    pub actor_key: Option<KeyId>,
    /// From where.
    pub ip: Option<IpAddr>,
    /// What was done, as a word of a documented list.
    pub action: String,
    /// The id of what was changed.
    pub target: String,
    /// A JSON object: what it was.
    pub before: Option<String>,
    /// A JSON object: what it is.
    pub after: Option<String>,
}

/// Which entries a list has.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of one thing, by its id.
    pub target: Option<String>,
    /// Made at or after.
    pub since: Option<DateTime<Utc>>,
    /// Made before.
    pub until: Option<DateTime<Utc>>,
}

struct AuditRow {
    id: Uuid,
    actor_kind: String,
    actor_id: Option<Uuid>,
    ip: Option<String>,
    action: String,
    target: String,
    before: Option<String>,
    after: Option<String>,
}

impl AuditRow {
    fn told(self) -> Result<AuditEntry, DatabaseError> {
        let ip = self
            .ip
            .map(|ip| ip.parse())
            .transpose()
            .map_err(|_| DatabaseError::Unreadable("an address of the audit log"))?;
        Ok(AuditEntry {
            id: AuditId::from_uuid(self.id),
            actor_kind: self.actor_kind,
            actor_key: self.actor_id.map(KeyId::from_uuid),
            ip,
            action: self.action,
            target: self.target,
            before: self.before,
            after: self.after,
        })
    }
}

/// One page of a tenant's audit log.
///
/// # Errors
/// When the database does not answer.
pub async fn audit_log(
    database: &Database,
    scope: TenantScope,
    filter: &AuditFilter,
    slice: Slice<AuditId>,
) -> Result<Page<AuditEntry>, DatabaseError> {
    let low = filter.since.map_or(FIRST, AuditId::floor_at);
    let high = filter.until.map_or(LAST, AuditId::floor_at);
    let scan = slice.scan(low, high);
    let mut tx = database.tenant_tx(&scope).await?;
    let tenant = scope.tenant();
    let rows = match &filter.target {
        None => of_tenant(&mut tx, tenant, scan).await?,
        Some(target) => of_target(&mut tx, tenant, target, scan).await?,
    };
    tx.commit().await?;
    slice.page(rows).try_map(AuditRow::told)
}

const FIRST: AuditId = AuditId::from_uuid(Uuid::nil());
const LAST: AuditId = AuditId::from_uuid(Uuid::max());

/// Reads entries; `$which` is the condition beside tenant and bounds. The directions and filters differ in words, which a checked
/// statement cannot take as a parameter.
macro_rules! list {
    ($tx:ident, $tenant:ident, $scan:ident, $which:tt, $order:tt, [$($value:expr),*]) => {
        sqlx::query_as!(
            AuditRow,
            "SELECT id, actor_kind, actor_id, host(ip) AS ip, action, target, before::text AS before, after::text AS after
             FROM audit_log
             WHERE tenant_id = $1 AND id >= $2 AND id < $3 " + $which + "
             ORDER BY id " + $order + "
             LIMIT $4",
            $tenant.uuid(),
            $scan.low.uuid(),
            $scan.high.uuid(),
            $scan.rows,
            $($value),*
        )
        .fetch_all(&mut **$tx)
        .await?
    };
}

async fn of_tenant(
    tx: &mut TenantTransaction,
    tenant: TenantId,
    scan: Scan<AuditId>,
) -> Result<Vec<AuditRow>, DatabaseError> {
    Ok(if scan.upward {
        list!(tx, tenant, scan, "", "ASC", [])
    } else {
        list!(tx, tenant, scan, "", "DESC", [])
    })
}

async fn of_target(
    tx: &mut TenantTransaction,
    tenant: TenantId,
    target: &str,
    scan: Scan<AuditId>,
) -> Result<Vec<AuditRow>, DatabaseError> {
    Ok(if scan.upward {
        list!(tx, tenant, scan, "AND target = $5", "ASC", [target])
    } else {
        list!(tx, tenant, scan, "AND target = $5", "DESC", [target])
    })
}

//! Whose rows a statement may reach (INV-9).

use posthorn_domain::id::TenantId;

/// Proof that the caller may act inside one tenant. Everything that reads or changes a tenant's rows
/// takes it; [`crate::database::Database::tenant_tx`] puts it into force in the database, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantScope {
    tenant: TenantId,
}

impl TenantScope {
    /// Made only where a caller was authenticated, and by the command line, whose caller holds the database.
    #[must_use]
    pub const fn new_authenticated(tenant: TenantId) -> Self {
        Self { tenant }
    }

    /// The tenant of this scope.
    #[must_use]
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }
}

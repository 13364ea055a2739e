//! Whose rows a statement may reach (INV-9), and who asks.

use std::net::IpAddr;

use posthorn_domain::audit::ActorKind;
use posthorn_domain::id::{KeyId, TenantId};
use uuid::Uuid;

/// Who does something, as the audit log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    who: Who,
    address: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    ApiKey(KeyId),
    CommandLine,
    Posthorn,
}

impl Actor {
    /// Whoever runs the command line, and so holds the database.
    pub const COMMAND_LINE: Self = Self {
        who: Who::CommandLine,
        address: None,
    };

    /// Posthorn itself.
    pub const POSTHORN: Self = Self {
        who: Who::Posthorn,
        address: None,
    };

    /// A program with this key, that calls from this address.
    #[must_use]
    pub const fn api_key(key: KeyId, address: Option<IpAddr>) -> Self {
        Self {
            who: Who::ApiKey(key),
            address,
        }
    }

    /// What kind of caller it is.
    #[must_use]
    pub const fn kind(self) -> ActorKind {
        match self.who {
            Who::ApiKey(_) => ActorKind::ApiKey,
            Who::CommandLine => ActorKind::CommandLine,
            Who::Posthorn => ActorKind::Posthorn,
        }
    }

    /// Its id, where it has one.
    pub(crate) const fn id(self) -> Option<Uuid> {
        match self.who {
            Who::ApiKey(key) => Some(key.uuid()),
            Who::CommandLine | Who::Posthorn => None,
        }
    }

    /// Where it calls from.
    pub(crate) const fn address(self) -> Option<IpAddr> {
        self.address
    }
}

/// Proof that the caller may act inside one tenant, and who that is. Everything that reads or changes a tenant's rows
/// takes it; [`crate::database::Database::tenant_tx`] puts it into force in the database, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantScope {
    tenant: TenantId,
    actor: Actor,
}

impl TenantScope {
    /// Made only where a caller was authenticated, and by the command line, whose caller holds the database.
    #[must_use]
    pub const fn new_authenticated(tenant: TenantId, actor: Actor) -> Self {
        Self { tenant, actor }
    }

    /// The tenant of this scope.
    #[must_use]
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// Who acts in it.
    #[must_use]
    pub const fn actor(self) -> Actor {
        self.actor
    }
}

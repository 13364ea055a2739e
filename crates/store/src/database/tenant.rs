//! Transactions of tenants, and how many one tenant may have open (INV-13).
//!
//! The pool serves whoever came first. A tenant that sends a hundred changes at once would have all of its connections, and
//! everybody else would wait behind the last of them; so each tenant waits for its own turn first.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::id::TenantId;
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::DatabaseError;

/// A transaction that sees one tenant's rows and no others. What is not committed is rolled back when it is dropped.
pub struct TenantTransaction {
    // Goes back to the pool before the turn is the next one's.
    transaction: Transaction<'static, Postgres>,
    _turn: Turn,
}

impl TenantTransaction {
    pub(super) const fn new(transaction: Transaction<'static, Postgres>, turn: Turn) -> Self {
        Self {
            transaction,
            _turn: turn,
        }
    }

    /// Commits it.
    ///
    /// # Errors
    /// When the database does not answer; whether it is committed is not known then.
    pub async fn commit(self) -> Result<(), DatabaseError> {
        Ok(self.transaction.commit().await?)
    }
}

impl Deref for TenantTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for TenantTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}

/// The turns of all tenants that have a transaction open or wait for one.
pub(super) struct Turns {
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
    each: usize,
}

/// The right to one connection, until it is dropped.
pub(super) struct Turn {
    turns: Arc<Turns>,
    tenant: TenantId,
    permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// Half of so many connections for each, and one at least.
    pub(super) fn of(connections: u32) -> Self {
        let each = usize::try_from(connections.div_ceil(2)).unwrap_or(1);
        Self {
            tenants: Mutex::default(),
            each: each.max(1),
        }
    }

    /// Waits until the tenant has less than its part open. Whoever gives up waiting leaves nothing behind.
    pub(super) async fn take(self: &Arc<Self>, tenant: TenantId) -> Turn {
        let mut turn = Turn {
            turns: Arc::clone(self),
            tenant,
            permit: None,
        };
        let own = {
            let mut tenants = self.tenants();
            let own = tenants
                .entry(tenant)
                .or_insert_with(|| Arc::new(Semaphore::new(self.each)));
            Arc::clone(own)
        };
        // It is never closed.
        turn.permit = own.acquire_owned().await.ok();
        turn
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<TenantId, Arc<Semaphore>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut tenants = self.turns.tenants();
        // Each permit and each that waits for one holds it, too.
        if tenants
            .get(&self.tenant)
            .is_some_and(|own| Arc::strong_count(own) == 1)
        {
            tenants.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(number))
    }

    #[tokio::test]
    async fn a_tenant_has_half_of_the_connections_and_its_next_waits_for_one_of_its_own() {
        let turns = Arc::new(Turns::of(8));
        let mut own = Vec::new();
        for _ in 0..4 {
            own.push(turns.take(tenant(1)).await);
        }
        let mut fifth = Box::pin(turns.take(tenant(1)));
        assert!(fifth.as_mut().now_or_never().is_none());
        assert!(turns.take(tenant(2)).now_or_never().is_some());
        own.pop();
        assert!(fifth.as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_tenant_that_has_and_wants_nothing() {
        let turns = Arc::new(Turns::of(1));
        let own = turns.take(tenant(1)).await;
        {
            let mut waiting = Box::pin(turns.take(tenant(1)));
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert_eq!(turns.tenants().len(), 1);
        drop(own);
        assert_eq!(turns.tenants().len(), 0);
    }
}

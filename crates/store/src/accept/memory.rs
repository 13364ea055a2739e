//! What accepted events take of this node's memory (INV-11), by tenant (INV-13).
//!
//! An event is in memory from its acceptance until its last delivery is on record as sent or set aside. A tenant may have as
//! much there as is left free beside it; one that accepts faster than its deliveries leave is told to come again, before
//! anything is written, and nobody else is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::id::{IdMap, TenantId};
use posthorn_domain::limits;

/// The account of a node. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    tenants: IdMap<TenantId, usize>,
    bytes: usize,
}

/// What one event takes; given back when it is dropped. The default takes nothing.
#[derive(Debug, Default)]
pub struct Taken {
    from: Option<(Memory, TenantId)>,
    bytes: usize,
}

impl Memory {
    /// Takes room for an event with a payload of so many bytes and so many deliveries; `None` when its tenant has its share.
    /// A tenant with nothing in memory has room for one event of any size.
    pub(super) fn take(
        &self,
        tenant: TenantId,
        payload: usize,
        deliveries: usize,
    ) -> Option<Taken> {
        let bytes =
            payload + limits::ACCEPTED_EVENT_BYTES + deliveries * limits::ACCEPTED_DELIVERY_BYTES;
        let mut inner = self.lock();
        let free = limits::ACCEPTED_BYTES.saturating_sub(inner.bytes);
        let own = inner.tenants.entry(tenant).or_default();
        if *own > 0 && *own + bytes > free {
            return None;
        }
        *own += bytes;
        inner.bytes += bytes;
        Some(Taken {
            from: Some((self.clone(), tenant)),
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some((memory, tenant)) = self.from.take() else {
            return;
        };
        let mut inner = memory.lock();
        inner.bytes = inner.bytes.saturating_sub(self.bytes);
        if let Some(own) = inner.tenants.get_mut(&tenant) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                inner.tenants.remove(&tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn tenant(n: u128) -> TenantId {
        TenantId::from_uuid(Uuid::from_u128(n))
    }

    fn fill(memory: &Memory, tenant: TenantId, payload: usize) -> Vec<Taken> {
        std::iter::from_fn(|| memory.take(tenant, payload, 1)).collect()
    }

    fn bytes(taken: &[Taken]) -> usize {
        taken.iter().map(|taken| taken.bytes).sum()
    }

    /// INV-13: whoever floods, the next one has room.
    #[test]
    fn a_tenant_alone_has_half_and_leaves_room_for_each_that_comes() {
        let memory = Memory::default();
        let first = fill(&memory, tenant(1), limits::PAYLOAD_BYTES);
        assert!(bytes(&first).abs_diff(limits::ACCEPTED_BYTES / 2) < 2 * limits::PAYLOAD_BYTES);
        let second = fill(&memory, tenant(2), limits::PAYLOAD_BYTES);
        assert!(bytes(&second).abs_diff(limits::ACCEPTED_BYTES / 4) < 2 * limits::PAYLOAD_BYTES);
        assert!(memory.take(tenant(3), 1, 1).is_some());
        assert!(memory.take(tenant(1), 1, 1).is_none());
    }

    /// INV-11.
    #[test]
    fn all_tenants_together_stay_below_the_bound_and_one_event_each() {
        let memory = Memory::default();
        let taken: Vec<_> = (0..50)
            .flat_map(|n| fill(&memory, tenant(n), 65_536))
            .collect();
        assert!(bytes(&taken) < limits::ACCEPTED_BYTES + 50 * 70_000);
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let memory = Memory::default();
        drop(fill(&memory, tenant(1), 1000));
        assert_eq!(memory.lock().bytes, 0);
        assert!(memory.lock().tenants.is_empty());
    }
}

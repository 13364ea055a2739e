//! A queue from which tenants are served by turns.

use std::collections::{HashMap, VecDeque};

use posthorn_domain::id::TenantId;

use super::Unrecorded;

/// What is to be set aside, by tenant: each turn is one delivery, and each tenant's own are in their order.
#[derive(Default)]
pub(super) struct Turns {
    tenants: HashMap<TenantId, VecDeque<Unrecorded>>,
    ring: VecDeque<TenantId>,
}

impl Turns {
    pub(super) fn push(&mut self, parked: Unrecorded) {
        let tenant = parked.fact.key().tenant;
        let queue = self.tenants.entry(tenant).or_default();
        if queue.is_empty() {
            self.ring.push_back(tenant);
        }
        queue.push_back(parked);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Up to `limit` by turns.
    pub(super) fn take(&mut self, limit: usize) -> Vec<Unrecorded> {
        let mut taken = Vec::new();
        while taken.len() < limit
            && let Some(tenant) = self.ring.pop_front()
        {
            let Some(queue) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            taken.extend(queue.pop_front());
            if queue.is_empty() {
                self.tenants.remove(&tenant);
            } else {
                self.ring.push_back(tenant);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthorn_domain::delivery::Why;
    use posthorn_domain::id::{EndpointId, EventId};
    use posthorn_store::record::{DeliveryKey, Fact, Parked};
    use uuid::Uuid;

    use super::*;

    fn parked(tenant: u128, event: u128) -> Unrecorded {
        let key = DeliveryKey {
            tenant: TenantId::from_uuid(Uuid::from_u128(tenant)),
            endpoint: EndpointId::from_uuid(Uuid::from_u128(9)),
            event: EventId::from_uuid(Uuid::from_u128(event)),
        };
        let parked = Parked {
            why: Why::Capacity,
            due: false,
            ends_at: DateTime::UNIX_EPOCH,
        };
        Unrecorded {
            fact: Fact::Parked { key, parked },
            fresh: None,
            place: None,
            held: false,
        }
    }

    fn events(taken: &[Unrecorded]) -> Vec<u128> {
        taken
            .iter()
            .map(|parked| parked.fact.key().event.uuid().as_u128())
            .collect()
    }

    /// INV-13.
    #[test]
    fn one_tenants_crowd_does_not_keep_anothers_one_waiting() {
        let mut turns = Turns::default();
        (0..1000).for_each(|event| turns.push(parked(1, event)));
        turns.push(parked(2, 5000));
        assert_eq!(events(&turns.take(3)), [0, 5000, 1]);
        assert_eq!(turns.take(2000).len(), 998);
        assert!(turns.is_empty());
        assert!(turns.take(1).is_empty());
    }

    #[test]
    fn a_tenants_own_stay_in_their_order() {
        let mut turns = Turns::default();
        for event in [3, 1, 2] {
            turns.push(parked(1, event));
        }
        assert_eq!(events(&turns.take(2)), [3, 1]);
        turns.push(parked(1, 4));
        assert_eq!(events(&turns.take(9)), [2, 4]);
    }
}

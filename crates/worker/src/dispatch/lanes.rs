//! The queues in memory: tenant → endpoint → first in, first out. Pure: no clock, no I/O.
//!
//! Deficit round robin over tenants, then over each tenant's endpoints; every request costs the same, so
//! that one turn is one request. What does not fit is refused, and the caller parks it (INV-13).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_domain::limits;
use posthorn_store::accept::FreshEvent;
use posthorn_store::pending::Due;
use posthorn_store::record::DeliveryKey;

/// A delivery in memory.
#[derive(Clone, Debug)]
pub enum Item {
    /// Straight from accept.
    Fresh(Arc<FreshEvent>, EndpointId),
    /// A row of `pending`; its payload is read when it is sent.
    Pending(Due),
}

impl Item {
    /// Which delivery.
    #[must_use]
    pub fn key(&self) -> DeliveryKey {
        match self {
            Self::Fresh(event, endpoint) => DeliveryKey {
                tenant: event.tenant,
                endpoint: *endpoint,
                event: event.id,
            },
            Self::Pending(due) => due.key,
        }
    }

    /// Bytes that it keeps in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Fresh(event, _) => event.payload.len() + 512,
            Self::Pending(_) => 128,
        }
    }
}

/// Why a delivery was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This node holds it already: it must not be sent twice.
    Held,
    /// No room.
    Full,
}

struct Queued {
    item: Item,
    since: Instant,
}

/// One endpoint's queue. Pending rows and fresh events stand in queues of their own and take turns, so that a
/// drain has half of the slots and neither starves the other.
#[derive(Default)]
struct Lane {
    fresh: VecDeque<Queued>,
    pending: VecDeque<Due>,
    in_flight: usize,
    /// The last turn went to `pending`.
    pending_was_last: bool,
    /// It stands in its tenant's ring.
    ready: bool,
}

impl Lane {
    fn is_ready(&self) -> bool {
        self.in_flight < limits::IN_FLIGHT_PER_ENDPOINT
            && !(self.fresh.is_empty() && self.pending.is_empty())
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.fresh.is_empty() && self.pending.is_empty()
    }

    fn pop(&mut self) -> Option<Item> {
        let pending_first = !self.pending_was_last || self.fresh.is_empty();
        if pending_first && let Some(due) = self.pending.pop_front() {
            self.pending_was_last = true;
            return Some(Item::Pending(due));
        }
        self.pending_was_last = false;
        self.fresh.pop_front().map(|queued| queued.item)
    }
}

/// One tenant's endpoints.
#[derive(Default)]
struct TenantLanes {
    lanes: HashMap<EndpointId, Lane>,
    ring: VecDeque<EndpointId>,
    bytes: usize,
    /// It stands in the ring of tenants.
    ready: bool,
}

/// All queues of a node.
#[derive(Default)]
pub(super) struct Lanes {
    tenants: HashMap<TenantId, TenantLanes>,
    ring: VecDeque<TenantId>,
    /// Queued or being sent, with what each weighs.
    held: HashMap<DeliveryKey, usize>,
    bytes: usize,
    in_flight: usize,
    /// Pending deliveries that are queued, in flight or not yet recorded, by endpoint.
    pending: HashMap<EndpointId, usize>,
}

impl Lanes {
    /// Queues a delivery.
    ///
    /// # Errors
    /// [`Refusal`]: it is held already, or there is no room.
    pub(super) fn push(&mut self, item: Item, now: Instant) -> Result<(), Refusal> {
        let key = item.key();
        if self.held.contains_key(&key) {
            return Err(Refusal::Held);
        }
        let weight = item.bytes();
        let tenant = self.tenants.entry(key.tenant).or_default();
        let lane = tenant.lanes.entry(key.endpoint).or_default();
        let full = match item {
            Item::Fresh(..) => {
                lane.fresh.len() >= limits::FRESH_PER_ENDPOINT
                    || self.bytes + weight > limits::DISPATCH_BYTES
                    || tenant.bytes + weight > limits::DISPATCH_BYTES_PER_TENANT
            }
            Item::Pending(_) => {
                self.pending.get(&key.endpoint).copied().unwrap_or(0)
                    >= limits::DUE_ROWS_PER_ENDPOINT
            }
        };
        if full {
            return Err(Refusal::Full);
        }
        match item {
            Item::Fresh(..) => lane.fresh.push_back(Queued { item, since: now }),
            Item::Pending(due) => {
                *self.pending.entry(key.endpoint).or_default() += 1;
                lane.pending.push_back(due);
            }
        }
        self.held.insert(key, weight);
        self.bytes += weight;
        tenant.bytes += weight;
        self.make_ready(key.tenant, key.endpoint);
        Ok(())
    }

    /// The next delivery by turn, now counted as in flight; `None` when no lane is ready or the node is at its cap.
    pub(super) fn pop(&mut self) -> Option<Item> {
        if self.in_flight >= limits::IN_FLIGHT_PER_NODE {
            return None;
        }
        loop {
            let tenant_id = self.ring.pop_front()?;
            let (endpoint, item) = self.turn(tenant_id);
            if let Some(endpoint) = endpoint {
                self.make_ready(tenant_id, endpoint);
            }
            if item.is_some() {
                return item;
            }
        }
    }

    /// One turn of a tenant: the endpoint whose turn it was, and its delivery if it still had one.
    fn turn(&mut self, tenant_id: TenantId) -> (Option<EndpointId>, Option<Item>) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else {
            return (None, None);
        };
        tenant.ready = false;
        let Some(endpoint) = tenant.ring.pop_front() else {
            return (None, None);
        };
        let Some(lane) = tenant.lanes.get_mut(&endpoint) else {
            return (Some(endpoint), None);
        };
        lane.ready = false;
        // What was overdue may have been taken out since the lane became ready.
        let item = lane.pop();
        if item.is_some() {
            lane.in_flight += 1;
            self.in_flight += 1;
        }
        (Some(endpoint), item)
    }

    /// The request of a delivery has ended: its slot is free. It stays held until it is recorded.
    pub(super) fn answered(&mut self, key: DeliveryKey) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lane) = self.lane(key) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
        self.make_ready(key.tenant, key.endpoint);
    }

    /// What became of a delivery is on record: it may be taken again.
    pub(super) fn recorded(&mut self, key: DeliveryKey, was_pending: bool) {
        let Some(weight) = self.held.remove(&key) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(weight);
        if was_pending && let Some(count) = self.pending.get_mut(&key.endpoint) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.pending.remove(&key.endpoint);
            }
        }
        let Some(tenant) = self.tenants.get_mut(&key.tenant) else {
            return;
        };
        tenant.bytes = tenant.bytes.saturating_sub(weight);
        if tenant
            .lanes
            .get(&key.endpoint)
            .is_some_and(|lane| lane.is_idle() && !lane.ready)
        {
            tenant.lanes.remove(&key.endpoint);
        }
        if tenant.lanes.is_empty() && !tenant.ready {
            self.tenants.remove(&key.tenant);
        }
    }

    /// Takes out the fresh deliveries that have been queued since before `since`; they are no longer queued, but held.
    pub(super) fn overdue(&mut self, since: Instant) -> Vec<Item> {
        let lanes = self
            .tenants
            .values_mut()
            .flat_map(|tenant| tenant.lanes.values_mut());
        let mut overdue = Vec::new();
        for lane in lanes {
            while let Some(queued) = lane.fresh.pop_front_if(|queued| queued.since < since) {
                overdue.push(queued.item);
            }
        }
        overdue
    }

    /// Takes out everything that is queued.
    pub(super) fn drain(&mut self) -> Vec<Item> {
        self.ring.clear();
        let mut all = Vec::new();
        for tenant in self.tenants.values_mut() {
            tenant.ring.clear();
            tenant.ready = false;
            for lane in tenant.lanes.values_mut() {
                lane.ready = false;
                all.extend(lane.fresh.drain(..).map(|queued| queued.item));
                all.extend(lane.pending.drain(..).map(Item::Pending));
            }
        }
        all
    }

    /// How many more pending deliveries of an endpoint there is room for.
    #[must_use]
    pub(super) fn room(&self, endpoint: EndpointId) -> usize {
        limits::DUE_ROWS_PER_ENDPOINT
            .saturating_sub(self.pending.get(&endpoint).copied().unwrap_or(0))
    }

    /// The events of an endpoint whose deliveries are held. Walks all that is held: asked only when an endpoint is full.
    pub(super) fn holding(&self, tenant: TenantId, endpoint: EndpointId) -> Vec<EventId> {
        let of = |key: &&DeliveryKey| key.tenant == tenant && key.endpoint == endpoint;
        self.held.keys().filter(of).map(|key| key.event).collect()
    }

    /// Requests under way.
    #[must_use]
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Deliveries held: queued, being sent, or not yet recorded.
    #[must_use]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    fn lane(&mut self, key: DeliveryKey) -> Option<&mut Lane> {
        self.tenants
            .get_mut(&key.tenant)?
            .lanes
            .get_mut(&key.endpoint)
    }

    /// Puts a lane into its tenant's ring, and the tenant into the ring of tenants, where they belong and are not yet.
    fn make_ready(&mut self, tenant_id: TenantId, endpoint: EndpointId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else {
            return;
        };
        if let Some(lane) = tenant.lanes.get_mut(&endpoint)
            && lane.is_ready()
            && !lane.ready
        {
            lane.ready = true;
            tenant.ring.push_back(endpoint);
        }
        if !tenant.ring.is_empty() && !tenant.ready {
            tenant.ready = true;
            self.ring.push_back(tenant_id);
        }
    }
}

#[cfg(test)]
mod tests;

//! The queues in memory: tenant → endpoint → first in, first out. Pure: no clock, no I/O.
//!
//! Round robin over tenants, then over each tenant's endpoints: a turn is one request. A request takes slots of the node
//! by the size of its payload, so that slots bound memory, too. What a tenant may take of slots, bytes and rows shrinks as
//! less is free: alone it gets most of the node, and however many flood it, some is left for the next (INV-13). What
//! does not fit is refused, and the caller parks it.
//!
//! An endpoint's cap is a number that may change while its lane is in use ([`Lanes::set_cap`]): whoever limits
//! endpoints sets it, and 0 stops one.

mod lane;

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_domain::limits;
use posthorn_store::record::DeliveryKey;

use self::lane::Lane;
use super::item::{Item, SLOTS_MAX, slots};

/// Why a delivery was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This node holds it already: it must not be sent twice.
    Held,
    /// No room.
    Full,
}

/// What a held delivery takes.
#[derive(Clone, Copy)]
struct Held {
    bytes: usize,
    /// One for a row of `pending`.
    rows: usize,
    /// None unless it is in flight.
    slots: usize,
}

/// One tenant's endpoints, and what all its deliveries take.
#[derive(Default)]
struct TenantLanes {
    lanes: HashMap<EndpointId, Lane>,
    ring: VecDeque<EndpointId>,
    bytes: usize,
    rows: usize,
    slots: usize,
    /// It stands in the ring of tenants.
    ready: bool,
}

/// All queues of a node.
#[derive(Default)]
pub(super) struct Lanes {
    tenants: HashMap<TenantId, TenantLanes>,
    ring: VecDeque<TenantId>,
    /// Queued, being sent or not yet recorded, with what each takes.
    held: HashMap<DeliveryKey, Held>,
    bytes: usize,
    rows: usize,
    slots: usize,
    in_flight: usize,
    /// Caps of endpoints that are not the usual one.
    caps: HashMap<EndpointId, usize>,
    /// Endpoints whose parked rows in memory ran low while more are in the database.
    low: Vec<(TenantId, EndpointId)>,
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
        let rows = usize::from(matches!(item, Item::Pending(_)));
        if self.is_full_for(key, &item, weight) {
            return Err(Refusal::Full);
        }
        let cap = self.caps.get(&key.endpoint).copied();
        let tenant = self.tenants.entry(key.tenant).or_default();
        tenant
            .lanes
            .entry(key.endpoint)
            .or_insert_with(|| Lane::new(cap.unwrap_or(limits::IN_FLIGHT_PER_ENDPOINT)))
            .push(item, now);
        tenant.bytes += weight;
        tenant.rows += rows;
        self.bytes += weight;
        self.rows += rows;
        let held = Held {
            bytes: weight,
            rows,
            slots: 0,
        };
        self.held.insert(key, held);
        self.make_ready(key.tenant, key.endpoint);
        Ok(())
    }

    /// A tenant may hold as much as is left free beside it, in bytes and in rows: one alone half, each of ten an eleventh.
    fn is_full_for(&self, key: DeliveryKey, item: &Item, weight: usize) -> bool {
        let tenant = self.tenants.get(&key.tenant);
        let (bytes, rows) = tenant.map_or((0, 0), |tenant| (tenant.bytes, tenant.rows));
        let full = match item {
            Item::Fresh(..) => {
                let free = limits::DISPATCH_BYTES.saturating_sub(self.bytes);
                bytes + weight > free.min(limits::DISPATCH_BYTES_PER_TENANT)
            }
            Item::Pending(_) => rows >= limits::DISPATCH_ROWS.saturating_sub(self.rows),
        };
        full || tenant
            .and_then(|tenant| tenant.lanes.get(&key.endpoint))
            .is_some_and(|lane| lane.is_full_for(item))
    }

    /// The next delivery by turn, now counted as in flight; `None` when no lane is ready whose tenant is below its share,
    /// or the node has no slots for whatever comes next.
    pub(super) fn pop(&mut self) -> Option<Item> {
        for _ in 0..self.ring.len() {
            let share = self.share()?;
            let tenant_id = self.ring.pop_front()?;
            if self.taken_by(tenant_id) >= share {
                // Keeps its place among the others, for when slots are free again.
                self.ring.push_back(tenant_id);
            } else if let Some(item) = self.turn(tenant_id) {
                return Some(item);
            }
        }
        None
    }

    /// Below how many slots a tenant may start one more request: [`limits::SLOTS_SHARE`] times those that are free. `None`
    /// when the largest payload would not fit any more. Never 0, so that a tenant with nothing in flight has its turn.
    fn share(&self) -> Option<usize> {
        let free = limits::IN_FLIGHT_PER_NODE.saturating_sub(self.slots);
        let beyond = free.checked_sub(SLOTS_MAX)?;
        Some(limits::SLOTS_SHARE * (beyond + 1))
    }

    fn taken_by(&self, tenant: TenantId) -> usize {
        self.tenants.get(&tenant).map_or(0, |tenant| tenant.slots)
    }

    /// One turn of a tenant: a delivery of the endpoint whose turn it is.
    fn turn(&mut self, tenant_id: TenantId) -> Option<Item> {
        let tenant = self.tenants.get_mut(&tenant_id)?;
        tenant.ready = false;
        while let Some(endpoint) = tenant.ring.pop_front() {
            let Some(lane) = tenant.lanes.get_mut(&endpoint) else {
                continue;
            };
            lane.ready = false;
            // What was overdue may have been taken out, or the cap lowered, since the lane became ready.
            let Some(item) = lane.start() else {
                if lane.is_over() {
                    tenant.lanes.remove(&endpoint);
                }
                continue;
            };
            if lane.runs_low() {
                self.low.push((tenant_id, endpoint));
            }
            let slots = item.slots();
            tenant.slots += slots;
            self.slots += slots;
            self.in_flight += 1;
            if let Some(held) = self.held.get_mut(&item.key()) {
                held.slots = slots;
            }
            self.make_ready(tenant_id, endpoint);
            return Some(item);
        }
        if tenant.lanes.is_empty() {
            self.tenants.remove(&tenant_id);
        }
        None
    }

    /// The payload of a delivery in flight is read and has so many bytes: it keeps the slots that it needs.
    pub(super) fn weighed(&mut self, key: DeliveryKey, bytes: usize) {
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        let given_back = held.slots.saturating_sub(slots(bytes));
        held.slots -= given_back;
        self.give_back(key.tenant, given_back);
    }

    /// The request of a delivery has ended: its slots are free. It stays held until it is recorded.
    pub(super) fn answered(&mut self, key: DeliveryKey) {
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        let slots = std::mem::take(&mut held.slots);
        if slots == 0 {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.give_back(key.tenant, slots);
        if let Some(lane) = self.lane(key.tenant, key.endpoint) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
        self.make_ready(key.tenant, key.endpoint);
    }

    fn give_back(&mut self, tenant: TenantId, slots: usize) {
        self.slots = self.slots.saturating_sub(slots);
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.slots = tenant.slots.saturating_sub(slots);
        }
    }

    /// What became of a delivery is on record: it may be taken again.
    pub(super) fn recorded(&mut self, key: DeliveryKey) {
        self.answered(key);
        let Some(held) = self.held.remove(&key) else {
            return;
        };
        self.bytes = self.bytes.saturating_sub(held.bytes);
        self.rows = self.rows.saturating_sub(held.rows);
        let Some(tenant) = self.tenants.get_mut(&key.tenant) else {
            return;
        };
        tenant.bytes = tenant.bytes.saturating_sub(held.bytes);
        tenant.rows = tenant.rows.saturating_sub(held.rows);
        if let Some(lane) = tenant.lanes.get_mut(&key.endpoint) {
            lane.recorded(key.event);
            if lane.is_over() {
                tenant.lanes.remove(&key.endpoint);
            }
        }
        if tenant.lanes.is_empty() && !tenant.ready {
            self.tenants.remove(&key.tenant);
        }
    }

    /// Sets how many requests to an endpoint may be under way; `None`: as many as usual. Those that are out stay out.
    pub(super) fn set_cap(&mut self, tenant: TenantId, endpoint: EndpointId, cap: Option<usize>) {
        match cap {
            Some(cap) => self.caps.insert(endpoint, cap),
            None => self.caps.remove(&endpoint),
        };
        if let Some(lane) = self.lane(tenant, endpoint) {
            lane.cap = cap.unwrap_or(limits::IN_FLIGHT_PER_ENDPOINT);
        }
        self.make_ready(tenant, endpoint);
    }

    /// Whether more rows of an endpoint lie parked than are queued: when these run low, it is among [`Lanes::low`].
    pub(super) fn set_more(&mut self, tenant: TenantId, endpoint: EndpointId, more: bool) {
        let Some(lane) = self.lane(tenant, endpoint) else {
            return;
        };
        lane.set_more(more);
        if lane.runs_low() {
            self.low.push((tenant, endpoint));
        }
    }

    /// Takes the endpoints whose parked rows ran low since the last call. Each is told once.
    pub(super) fn low(&mut self) -> Vec<(TenantId, EndpointId)> {
        std::mem::take(&mut self.low)
    }

    /// Whether any ran low.
    pub(super) fn any_low(&self) -> bool {
        !self.low.is_empty()
    }

    /// Takes out the fresh deliveries that have been queued since before `since`; they are no longer queued, but held.
    pub(super) fn overdue(&mut self, since: Instant) -> Vec<Item> {
        let mut overdue = Vec::new();
        for tenant in self.tenants.values_mut() {
            for lane in tenant.lanes.values_mut() {
                lane.overdue(since, &mut overdue);
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
                lane.drain(&mut all);
            }
        }
        all
    }

    /// How many more parked rows of an endpoint there is room for in its lane.
    #[must_use]
    pub(super) fn room(&self, tenant: TenantId, endpoint: EndpointId) -> usize {
        self.tenants
            .get(&tenant)
            .and_then(|tenant| tenant.lanes.get(&endpoint))
            .map_or(limits::PARKED_PER_ENDPOINT, Lane::room)
    }

    /// The events of an endpoint whose due rows are held.
    pub(super) fn holding(&self, tenant: TenantId, endpoint: EndpointId) -> Vec<EventId> {
        self.tenants
            .get(&tenant)
            .and_then(|tenant| tenant.lanes.get(&endpoint))
            .map(Lane::holding)
            .unwrap_or_default()
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

    fn lane(&mut self, tenant: TenantId, endpoint: EndpointId) -> Option<&mut Lane> {
        self.tenants.get_mut(&tenant)?.lanes.get_mut(&endpoint)
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

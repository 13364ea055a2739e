//! The queues in memory: tenant → endpoint → first in, first out. Pure: no clock, no I/O.
//!
//! Round robin over tenants, then over each tenant's endpoints: a turn is one request. A request takes slots of the node
//! by the size of its payload, so that slots bound memory, too. What a tenant may take of slots, bytes and rows shrinks as
//! less is free: alone it gets most of the node, and however many flood it, some is left for the next. In the same way an
//! endpoint's part of its tenant's slots shrinks as they fill, so that however many of them hang, a healthy one has its
//! turn (INV-13). What does not fit is refused, and the caller parks it.
//!
//! What may be sent to an endpoint ([`Allowance`]) is asked for when its lane is made, and may change while that is in use.
//! A lane with a rate knows when it may start its next request and stands in no ring until then; [`Lanes::next_at`] is the
//! earliest of those moments.

mod behind;
mod buckets;
mod lane;
mod leaving;
mod tenant;

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, EventId, IdMap, TenantId};
use posthorn_domain::limits;
use posthorn_store::record::DeliveryKey;

use self::buckets::Buckets;
use self::lane::{Lane, Place};
use self::tenant::TenantLanes;
use super::allowance::Allowance;
use super::item::{Item, SLOTS_MAX, slots};

/// Why a delivery was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// This node holds it already: it must not be sent twice.
    Held,
    /// There is no room, or nothing may start: it is to be parked for this reason.
    Park(Why),
}

/// What a held delivery takes.
#[derive(Clone, Copy)]
struct Held {
    bytes: usize,
    /// One for a row of `pending`.
    rows: usize,
    /// None unless it is in flight.
    slots: usize,
    /// It was let through by a rate, and its request has not started yet.
    admitting: bool,
}

/// All queues of a node.
#[derive(Default)]
pub(super) struct Lanes {
    tenants: IdMap<TenantId, TenantLanes>,
    ring: VecDeque<TenantId>,
    /// Queued, being sent or not yet recorded, with what each takes.
    held: IdMap<DeliveryKey, Held>,
    bytes: usize,
    rows: usize,
    slots: usize,
    in_flight: usize,
    /// Fresh deliveries that were started since somebody asked.
    started: usize,
    buckets: Buckets,
    /// Lanes that wait for their rate, by the moment at which each may start its next request.
    later: BTreeSet<(Instant, TenantId, EndpointId)>,
    /// What was queued for an endpoint when nothing more might be sent to it.
    evicted: Vec<(Item, Why)>,
    /// Endpoints whose parked rows in memory ran low while more are in the database.
    low: Vec<(TenantId, EndpointId)>,
}

impl Lanes {
    /// Queues a delivery. `allowance` is asked where its endpoint has no lane yet.
    ///
    /// # Errors
    /// [`Refusal`]: it is held already, there is no room, or nothing may be sent to its endpoint.
    pub(super) fn push(
        &mut self,
        item: Item,
        now: Instant,
        allowance: impl FnOnce() -> Allowance,
    ) -> Result<(), Refusal> {
        let key = item.key();
        if self.held.contains_key(&key) {
            return Err(Refusal::Held);
        }
        let weight = item.bytes();
        let rows = usize::from(matches!(item, Item::Pending(_) | Item::Probe(_)));
        let allowance = self.allowance_for(key, &item, weight, allowance)?;
        let tenant = self.tenants.entry(key.tenant).or_default();
        tenant
            .lanes
            .entry(key.endpoint)
            .or_insert_with(|| Lane::new(allowance))
            .push(item, now);
        tenant.bytes += weight;
        tenant.rows += rows;
        self.bytes += weight;
        self.rows += rows;
        let held = Held {
            bytes: weight,
            rows,
            slots: 0,
            admitting: false,
        };
        self.held.insert(key, held);
        self.settle(key.tenant, key.endpoint);
        Ok(())
    }

    /// What may be sent to the endpoint of a delivery, where that may be queued.
    ///
    /// A tenant may hold as much as is left free beside it, in bytes and in rows: one alone half, each of ten an eleventh.
    fn allowance_for(
        &self,
        key: DeliveryKey,
        item: &Item,
        weight: usize,
        allowance: impl FnOnce() -> Allowance,
    ) -> Result<Allowance, Refusal> {
        let tenant = self.tenants.get(&key.tenant);
        let lane = tenant.and_then(|tenant| tenant.lanes.get(&key.endpoint));
        let allowance = lane.map_or_else(allowance, |lane| lane.allowance);
        if let Some(why) = allowance.shut
            && !matches!(item, Item::Probe(_))
        {
            return Err(Refusal::Park(why));
        }
        let (bytes, rows) = tenant.map_or((0, 0), |tenant| (tenant.bytes, tenant.rows));
        let full = match item {
            Item::Fresh(..) => {
                let free = limits::DISPATCH_BYTES.saturating_sub(self.bytes);
                bytes + weight > free.min(limits::DISPATCH_BYTES_PER_TENANT)
            }
            Item::Pending(_) | Item::Probe(_) => {
                rows >= limits::DISPATCH_ROWS.saturating_sub(self.rows)
            }
        };
        if full || lane.is_some_and(|lane| lane.is_full_for(item)) {
            return Err(Refusal::Park(allowance.waits_for()));
        }
        Ok(allowance)
    }

    /// The next delivery by turn, now counted as in flight; `None` when no lane is ready whose tenant is below its share,
    /// or the node has no slots for whatever comes next.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Item> {
        self.wake(now);
        for _ in 0..self.ring.len() {
            let share = self.share()?;
            let tenant_id = self.ring.pop_front()?;
            if self.taken_by(tenant_id) >= share {
                // Keeps its place among the others, for when slots are free again.
                self.ring.push_back(tenant_id);
            } else if let Some(item) = self.turn(tenant_id, share, now) {
                return Some(item);
            }
        }
        None
    }

    /// When the next lane that waits for its rate may start a request.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, ..)| *at)
    }

    /// Lanes whose moment has come take turns again.
    fn wake(&mut self, now: Instant) {
        while let Some(&(at, tenant, endpoint)) = self.later.first()
            && at <= now
        {
            self.later.pop_first();
            if let Some(lane) = self.lane(tenant, endpoint) {
                lane.place = Place::Nowhere;
            }
            self.settle(tenant, endpoint);
        }
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
    fn turn(&mut self, tenant_id: TenantId, share: usize, now: Instant) -> Option<Item> {
        let tenant = self.tenants.get_mut(&tenant_id)?;
        tenant.ready = false;
        tenant.bring_back(share);
        while let Some((endpoint, lane)) = tenant.next(share) {
            if let Some(rate) = lane.allowance.rate {
                let at = self.buckets.next_at((endpoint, rate), lane.admitting, now);
                if at > now {
                    lane.place = Place::Later(at);
                    self.later.insert((at, tenant_id, endpoint));
                    continue;
                }
            }
            let Some(item) = lane.start() else {
                continue;
            };
            if lane.runs_low() {
                self.low.push((tenant_id, endpoint));
            }
            let slots = item.slots();
            lane.slots += slots;
            self.started += usize::from(matches!(item, Item::Fresh(..)));
            let admitting = lane.allowance.rate.is_some();
            lane.admitting += usize::from(admitting);
            tenant.slots += slots;
            self.slots += slots;
            self.in_flight += 1;
            if let Some(held) = self.held.get_mut(&item.key()) {
                held.slots = slots;
                held.admitting = admitting;
            }
            self.settle(tenant_id, endpoint);
            return Some(item);
        }
        if tenant.lanes.is_empty() {
            self.tenants.remove(&tenant_id);
        } else {
            self.make_ready(tenant_id);
        }
        None
    }

    /// The request of a delivery in flight is about to start: a token is taken where its endpoint has a rate.
    ///
    /// # Errors
    /// How long there is none: it may not start yet.
    pub(super) fn admit(&mut self, key: DeliveryKey, now: Instant) -> Result<(), Duration> {
        let Some(lane) = self
            .tenants
            .get_mut(&key.tenant)
            .and_then(|tenant| tenant.lanes.get_mut(&key.endpoint))
        else {
            return Ok(());
        };
        if let Some(rate) = lane.allowance.rate {
            self.buckets.take((key.endpoint, rate), now)?;
        }
        if let Some(held) = self.held.get_mut(&key)
            && std::mem::take(&mut held.admitting)
        {
            lane.admitting = lane.admitting.saturating_sub(1);
        }
        Ok(())
    }

    /// The payload of a delivery in flight is read and has so many bytes: it keeps the slots that it needs.
    pub(super) fn weighed(&mut self, key: DeliveryKey, bytes: usize) {
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        let given_back = held.slots.saturating_sub(slots(bytes));
        held.slots -= given_back;
        self.give_back(key, given_back);
        self.settle(key.tenant, key.endpoint);
    }

    /// The request of a delivery has ended: its slots are free. It stays held until it is recorded.
    pub(super) fn answered(&mut self, key: DeliveryKey) {
        let Some(held) = self.held.get_mut(&key) else {
            return;
        };
        let slots = std::mem::take(&mut held.slots);
        let unstarted = std::mem::take(&mut held.admitting);
        if slots == 0 {
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        self.slots = self.slots.saturating_sub(slots);
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.answered(key.endpoint, slots);
        }
        if unstarted {
            self.let_another(key);
        }
        self.settle(key.tenant, key.endpoint);
    }

    /// A delivery that a rate let through made no request after all: another may have its token.
    fn let_another(&mut self, key: DeliveryKey) {
        if let Some(lane) = self.lane(key.tenant, key.endpoint) {
            lane.admitting = lane.admitting.saturating_sub(1);
        }
        self.hasten(key.tenant, key.endpoint);
    }

    /// A lane that waits for its rate looks again.
    fn hasten(&mut self, tenant: TenantId, endpoint: EndpointId) {
        let Some(lane) = self.lane(tenant, endpoint) else {
            return;
        };
        if let Place::Later(at) = lane.place {
            lane.place = Place::Nowhere;
            self.later.remove(&(at, tenant, endpoint));
        }
    }

    fn give_back(&mut self, key: DeliveryKey, slots: usize) {
        self.slots = self.slots.saturating_sub(slots);
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.give_back(key.endpoint, slots);
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
        }
        self.settle(key.tenant, key.endpoint);
    }

    /// Asks again what may be sent to each endpoint that has a lane. What is out stays out; what is queued where nothing
    /// may be sent any more is among [`Lanes::evicted`].
    pub(super) fn allow(&mut self, allowance: impl Fn(TenantId, EndpointId) -> Allowance) {
        let mut changed = Vec::new();
        for (tenant_id, tenant) in &self.tenants {
            for (endpoint, lane) in &tenant.lanes {
                let new = allowance(*tenant_id, *endpoint);
                if new != lane.allowance {
                    changed.push((*tenant_id, *endpoint, new));
                }
            }
        }
        for (tenant, endpoint, new) in changed {
            self.set_allowance(tenant, endpoint, new);
        }
    }

    /// Sets what may be sent to an endpoint, if it has a lane.
    pub(super) fn set_allowance(
        &mut self,
        tenant: TenantId,
        endpoint: EndpointId,
        allowance: Allowance,
    ) {
        if self
            .lane(tenant, endpoint)
            .is_none_or(|lane| lane.allowance == allowance)
        {
            return;
        }
        self.hasten(tenant, endpoint);
        let mut queued = Vec::new();
        let Some(lane) = self.lane(tenant, endpoint) else {
            return;
        };
        lane.allowance = allowance;
        if let Some(why) = allowance.shut {
            lane.drain(&mut queued);
            self.evicted
                .extend(queued.into_iter().map(|item| (item, why)));
        }
        self.settle(tenant, endpoint);
    }

    /// Takes what was queued for endpoints that nothing may be sent to any more, and why. It is held until it is recorded.
    pub(super) fn evicted(&mut self) -> Vec<(Item, Why)> {
        std::mem::take(&mut self.evicted)
    }

    /// These shards were another node's until then, and their tokens were its own to take.
    pub(super) fn taken(&mut self, shards: &[i16], until: Instant) {
        self.buckets.taken(shards, until);
    }

    /// Forgets what need not be remembered.
    pub(super) fn forget(&mut self, now: Instant) {
        self.buckets.forget_full(now);
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

    /// Rows of an endpoint that were due lie parked now. With nothing of its own left in memory it is among [`Lanes::low`] at once.
    pub(super) fn rest_is_parked(&mut self, tenant: TenantId, endpoint: EndpointId) {
        if self.lane(tenant, endpoint).is_some() {
            self.set_more(tenant, endpoint, true);
        } else {
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

    /// Puts a lane where it belongs: into its tenant's ring when it has work, away when nothing hangs on it.
    fn settle(&mut self, tenant_id: TenantId, endpoint: EndpointId) {
        let Some(tenant) = self.tenants.get_mut(&tenant_id) else {
            return;
        };
        tenant.settle(endpoint);
        if tenant.lanes.is_empty() && !tenant.ready {
            self.tenants.remove(&tenant_id);
        } else {
            self.make_ready(tenant_id);
        }
    }

    /// Puts a tenant into the ring of tenants when one of its lanes has work.
    fn make_ready(&mut self, tenant_id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(&tenant_id)
            && tenant.has_work()
            && !tenant.ready
        {
            tenant.ready = true;
            self.ring.push_back(tenant_id);
        }
    }
}

#[cfg(test)]
mod tests;

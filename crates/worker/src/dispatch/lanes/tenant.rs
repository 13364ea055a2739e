//! One tenant's endpoints, and whose turn it is.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use posthorn_domain::id::{EndpointId, IdMap};
use posthorn_domain::limits;

use super::lane::{Lane, Place};
use crate::dispatch::item::Item;

/// One tenant's endpoints, and what all its deliveries take.
#[derive(Default)]
pub(super) struct TenantLanes {
    pub(super) lanes: IdMap<EndpointId, Lane>,
    ring: VecDeque<EndpointId>,
    /// Lanes with work that have their part of the tenant's slots, those with the fewest first.
    full: BTreeSet<(usize, EndpointId)>,
    pub(super) bytes: usize,
    pub(super) rows: usize,
    pub(super) slots: usize,
    /// Slots that were free again because their requests had ended: since the last tick, and half of those before for each tick
    /// that has passed.
    ended: usize,
    ended_lately: usize,
    /// It stands in the ring of tenants.
    pub(super) ready: bool,
}

impl TenantLanes {
    /// Whether a turn may find something to start.
    pub(super) fn has_work(&self) -> bool {
        !self.ring.is_empty() || !self.full.is_empty()
    }

    /// The next lane by turn that has work and is below its part of the tenant's `share`.
    pub(super) fn next(&mut self, share: usize) -> Option<(EndpointId, &mut Lane)> {
        loop {
            let endpoint = self.ring.pop_front()?;
            let free = share.saturating_sub(self.slots);
            let Some(lane) = self.lanes.get_mut(&endpoint) else {
                continue;
            };
            lane.place = Place::Nowhere;
            // What was overdue may have been taken out, or less allowed, since the lane became ready.
            if !lane.is_ready() {
                self.settle(endpoint);
            } else if has_its_part(lane.slots, free) {
                lane.place = Place::Full;
                self.full.insert((lane.slots, endpoint));
            } else {
                // Looked up once more, to satisfy the borrow checker.
                return self.lanes.get_mut(&endpoint).map(|lane| (endpoint, lane));
            }
        }
    }

    /// The lane with the fewest slots takes turns again if it is below its part by now. One at a time: what it starts leaves
    /// less for the others.
    pub(super) fn bring_back(&mut self, share: usize) {
        let free = share.saturating_sub(self.slots);
        if let Some(&(slots, endpoint)) = self.full.first()
            && !has_its_part(slots, free)
        {
            self.full.pop_first();
            if let Some(lane) = self.lanes.get_mut(&endpoint) {
                lane.place = Place::Ring;
                self.ring.push_back(endpoint);
            }
        }
    }

    /// Some of a lane's slots are free again.
    pub(super) fn give_back(&mut self, endpoint: EndpointId, slots: usize) {
        self.slots = self.slots.saturating_sub(slots);
        if let Some(lane) = self.lanes.get_mut(&endpoint) {
            if lane.place == Place::Full {
                self.full.remove(&(lane.slots, endpoint));
                lane.place = Place::Nowhere;
            }
            lane.slots = lane.slots.saturating_sub(slots);
        }
    }

    /// A request has ended, and so many of a lane's slots are free again.
    pub(super) fn answered(&mut self, endpoint: EndpointId, slots: usize) {
        self.ended += slots;
        self.give_back(endpoint, slots);
        if let Some(lane) = self.lanes.get_mut(&endpoint) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
    }

    /// A quarter of a second has passed.
    pub(super) fn tick(&mut self) {
        self.ended_lately = self.ended_lately / 2 + std::mem::take(&mut self.ended);
    }

    /// Whether its requests last for less than about a second, on average (Little's law): then it is not they who keep its
    /// deliveries waiting.
    pub(super) fn is_brisk(&self) -> bool {
        self.slots <= limits::SLOTS_TURNED * (self.ended_lately + self.ended)
    }

    /// Fresh deliveries of endpoints whose turn it is.
    pub(super) fn waiting(&self) -> usize {
        let lanes = self.ring.iter().filter_map(|of| self.lanes.get(of));
        lanes.map(Lane::waiting).sum()
    }

    /// The endpoints whose turn it is, and whose next fresh delivery has waited since before `since`.
    pub(super) fn behind(&self, since: Instant) -> impl Iterator<Item = EndpointId> {
        self.ring.iter().copied().filter(move |endpoint| {
            let lane = self.lanes.get(endpoint);
            lane.is_some_and(|lane| lane.is_ready() && lane.waits_since(since))
        })
    }

    /// Puts a lane into the ring when it has work, away when nothing hangs on it.
    pub(super) fn settle(&mut self, endpoint: EndpointId) {
        let Some(lane) = self.lanes.get_mut(&endpoint) else {
            return;
        };
        if lane.place != Place::Nowhere {
            return;
        }
        if lane.is_ready() {
            lane.place = Place::Ring;
            self.ring.push_back(endpoint);
        } else if lane.is_over() {
            self.lanes.remove(&endpoint);
        }
    }

    /// Takes out everything that is queued.
    pub(super) fn drain(&mut self, into: &mut Vec<Item>) {
        self.ring.clear();
        self.full.clear();
        self.ready = false;
        for lane in self.lanes.values_mut() {
            lane.place = Place::Nowhere;
            lane.drain(into);
        }
    }
}

/// Whether a lane with so many slots has its part, while the tenant may take `free` more: it leaves
/// [`limits::SLOTS_LEFT_PER_ENDPOINT`] for each of its own. One that has none may always take some.
const fn has_its_part(slots: usize, free: usize) -> bool {
    slots.saturating_mul(limits::SLOTS_LEFT_PER_ENDPOINT) >= free && slots > 0
}

//! One endpoint's queue.

use std::collections::VecDeque;
use std::time::Instant;

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EventId, IdSet};
use posthorn_domain::limits;
use posthorn_store::pending::Due;

use crate::dispatch::allowance::Allowance;
use crate::dispatch::item::Item;

struct Queued {
    item: Item,
    since: Instant,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In no ring: it has no work, or as much under way as it may.
    Nowhere,
    /// In its tenant's ring.
    Ring,
    /// Among those that have their part of the tenant's slots.
    Full,
    /// Among those that wait for their rate, until then.
    Later(Instant),
}

/// One endpoint's queue. Rows of `pending` and fresh events stand in queues of their own and take turns, so that a drain
/// has at least half of what is started and neither starves the other. Among the rows those that are due come
/// first: their time was promised, a parked one's was not.
pub(super) struct Lane {
    fresh: VecDeque<Queued>,
    due: VecDeque<Due>,
    parked: VecDeque<Due>,
    /// One row that is sent though nothing else may be, when nothing is under way.
    probe: Option<Due>,
    /// Requests under way, the slots that they take, and those of them that a rate let through and that have not started.
    pub(super) in_flight: usize,
    pub(super) slots: usize,
    pub(super) admitting: usize,
    /// What may be sent. May change at any time.
    pub(super) allowance: Allowance,
    /// Deliveries that are queued, in flight or not yet recorded; the events of those that were due.
    held: usize,
    held_due: IdSet<EventId>,
    /// The last turn went to a row of `pending`.
    pending_was_last: bool,
    /// More rows lie parked than were taken, and nobody was asked yet to bring them.
    more: bool,
    pub(super) place: Place,
}

impl Lane {
    pub(super) fn new(allowance: Allowance) -> Self {
        Self {
            fresh: VecDeque::new(),
            due: VecDeque::new(),
            parked: VecDeque::new(),
            probe: None,
            in_flight: 0,
            slots: 0,
            admitting: 0,
            allowance,
            held: 0,
            held_due: IdSet::default(),
            pending_was_last: false,
            more: false,
            place: Place::Nowhere,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        let queued = self.fresh.len() + self.due.len() + self.parked.len();
        let some = queued > 0
            && self.in_flight < self.allowance.in_flight
            && self.allowance.shut.is_none();
        some || self.probe.is_some() && self.in_flight == 0
    }

    /// Nothing hangs on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.held == 0
    }

    pub(super) fn is_full_for(&self, item: &Item) -> bool {
        match item {
            Item::Fresh(..) => self.fresh.len() >= limits::FRESH_PER_ENDPOINT,
            Item::Pending(row) if row.is_parked() => self.room() == 0,
            Item::Pending(_) => self.held_due.len() >= limits::DUE_ROWS_PER_ENDPOINT,
            Item::Probe(_) => self.probe.is_some() || self.in_flight > 0,
        }
    }

    pub(super) fn push(&mut self, item: Item, now: Instant) {
        self.held += 1;
        match item {
            Item::Fresh(..) => self.fresh.push_back(Queued { item, since: now }),
            Item::Pending(row) if row.is_parked() => self.parked.push_back(row),
            Item::Probe(row) => self.probe = Some(row),
            Item::Pending(row) => {
                self.held_due.insert(row.key.event);
                self.due.push_back(row);
            }
        }
    }

    /// The next delivery by turn, counted as in flight; a probe before all others.
    pub(super) fn start(&mut self) -> Option<Item> {
        if !self.is_ready() {
            return None;
        }
        let item = self.next()?;
        self.in_flight += 1;
        Some(item)
    }

    fn next(&mut self) -> Option<Item> {
        if let Some(row) = self.probe.take() {
            return Some(Item::Probe(row));
        }
        let pending_first = !self.pending_was_last || self.fresh.is_empty();
        if pending_first && let Some(row) = self.due.pop_front().or_else(|| self.parked.pop_front())
        {
            self.pending_was_last = true;
            return Some(Item::Pending(row));
        }
        self.pending_was_last = false;
        self.fresh.pop_front().map(|queued| queued.item)
    }

    /// What became of one of its deliveries is on record.
    pub(super) fn recorded(&mut self, event: EventId) {
        self.held = self.held.saturating_sub(1);
        self.held_due.remove(&event);
    }

    /// The events of its due rows that are held.
    pub(super) fn holding(&self) -> Vec<EventId> {
        self.held_due.iter().copied().collect()
    }

    /// How many more parked rows there is room for.
    pub(super) fn room(&self) -> usize {
        limits::PARKED_PER_ENDPOINT.saturating_sub(self.parked.len())
    }

    /// Whether more rows lie parked than were taken.
    pub(super) fn set_more(&mut self, more: bool) {
        self.more = more;
    }

    /// True once each time that the parked rows taken run low while more are there.
    pub(super) fn runs_low(&mut self) -> bool {
        let low = self.more && self.parked.len() <= limits::PARKED_LOW;
        self.more &= !low;
        low
    }

    /// Fresh deliveries that are queued.
    pub(super) fn waiting(&self) -> usize {
        self.fresh.len()
    }

    /// Whether its next fresh delivery has been queued since before `since`.
    pub(super) fn waits_since(&self, since: Instant) -> bool {
        self.fresh
            .front()
            .is_some_and(|queued| queued.since < since)
    }

    /// Takes out the fresh deliveries that have been queued since before `since`, with what they waited for.
    pub(super) fn overdue(&mut self, since: Instant, into: &mut Vec<(Item, Why)>) {
        let why = self.allowance.waits_for();
        while let Some(queued) = self.fresh.pop_front_if(|queued| queued.since < since) {
            into.push((queued.item, why));
        }
    }

    /// Takes out the fresh deliveries of streams that are closed.
    pub(super) fn closed(&mut self, into: &mut Vec<Item>) {
        let of_closed = |queued: &Queued| matches!(&queued.item, Item::Fresh(event, _) if event.stream.is_closed());
        let (gone, kept): (VecDeque<_>, VecDeque<_>) = self.fresh.drain(..).partition(of_closed);
        self.fresh = kept;
        into.extend(gone.into_iter().map(|queued| queued.item));
    }

    /// Takes out the rows of `pending` that are queued.
    pub(super) fn let_go(&mut self, into: &mut Vec<Item>) {
        into.extend(self.due.drain(..).map(Item::Pending));
        into.extend(self.parked.drain(..).map(Item::Pending));
        into.extend(self.probe.take().map(Item::Probe));
        self.more = false;
    }

    /// Takes out everything that is queued.
    pub(super) fn drain(&mut self, into: &mut Vec<Item>) {
        into.extend(self.fresh.drain(..).map(|queued| queued.item));
        self.let_go(into);
    }
}

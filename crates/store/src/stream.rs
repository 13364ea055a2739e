//! A stream: the run of events that one incarnation of this node accepts, and which of them are open.
//!
//! An id enters the open set in the critical section that mints it. It leaves when the database has
//! acknowledged that each of its deliveries is resolved or pending, or that the event was certainly not
//! written. The watermark is just below the smallest open id and never goes back: whatever is at or below
//! it needs no recovery (INV-2).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use chrono::{DateTime, Utc};
use posthorn_domain::id::{EventId, NodeId};
use posthorn_domain::limits;
use uuid::Uuid;

use crate::clock::Clock;
use crate::configuration::ConfigCache;
use crate::database::{Database, DatabaseError};
use crate::entropy::Entropy;
use crate::lease;

/// The ids of a stream that still need this node.
#[derive(Debug, Default)]
pub struct OpenSet {
    inner: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Unix microseconds of the last id minted; ids never go back within a stream.
    last_us: i64,
    /// `None`: minted, not known to be written. `Some(n)`: written, `n` deliveries not resolved.
    ids: BTreeMap<EventId, Option<usize>>,
    /// The stream was closed and what was not written has moved to the next one.
    retired: bool,
}

impl Open {
    fn fresh(&mut self, now: DateTime<Utc>, random: [u8; 8]) -> EventId {
        self.last_us = now.timestamp_micros().max(self.last_us.saturating_add(1));
        EventId::mint(
            DateTime::from_timestamp_micros(self.last_us).unwrap_or(now),
            random,
        )
    }
}

impl OpenSet {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new id, open from this moment on; `None` once the stream is retired.
    #[must_use]
    pub fn mint(&self, now: DateTime<Utc>, random: [u8; 8]) -> Option<EventId> {
        let mut open = self.lock();
        if open.retired {
            return None;
        }
        let id = open.fresh(now, random);
        open.ids.insert(id, None);
        Some(id)
    }

    /// The event is in the log with this many deliveries. False once the stream is retired: they are then
    /// recovery's, not this node's.
    #[must_use]
    pub fn written(&self, id: EventId, deliveries: usize) -> bool {
        let mut open = self.lock();
        if open.retired {
            return false;
        }
        if deliveries == 0 {
            open.ids.remove(&id);
        } else {
            open.ids.insert(id, Some(deliveries));
        }
        true
    }

    /// The database has acknowledged that `deliveries` of the event are resolved or pending.
    pub fn resolved(&self, id: EventId, deliveries: usize) {
        let mut open = self.lock();
        let Some(Some(left)) = open.ids.get_mut(&id) else {
            return;
        };
        *left = left.saturating_sub(deliveries);
        if *left == 0 {
            open.ids.remove(&id);
        }
    }

    /// The event is certainly not in the log, or another's to deliver.
    pub fn dropped(&self, id: EventId) {
        self.lock().ids.remove(&id);
    }

    /// Just below the smallest open id; a fresh id when none is open. Never goes back.
    #[must_use]
    pub fn watermark(&self, now: DateTime<Utc>, random: [u8; 8]) -> EventId {
        let mut open = self.lock();
        match open.ids.first_key_value() {
            Some((smallest, _)) => {
                EventId::from_uuid(Uuid::from_u128(smallest.uuid().as_u128().saturating_sub(1)))
            }
            None => open.fresh(now, random),
        }
    }

    /// Whether any id is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().ids.is_empty()
    }

    /// Retires this set; a set for the next stream that holds what was not written.
    fn retire(&self) -> Self {
        let mut open = self.lock();
        open.retired = true;
        let carried: BTreeMap<_, _> = open
            .ids
            .iter()
            .filter(|(_, left)| left.is_none())
            .map(|(id, _)| (*id, None))
            .collect();
        open.ids.clear();
        Self {
            inner: Mutex::new(Open {
                last_us: open.last_us,
                ids: carried,
                retired: false,
            }),
        }
    }

    /// Undoes [`OpenSet::retire`] where no next stream could be opened. Ids that were written are
    /// recovery's by then and stay out.
    fn revive(&self, next: &Self) {
        let mut from = next.lock();
        let mut open = self.lock();
        open.ids.append(&mut from.ids);
        open.last_us = open.last_us.max(from.last_us);
        open.retired = false;
    }
}

/// What the next stream takes over. Where that is not opened, because the database refuses or because whoever was at it gave
/// up waiting, it is as before: an id that was lost here would be below a watermark with nobody to send it (INV-2).
struct CarriedOver<'a> {
    from: Option<&'a OpenSet>,
    open: OpenSet,
}

impl<'a> CarriedOver<'a> {
    fn from(from: Option<&'a OpenSet>) -> Self {
        let open = from.map_or_else(OpenSet::default, OpenSet::retire);
        Self { from, open }
    }

    /// The next stream is open.
    fn taken(mut self) -> OpenSet {
        self.from = None;
        std::mem::take(&mut self.open)
    }
}

impl Drop for CarriedOver<'_> {
    fn drop(&mut self) {
        if let Some(from) = self.from {
            from.revive(&self.open);
        }
    }
}

/// Whether a node may accept and send, by its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It may.
    Held,
    /// It was not renewed within half its life; it may be again.
    Lapsed,
    /// There is no open stream: the first is not open yet, another node has closed it and the next is not open, or the
    /// node has let go of it.
    NoStream,
}

/// One stream of this node.
#[derive(Debug)]
pub struct Stream {
    id: i64,
    open: OpenSet,
    closed: AtomicBool,
    renewed: Mutex<Instant>,
}

impl Stream {
    /// A stream whose lease was renewed at `at`.
    #[must_use]
    pub const fn opened(id: i64, open: OpenSet, at: Instant) -> Self {
        Self {
            id,
            open,
            closed: AtomicBool::new(false),
            renewed: Mutex::new(at),
        }
    }

    /// The number that its events carry.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// Its open ids.
    #[must_use]
    pub const fn open(&self) -> &OpenSet {
        &self.open
    }

    /// Whether it is known to be closed: what it still holds in memory is recovery's.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The lease was renewed by a statement that began at `at`.
    pub fn renewed(&self, at: Instant) {
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Whether a flush or a request may begin: not closed, and renewed within half the lease's life.
    #[must_use]
    pub fn may_begin(&self, clock: &Clock) -> bool {
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = clock.monotonic().saturating_duration_since(renewed);
        !self.is_closed() && since < limits::LEASE_TTL / 2
    }
}

/// Whether a node sends deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It does, and takes its part of the shards.
    Here,
    /// Others do: it accepts alone, or is about to leave.
    Elsewhere,
}

/// This node's present stream, and the way to the next when it finds its own closed.
pub struct StreamKeeper {
    database: Database,
    cache: ConfigCache,
    clock: Clock,
    entropy: Entropy,
    node: NodeId,
    name: String,
    sends: AtomicBool,
    present: ArcSwapOption<Stream>,
    opening: tokio::sync::Mutex<()>,
}

impl StreamKeeper {
    /// A keeper without a stream yet. `name` tells this process apart for an operator.
    #[must_use]
    pub fn new(
        database: Database,
        cache: ConfigCache,
        clock: Clock,
        entropy: Entropy,
        name: String,
        sending: Sending,
    ) -> Self {
        let node = NodeId::mint(clock.now(), entropy.bytes());
        Self {
            database,
            cache,
            clock,
            entropy,
            node,
            name,
            sends: AtomicBool::new(sending == Sending::Here),
            present: ArcSwapOption::empty(),
            opening: tokio::sync::Mutex::new(()),
        }
    }

    /// The present stream; `None` before the first one is open.
    #[must_use]
    pub fn present(&self) -> Option<Arc<Stream>> {
        self.present.load_full()
    }

    /// Whether this node sends.
    #[must_use]
    pub fn sending(&self) -> Sending {
        if self.sends.load(Ordering::Acquire) {
            Sending::Here
        } else {
            Sending::Elsewhere
        }
    }

    /// From here on others send.
    pub fn send_no_more(&self) {
        self.sends.store(false, Ordering::Release);
    }

    /// How this node's lease stands.
    #[must_use]
    pub fn lease(&self) -> LeaseState {
        match self.present() {
            Some(stream) if stream.may_begin(&self.clock) => LeaseState::Held,
            Some(stream) if !stream.is_closed() => LeaseState::Lapsed,
            _ => LeaseState::NoStream,
        }
    }

    /// A new id of the present stream, open from this moment on; `None` where the node may not begin a flush.
    #[must_use]
    pub fn mint(&self) -> Option<EventId> {
        // The stream can be replaced between the two lines, once; more often than that is no race.
        (0..3).find_map(|_| {
            let stream = self.present.load_full()?;
            if !stream.may_begin(&self.clock) {
                return None;
            }
            stream.open.mint(self.clock.now(), self.entropy.bytes())
        })
    }

    /// Opens the next stream in place of `stale` (`None`: the first), carrying over what was not written.
    /// Every new stream loads the whole configuration first. Where somebody else already replaced it,
    /// answers theirs.
    ///
    /// # Errors
    /// When the database does not answer; the present stream stays as it is, closed if it was closed.
    pub async fn reopen(&self, stale: Option<&Arc<Stream>>) -> Result<Arc<Stream>, DatabaseError> {
        let _one = self.opening.lock().await;
        if let Some(present) = self.present()
            && stale.is_none_or(|stale| !Arc::ptr_eq(stale, &present))
        {
            return Ok(present);
        }
        self.cache.reload().await?;
        let at = self.clock.monotonic();
        self.clock
            .observe(lease::database_time(&self.database).await?, at);
        if let Some(stale) = stale {
            stale.closed.store(true, Ordering::Release);
        }
        let carried = CarriedOver::from(stale.map(|stale| &stale.open));
        let id = i64::from_be_bytes(self.entropy.bytes()) & i64::MAX;
        let watermark = carried
            .open
            .watermark(self.clock.now(), self.entropy.bytes());
        let sending = self.sending();
        lease::open(
            &self.database,
            id,
            self.node,
            &self.name,
            watermark,
            sending,
            &self.cache.master_keys(),
        )
        .await?;
        let stream = Arc::new(Stream::opened(id, carried.taken(), at));
        self.present.store(Some(Arc::clone(&stream)));
        tracing::info!(stream = id, "opened a stream");
        Ok(stream)
    }

    /// Marks the present stream closed, so that nothing new begins.
    pub fn retire(&self) {
        if let Some(stream) = self.present() {
            stream.closed.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(us).unwrap()
    }

    #[test]
    fn ids_never_go_back_when_the_clock_does() {
        let set = OpenSet::default();
        let first = set.mint(at(2_000_000), [0xff; 8]).unwrap();
        let second = set.mint(at(1_000_000), [0; 8]).unwrap();
        assert!(second > first);
    }

    #[test]
    fn the_watermark_stays_below_the_smallest_open_id_until_its_last_delivery_is_resolved() {
        let set = OpenSet::default();
        let first = set.mint(at(1_000), [1; 8]).unwrap();
        let second = set.mint(at(2_000), [2; 8]).unwrap();
        assert!(set.written(first, 2));
        assert!(set.written(second, 1));
        set.resolved(second, 1);
        set.resolved(first, 1);
        assert!(set.watermark(at(9_000), [0; 8]) < first);
        set.resolved(first, 1);
        assert!(set.watermark(at(9_000), [0; 8]) > second);
    }

    #[test]
    fn a_fresh_watermark_is_below_every_later_id() {
        let set = OpenSet::default();
        let watermark = set.watermark(at(5_000), [0xff; 8]);
        assert!(set.mint(at(5_000), [0; 8]).unwrap() > watermark);
    }

    #[test]
    fn what_was_to_be_carried_over_is_open_still_where_no_next_stream_was_opened() {
        let set = OpenSet::default();
        let carried = set.mint(at(2_000), [2; 8]).unwrap();
        drop(CarriedOver::from(Some(&set)));
        assert!(set.mint(at(3_000), [3; 8]).is_some());
        assert!(set.watermark(at(9_000), [0; 8]) < carried);
    }

    #[test]
    fn what_was_carried_over_is_the_next_streams_alone() {
        let set = OpenSet::default();
        let carried = set.mint(at(2_000), [2; 8]).unwrap();
        let next = CarriedOver::from(Some(&set)).taken();
        assert!(set.mint(at(3_000), [3; 8]).is_none() && set.is_empty());
        assert!(next.watermark(at(9_000), [0; 8]) < carried);
    }

    #[test]
    fn a_retired_set_hands_over_what_was_not_written_and_mints_no_more() {
        let set = OpenSet::default();
        let written = set.mint(at(1_000), [1; 8]).unwrap();
        let carried = set.mint(at(2_000), [2; 8]).unwrap();
        assert!(set.written(written, 1));
        let next = set.retire();
        assert!(set.mint(at(3_000), [3; 8]).is_none());
        assert!(!set.written(carried, 1));
        let watermark = next.watermark(at(9_000), [0; 8]);
        assert!(watermark > written && watermark < carried);
    }
}

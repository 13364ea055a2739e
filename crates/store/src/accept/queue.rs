//! What waits to be written, of one lane: in turn by tenant (INV-13), bounded in rows and bytes (INV-11).
//!
//! Rows of one tenant are taken in the order in which they came; tenants take turns of so many bytes each (deficit round
//! robin), so that an event waits for its own tenant's events and for a turn of each other tenant, however many those submit.
//! A larger flush takes longer, for everybody who is in it: once each tenant has had a turn, those that have more fill it up
//! only as long as it stays small, unless nobody else has been there for a while.
//! A place is held from before an event gets its id until it is answered. A tenant may hold as much as is left free beside
//! it: whoever floods is told to come again, and there is room for the next.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::id::{IdMap, TenantId};
use posthorn_domain::limits;
use tokio::sync::Notify;

use super::AcceptError;
use super::flush::Row;

/// The queue of a lane. Cheap to clone.
#[derive(Clone)]
pub(super) struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    /// Bytes of a turn.
    turn: i64,
    lines: Mutex<Lines>,
    /// The batcher waits here; rung when as many rows are there as it waits for.
    ready: Notify,
    /// Rung when so many are there that a flush of their own is worth it.
    crowd: Notify,
}

#[derive(Default)]
struct Lines {
    tenants: IdMap<TenantId, Line>,
    /// Tenants with rows, the next one in front.
    turns: VecDeque<TenantId>,
    /// Rows that are there.
    waiting: usize,
    /// How many of them the batcher waits for.
    wanted: usize,
    /// Of all places that are held.
    held: Share,
    /// So many batches more stay small: whoever comes while a flush is under way waits for it, too.
    shared: usize,
    closed: bool,
}

/// What one tenant has in the queue.
#[derive(Default)]
struct Line {
    rows: VecDeque<Row>,
    /// Of its places, those of rows that are being flushed among them.
    held: Share,
    /// Bytes that it may still take in this turn; below zero it took more than its last one, and lets some pass.
    credit: i64,
}

#[derive(Clone, Copy, Default)]
struct Share {
    rows: usize,
    bytes: usize,
}

impl Share {
    /// Whether so many bytes more fit in, beside what others hold.
    fn may_grow(self, bytes: usize, all: Self) -> bool {
        let free_rows = limits::ACCEPT_QUEUE_ROWS.saturating_sub(all.rows);
        let free_bytes = limits::ACCEPT_QUEUE_BYTES.saturating_sub(all.bytes);
        free_rows > self.rows
            && free_bytes > 0
            && (self.rows == 0 || self.bytes + bytes <= free_bytes)
    }

    fn add(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A place in the queue, given back when it is dropped.
pub(super) struct Place {
    queue: Queue,
    tenant: TenantId,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.queue.lock();
        lines.held.remove(self.bytes);
        if let Entry::Occupied(mut line) = lines.tenants.entry(self.tenant) {
            line.get_mut().held.remove(self.bytes);
            if line.get().held.rows == 0 {
                line.remove();
            }
        }
        if lines.closed {
            self.queue.shared.ready.notify_one();
        }
    }
}

/// How a batcher finds its queue.
pub(super) enum Next {
    /// Rows for a flush.
    Batch(Vec<Row>),
    /// Nothing yet.
    Empty,
    /// Nothing, and nothing will come.
    Ended,
}

impl Queue {
    /// An empty queue with turns of so many bytes.
    pub(super) fn new(turn: i64) -> Self {
        Self {
            shared: Arc::new(Shared {
                turn,
                lines: Mutex::default(),
                ready: Notify::new(),
                crowd: Notify::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.shared
            .lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for an event of so many bytes, to be taken by [`Queue::push`] or given back.
    ///
    /// # Errors
    /// [`AcceptError::Busy`] when the tenant has its share, [`AcceptError::ShuttingDown`] when the queue is closed.
    pub(super) fn reserve(&self, tenant: TenantId, bytes: usize) -> Result<Place, AcceptError> {
        let mut lines = self.lock();
        if lines.closed {
            return Err(AcceptError::ShuttingDown);
        }
        let all = lines.held;
        let line = lines.tenants.entry(tenant).or_default();
        let own = &mut line.held;
        if !own.may_grow(bytes, all) {
            if own.rows == 0 {
                lines.tenants.remove(&tenant);
            }
            return Err(AcceptError::Busy);
        }
        own.add(bytes);
        lines.held.add(bytes);
        Ok(Place {
            queue: self.clone(),
            tenant,
            bytes,
        })
    }

    /// Queues a row whose place was reserved.
    pub(super) fn push(&self, row: Row) {
        let mut lines = self.lock();
        let tenant = row.new.tenant;
        let line = lines.tenants.entry(tenant).or_default();
        line.rows.push_back(row);
        if line.rows.len() == 1 {
            lines.turns.push_back(tenant);
        }
        lines.waiting += 1;
        if lines.waiting >= lines.wanted {
            self.shared.ready.notify_one();
        }
        if lines.waiting >= limits::FLUSH_COMPANY {
            self.shared.crowd.notify_one();
        }
    }

    /// The next batch, within the bounds of a flush. An event that is over them is alone.
    pub(super) fn take(&self) -> Next {
        let mut lines = self.lock();
        let rows = lines.take(self.shared.turn);
        if !rows.is_empty() {
            Next::Batch(rows)
        } else if lines.closed && lines.held.rows == 0 {
            Next::Ended
        } else {
            Next::Empty
        }
    }

    /// Waits until so many rows are there, or the queue is closed. May come back early.
    pub(super) async fn ready(&self, wanted: usize) {
        {
            let mut lines = self.lock();
            lines.wanted = wanted;
            if lines.waiting >= wanted {
                return;
            }
        }
        self.shared.ready.notified().await;
    }

    /// The next batch where [`limits::FLUSH_COMPANY`] rows are there, as soon as they are.
    pub(super) async fn take_crowd(&self) -> Vec<Row> {
        loop {
            {
                let mut lines = self.lock();
                if lines.waiting >= limits::FLUSH_COMPANY {
                    return lines.take(self.shared.turn);
                }
            }
            self.shared.crowd.notified().await;
        }
    }

    /// Rows that are there.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Takes no more. What is there is still taken from it.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.shared.ready.notify_one();
    }

    /// Whether it was closed.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

impl Lines {
    fn take(&mut self, turn: i64) -> Vec<Row> {
        let mut batch = Batch {
            is_shared: self.shared > 0,
            ..Batch::default()
        };
        self.shared = self.shared.saturating_sub(1);
        let is_alone = self.turns.len() == 1;
        batch.rows.reserve(self.waiting.min(limits::FLUSH_ROWS));
        // Tenants that have not had a turn in this batch.
        let mut to_come = self.turns.len();
        while let Some(tenant) = self.turns.front().copied() {
            if to_come == 0 && batch.is_enough() {
                break;
            }
            to_come = to_come.saturating_sub(1);
            let Some(line) = self.tenants.get_mut(&tenant) else {
                self.turns.pop_front();
                continue;
            };
            // Whoever the last batch had no room for goes on with the rest of its turn.
            if line.credit <= 0 {
                line.credit += turn;
            }
            let room = line.give(&mut batch);
            if line.rows.is_empty() {
                line.credit = 0;
                self.turns.pop_front();
                if !is_alone {
                    batch.is_shared = true;
                    self.shared = limits::FLUSHES_SHARED;
                }
            } else if !room {
                break;
            } else {
                self.turns.rotate_left(1);
            }
        }
        self.waiting -= batch.rows.len();
        batch.rows
    }
}

impl Line {
    /// Gives rows until its turn is over, or it has no more; false when the batch has no room for the next.
    fn give(&mut self, batch: &mut Batch) -> bool {
        while self.credit > 0
            && let Some(row) = self.rows.front()
        {
            if !batch.has_room_for(row) {
                return false;
            }
            self.credit -= i64::try_from(row.weight()).unwrap_or(i64::MAX);
            batch.bytes += row.weight();
            batch.handovers += row.handovers.len();
            batch.rows.extend(self.rows.pop_front());
        }
        true
    }
}

/// A batch that is being filled.
#[derive(Default)]
struct Batch {
    rows: Vec<Row>,
    bytes: usize,
    handovers: usize,
    /// A tenant is in it, or was in one of the last, that has no more: what else is put in keeps it waiting for nothing.
    is_shared: bool,
}

impl Batch {
    /// Whether tenants that have more should wait for the next one (INV-13).
    fn is_enough(&self) -> bool {
        self.is_shared
            && (self.rows.len() >= limits::FLUSH_ROWS_SHARED
                || self.bytes >= limits::FLUSH_BYTES_SHARED)
    }

    fn has_room_for(&self, row: &Row) -> bool {
        self.rows.is_empty()
            || (self.rows.len() < limits::FLUSH_ROWS
                && self.bytes + row.weight() <= limits::FLUSH_BYTES
                && self.handovers + row.handovers.len() <= limits::FLUSH_HANDOVERS)
    }
}

/// What an event adds to a flush, in bytes.
pub(super) const fn weight(payload: usize, endpoints: usize, keyed: bool) -> usize {
    payload + 16 * endpoints + if keyed { 768 } else { 256 }
}

impl Row {
    fn weight(&self) -> usize {
        weight(
            self.stored.len(),
            self.endpoints.len(),
            self.new.keys.is_some(),
        )
    }
}

#[cfg(test)]
mod tests;

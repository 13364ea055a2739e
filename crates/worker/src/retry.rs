//! Retry: the due timer. Scans `pending` for what has come due in this node's shards and offers it to the dispatcher.
//!
//! Every shard has a cursor. Cursors are hints: they go back to the beginning every 15 s, when a scan failed, and when a
//! shard was somebody else's, since rows commit behind them. A scan reads so many rows of a shard and so many in all,
//! and begins behind the shard at which the last one stopped; while there is more, one follows the other. At most 64
//! rows of an endpoint are taken; the rest of that endpoint is parked and drained, by turns of tenants, so that one long
//! queue neither fills the scan nor hides the others (INV-13).
//!
//! What is due is seen within one period of the timer, 200 ms, and the time of a scan.

mod cursors;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EventId, TenantId};
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::due::DueHint;
use posthorn_store::pending::{self, Due, ParkedEndpoint};
use posthorn_store::shards::Shards;

use self::cursors::Cursors;
use crate::dispatch::Dispatcher;

/// The due timer.
pub struct DueTimer {
    database: Database,
    dispatcher: Arc<Dispatcher>,
    shards: Shards,
    clock: Clock,
    cursors: Mutex<Cursors>,
    /// Endpoints with more due than there was room for. As many at most as have due rows in one round of the scans.
    overfull: Mutex<HashMap<ParkedEndpoint, Why>>,
    ring: DueHint,
}

impl DueTimer {
    /// A timer at the beginning.
    #[must_use]
    pub fn new(
        database: Database,
        dispatcher: Arc<Dispatcher>,
        shards: Shards,
        clock: Clock,
    ) -> Self {
        let cursors = Mutex::new(Cursors::new(clock.monotonic()));
        Self {
            database,
            dispatcher,
            shards,
            clock,
            cursors,
            overfull: Mutex::default(),
            ring: DueHint::default(),
        }
    }

    /// Scans until everything that is due was seen, and parks what there was no room for. Answers how many rows were due,
    /// new to this node's queues or not.
    pub async fn run_once(&self) -> usize {
        let seen = self.step().await;
        let parked = self.park_overfull().await;
        parked.and(seen).unwrap_or_else(|error| {
            tracing::warn!(%error, "due deliveries could not be looked for");
            0
        })
    }

    /// The scans alone, for a loop that tells itself what goes wrong.
    pub(crate) async fn step(&self) -> Result<usize, DatabaseError> {
        let mut seen = 0;
        for _ in 0..limits::DUE_SCANS {
            let (rows, more) = self.scan().await?;
            seen += rows;
            if !more {
                break;
            }
        }
        Ok(seen)
    }

    /// One scan: how many rows it found, and whether there may be more.
    async fn scan(&self) -> Result<(usize, bool), DatabaseError> {
        let shards = self.shards.owned();
        if shards.is_empty() {
            return Ok((0, false));
        }
        let from = self.cursors().begin(&shards, self.clock.monotonic());
        let found = pending::scan(
            &self.database,
            &from,
            limits::DUE_ROWS_PER_SHARD,
            limits::DUE_ROWS,
        );
        let due = found.await.inspect_err(|_| self.cursors().forget())?;
        self.offer(&due);
        Ok((due.len(), self.cursors().advance(&due)))
    }

    fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers what was found. An endpoint with more rows than there is room for, or to which nothing may be sent, is to have the
    /// rest parked; the scans that follow see the others meanwhile (INV-13).
    fn offer(&self, due: &[Due]) {
        let mut overfull = self.overfull.lock().unwrap_or_else(PoisonError::into_inner);
        for ((tenant, endpoint), why) in self.dispatcher.offer(due) {
            overfull.insert(ParkedEndpoint { tenant, endpoint }, why);
        }
        if !overfull.is_empty() {
            self.ring.ring();
        }
    }

    /// Rung when there is something to [`DueTimer::park_overfull`].
    #[must_use]
    pub fn overfull_hint(&self) -> DueHint {
        self.ring.clone()
    }

    /// Parks the rest of the endpoints that had more due than there was room for, all but what this node holds, and has it
    /// drained. Many endpoints take their time, so this is a loop of its own. Answers how many rows.
    ///
    /// # Errors
    /// When the database does not answer; the scans find them again.
    pub async fn park_overfull(&self) -> Result<u64, DatabaseError> {
        let overfull = {
            let mut waiting = self.overfull.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        let (mut parked, mut failed) = (0, None);
        for (of, why) in by_turns(overfull) {
            match self.park_rest(of, why).await {
                Ok(rows) => {
                    parked += rows;
                    self.dispatcher.rest_is_parked(of);
                }
                // Of these rows alone: the next endpoint's turn is not lost with it.
                Err(error) if error.is_refusal() => failed = Some(error),
                Err(error) => return Err(error),
            }
        }
        failed.map_or(Ok(parked), Err)
    }

    async fn park_rest(&self, of: ParkedEndpoint, why: Why) -> Result<u64, DatabaseError> {
        let mut held = self.dispatcher.holding(of.tenant, of.endpoint);
        if why == Why::Circuit {
            held.extend(self.try_what_was_asked_for(of).await?);
        }
        pending::park_due(&self.database, of.tenant, of.endpoint, why, &held).await
    }

    /// A person who has a delivery sent again wants to see whether its endpoint takes it: while its circuit is open that is a
    /// probe before its time, if no other request is under way. Answers the event that is sent.
    async fn try_what_was_asked_for(
        &self,
        of: ParkedEndpoint,
    ) -> Result<Option<EventId>, DatabaseError> {
        let asked = pending::asked_for(&self.database, of).await?;
        let sent = asked.filter(|row| self.dispatcher.offer_probe(*row));
        Ok(sent.map(|row| row.key.event))
    }
}

/// The first endpoint of each tenant, then each one's second: a tenant with thousands does not keep the others waiting (INV-13).
fn by_turns(endpoints: HashMap<ParkedEndpoint, Why>) -> Vec<(ParkedEndpoint, Why)> {
    let mut turns: HashMap<TenantId, usize> = HashMap::new();
    let mut queue: Vec<_> = endpoints
        .into_iter()
        .map(|(of, why)| {
            let turn = turns.entry(of.tenant).or_default();
            *turn += 1;
            (*turn, of, why)
        })
        .collect();
    queue.sort_by_key(|(turn, ..)| *turn);
    queue.into_iter().map(|(_, of, why)| (of, why)).collect()
}

#[cfg(test)]
mod tests;

//! Retry: the due timer. Scans `pending` for what has come due in this node's shards and offers it to the dispatcher.
//!
//! Every shard has a cursor. Cursors are hints: they go back to the beginning every 15 s, when a scan failed, and when a
//! shard was somebody else's, since rows commit behind them. A scan reads so many rows of a shard and so many in all,
//! and begins behind the shard at which the last one stopped; while there is more, one follows the other. At most 64
//! rows of an endpoint are taken; the rest of that endpoint is parked, so that one long queue neither fills the scan nor
//! hides the others (INV-13).
//!
//! What is due is seen within one period of the timer, 200 ms, and the time of a scan.

mod cursors;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::pending::{self, Due};
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
        }
    }

    /// Scans until everything that is due was seen. Answers how many rows were due, new to this node's queues or not.
    pub async fn run_once(&self) -> usize {
        self.step().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "due deliveries could not be looked for");
            0
        })
    }

    /// The same, for a loop that tells itself what goes wrong.
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
        self.offer(&due).await;
        Ok((due.len(), self.cursors().advance(&due)))
    }

    fn cursors(&self) -> MutexGuard<'_, Cursors> {
        self.cursors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers what was found. An endpoint with more rows than there is room for, or to which nothing may be sent, has the
    /// rest parked, all but what this node holds: so the next scans see the others.
    async fn offer(&self, due: &[Due]) {
        for ((tenant, endpoint), why) in self.dispatcher.offer(due) {
            let held = self.dispatcher.holding(tenant, endpoint);
            if let Err(error) =
                pending::park_due(&self.database, tenant, endpoint, why, &held).await
            {
                tracing::warn!(%error, "due deliveries could not be parked");
            }
        }
    }
}

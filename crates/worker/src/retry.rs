//! Retry: the due timer. Scans `pending` for what has come due in this node's shards and offers it to the dispatcher.
//!
//! The cursor is a hint: it goes back to the beginning every 15 s, since rows commit behind it, and whenever something
//! did not fit. At most 64 rows of an endpoint are taken; the rest of that endpoint is parked by one statement, so that one
//! long queue neither fills the scan nor hides the others (INV-13).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::delivery::Why;
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;
use posthorn_store::pending::{self, Due};

use crate::dispatch::Dispatcher;
use crate::recover::Shards;

/// How far behind its cursor a scan looks: rows that were due earlier may have committed later.
const OVERLAP: TimeDelta = TimeDelta::seconds(2);

/// The due timer.
pub struct DueTimer {
    database: Database,
    dispatcher: Arc<Dispatcher>,
    shards: Shards,
    clock: Clock,
    cursor: Mutex<Cursor>,
}

#[derive(Clone, Copy)]
struct Cursor {
    at: DateTime<Utc>,
    restarted: Instant,
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
        let cursor = Mutex::new(Cursor {
            at: DateTime::UNIX_EPOCH,
            restarted: clock.monotonic(),
        });
        Self {
            database,
            dispatcher,
            shards,
            clock,
            cursor,
        }
    }

    /// One scan. Answers how many rows were due and new to this node's queues or not.
    pub async fn run_once(&self) -> usize {
        let shards = self.shards.owned();
        if shards.is_empty() {
            return 0;
        }
        let from = self.from();
        let limit = i64::try_from(limits::DUE_ROWS).unwrap_or(i64::MAX);
        let due = match pending::scan(&self.database, &shards, from, limit).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "due deliveries could not be looked for");
                return 0;
            }
        };
        let full = self.offer(&due).await;
        self.advance(&due, full);
        due.len()
    }

    fn from(&self) -> DateTime<Utc> {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        if now.saturating_duration_since(cursor.restarted) >= limits::DUE_RESTART {
            *cursor = Cursor {
                at: DateTime::UNIX_EPOCH,
                restarted: now,
            };
        }
        cursor.at
    }

    /// Moves on to the last row seen; back to the beginning where something did not fit.
    fn advance(&self, due: &[Due], full: bool) {
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if full {
            cursor.at = DateTime::UNIX_EPOCH;
        } else if let Some(last) = due.last() {
            let whole = due.len() >= limits::DUE_ROWS;
            cursor.at = if whole { last.due } else { last.due - OVERLAP };
        }
    }

    /// Offers what was found. An endpoint with more rows than there is room for has the rest parked.
    async fn offer(&self, due: &[Due]) -> bool {
        let mut rows: HashMap<_, Vec<_>> = HashMap::new();
        for row in due {
            rows.entry((row.key.tenant, row.key.endpoint))
                .or_default()
                .push(row.key.event);
        }
        let full = self.dispatcher.offer(due);
        for ((tenant, endpoint), events) in rows {
            // In the order of the scan, which is the order in which they were queued: these are about to be sent.
            let Some((taken, [_, ..])) = events.split_at_checked(limits::DUE_ROWS_PER_ENDPOINT)
            else {
                continue;
            };
            if let Err(error) =
                pending::park_due(&self.database, tenant, endpoint, Why::Capacity, taken).await
            {
                tracing::warn!(%error, "due deliveries could not be parked");
            }
        }
        full
    }
}

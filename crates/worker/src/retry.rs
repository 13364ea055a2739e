//! Retry: the due timer. Scans `pending` for what has come due in this node's shards and offers it to the dispatcher.
//!
//! The cursor is a hint: it goes back to the beginning every 15 s, since rows commit behind it. At most 64 rows of an endpoint are taken; the rest of that endpoint is parked by one statement, so that one
//! long queue neither fills the scan nor hides the others (INV-13).

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
        self.offer(&due).await;
        self.advance(from, &due);
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

    /// Moves on to the last row seen. Where a whole scan had one and the same time, past it: what it left is found
    /// when the scan begins anew.
    fn advance(&self, from: DateTime<Utc>, due: &[Due]) {
        let Some(last) = due.last() else { return };
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        cursor.at = if due.len() < limits::DUE_ROWS {
            last.due - OVERLAP
        } else if last.due > from {
            last.due
        } else {
            from + TimeDelta::microseconds(1)
        };
    }

    /// Offers what was found. An endpoint with more rows than there is room for has the rest parked, all but what this
    /// node holds: so the next scans see the others.
    async fn offer(&self, due: &[Due]) {
        for (tenant, endpoint) in self.dispatcher.offer(due) {
            let held = self.dispatcher.holding(tenant, endpoint);
            if let Err(error) =
                pending::park_due(&self.database, tenant, endpoint, Why::Capacity, &held).await
            {
                tracing::warn!(%error, "due deliveries could not be parked");
            }
        }
    }
}

//! Alarm: gauges of what goes wrong slowly, read from the database by the clock and never by a scrape.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use chrono::TimeDelta;
use posthorn_store::alarm::{self, Standing};
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;

/// Sets the gauges.
pub struct Alarm {
    database: Database,
    clock: Clock,
    /// What pinned dead rows at the last look, and since when.
    pinned: Mutex<Option<(i64, Instant)>>,
}

impl Alarm {
    /// Nothing is known yet.
    #[must_use]
    pub const fn new(database: Database, clock: Clock) -> Self {
        Self {
            database,
            clock,
            pinned: Mutex::new(None),
        }
    }

    /// Looks once.
    pub async fn run_once(&self) {
        match alarm::standing(&self.database).await {
            Ok(standing) => self.set(&standing),
            Err(error) => tracing::warn!(%error, "how the database stands could not be asked"),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
    fn set(&self, standing: &Standing) {
        metrics::gauge!("posthorn_pending_rows").set(standing.pending as f64);
        metrics::gauge!("posthorn_pending_dead_rows").set(standing.pending_dead as f64);
        metrics::gauge!("posthorn_leaves_ahead_days").set(standing.leaves_ahead as f64);
        metrics::gauge!("posthorn_oldest_snapshot_transactions").set(standing.pinned_age as f64);
        metrics::gauge!("posthorn_oldest_snapshot_seconds").set(self.pinned_for(standing.pinned));
        let since = |at| seconds(standing.now.signed_duration_since(at));
        metrics::gauge!("posthorn_housekeeping_age_seconds").set(since(standing.housekept_at));
        metrics::gauge!("posthorn_oldest_due_seconds").set(standing.oldest_due.map_or(0.0, since));
        metrics::gauge!("posthorn_oldest_events_seconds")
            .set(standing.oldest_leaf.map_or(0.0, since));
    }

    /// For how long the same transaction has been the oldest that somebody sees from: a role that may not look into other
    /// sessions is not told when theirs began.
    fn pinned_for(&self, pinned: Option<i64>) -> f64 {
        let now = self.clock.monotonic();
        let mut last = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        *last = match (pinned, *last) {
            (Some(pinned), Some((before, since))) if pinned == before => Some((before, since)),
            (Some(pinned), _) => Some((pinned, now)),
            (None, _) => None,
        };
        last.map_or(0.0, |(_, since)| {
            now.saturating_duration_since(since).as_secs_f64()
        })
    }
}

fn seconds(span: TimeDelta) -> f64 {
    span.to_std().map_or(0.0, |span| span.as_secs_f64())
}

//! A pool that notices when nobody answers on its connections any more (INV-11).
//!
//! A connection that was broken says so. One whose packets are dropped says nothing, and the pool's own look at it, before it
//! is given away and when it comes back, waits without a bound: each would cost a request all its patience. Here the looks are
//! bounded, and one connection that fell silent is enough to let go of all that have been idle since: they went the same way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posthorn_domain::limits;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection};

use super::answered;
use crate::clock::Clock;

/// A pool of so many connections, still without its way to the database.
pub(super) fn pool(connections: u32) -> PgPoolOptions {
    let silence = Silence {
        clock: Clock::start(),
        found: Arc::default(),
    };
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(limits::DATABASE_WAIT)
        .test_before_acquire(false)
        .before_acquire(move |connection, idle| {
            let silence = silence.clone();
            Box::pin(async move { Ok(silence.answers(connection, idle.idle_for).await) })
        })
        .after_release(|connection, _| {
            Box::pin(async move {
                answered(limits::DATABASE_RETURN, connection.ping()).await?;
                Ok(true)
            })
        })
        .idle_timeout(Duration::from_mins(5))
        .max_lifetime(Duration::from_mins(30))
}

/// When a connection of the pool was last found silent.
#[derive(Clone)]
struct Silence {
    clock: Clock,
    found: Arc<Mutex<Option<Instant>>>,
}

impl Silence {
    /// Whether somebody answers on a connection that has been idle for so long.
    async fn answers(&self, connection: &mut PgConnection, idle_for: Duration) -> bool {
        let now = self.clock.monotonic();
        if self.covers(now.checked_sub(idle_for)) {
            return false;
        }
        let answer = tokio::time::timeout(limits::DATABASE_RETURN, connection.ping()).await;
        if answer.is_err() {
            *self.found() = Some(now);
        }
        answer.is_ok_and(|answer| answer.is_ok())
    }

    /// Whether a connection that has been idle since then may have fallen silent with another.
    fn covers(&self, idle_since: Option<Instant>) -> bool {
        self.found().is_some_and(|found| idle_since <= Some(found))
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_idle_before_a_silence_was_found_went_with_it() {
        let clock = Clock::start();
        let found = clock.monotonic() + Duration::from_mins(1);
        let silence = Silence {
            clock,
            found: Arc::new(Mutex::new(Some(found))),
        };
        let second = Duration::from_secs(1);
        assert!(silence.covers(Some(found.checked_sub(second).unwrap())));
        assert!(!silence.covers(Some(found + second)));
        *silence.found() = None;
        assert!(!silence.covers(Some(found)));
    }
}

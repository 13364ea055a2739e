//! Time, as an argument. The one file that reads a clock or sleeps.
//!
//! A node's wall clock decides nothing: [`Clock::now`] is the database's time at the last reading plus
//! the monotonic time since. Before the first reading it is the wall clock's, good enough for logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

/// The database's time, carried forward by the monotonic clock. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// Unix microseconds of the database's clock at `start`.
    base_us: AtomicI64,
}

impl Clock {
    /// A clock that shows the wall clock's time until [`Clock::observe`] tells it the database's.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this file is where time is read")]
    pub fn start() -> Self {
        let inner = Inner {
            start: Instant::now(),
            base_us: AtomicI64::new(Utc::now().timestamp_micros()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Takes `now` as the database's time at the monotonic moment `at`.
    pub fn observe(&self, now: DateTime<Utc>, at: Instant) {
        let since = i64::try_from(at.saturating_duration_since(self.inner.start).as_micros())
            .unwrap_or(i64::MAX);
        self.inner.base_us.store(
            now.timestamp_micros().saturating_sub(since),
            Ordering::Relaxed,
        );
    }

    /// The database's time, as this node knows it.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        let since = self.monotonic().saturating_duration_since(self.inner.start);
        let since = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        let micros = self
            .inner
            .base_us
            .load(Ordering::Relaxed)
            .saturating_add(since);
        DateTime::from_timestamp_micros(micros).unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// The monotonic clock: for spans, never for dates.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this file is where time is read")]
    pub fn monotonic(&self) -> Instant {
        Instant::now()
    }

    /// Waits for `span`.
    #[expect(
        clippy::disallowed_methods,
        reason = "this file is where the program sleeps"
    )]
    pub async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

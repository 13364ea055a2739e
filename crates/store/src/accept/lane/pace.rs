//! Whether a batch is worth waiting for.
//!
//! A flush costs PostgreSQL and the node about as much as ten rows of it, so at a steady rate fewer and larger flushes are
//! cheaper; an event that comes alone must not wait for others that do not come.

use std::time::Instant;

use posthorn_domain::limits;

/// How fast rows came between the last two batches.
#[derive(Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Rows that would come while a batch lingers.
    company: f64,
}

impl Pace {
    /// A batch of so many rows was taken at `now`. What came since the batch before it tells the rate.
    pub(super) fn took(&mut self, rows: usize, now: Instant) {
        let since = self
            .last
            .replace(now)
            .map(|last| now.saturating_duration_since(last));
        let rows = f64::from(u32::try_from(rows).unwrap_or(u32::MAX));
        self.company = since.map_or(0.0, |since| {
            rows * limits::FLUSH_LINGER.as_secs_f64() / since.as_secs_f64().max(1e-6)
        });
    }

    /// Whether a batch that has so many rows should linger.
    pub(super) fn expects_company(&self, waiting: usize) -> bool {
        let few = (1..limits::FLUSH_COMPANY).contains(&waiting);
        few && self.company >= limits::FLUSH_COMPANY_EXPECTED
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What a batch with one row does when rows come at this pace, so many each time.
    fn lingers(rows: usize, each: Duration) -> bool {
        let (mut pace, start) = (Pace::default(), crate::clock::Clock::start().monotonic());
        pace.took(rows, start);
        pace.took(rows, start + each);
        pace.expects_company(1)
    }

    #[test]
    fn an_event_alone_is_written_at_once() {
        assert!(!Pace::default().expects_company(1));
        assert!(!lingers(1, Duration::from_secs(1)));
        // Many at once, after a pause, are no load either.
        assert!(!lingers(100, Duration::from_secs(1)));
    }

    #[test]
    fn under_load_a_small_batch_lingers_and_a_large_one_does_not() {
        assert!(lingers(3, Duration::from_millis(1)));
        let (mut pace, start) = (Pace::default(), crate::clock::Clock::start().monotonic());
        pace.took(500, start);
        pace.took(500, start + Duration::from_millis(10));
        assert!(pace.expects_company(2));
        assert!(!pace.expects_company(limits::FLUSH_COMPANY));
    }

    #[test]
    fn an_empty_queue_is_not_lingered_for() {
        let (mut pace, start) = (Pace::default(), crate::clock::Clock::start().monotonic());
        pace.took(500, start);
        pace.took(500, start + Duration::from_millis(10));
        assert!(!pace.expects_company(0));
    }
}

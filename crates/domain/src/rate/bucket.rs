//! The token bucket of one endpoint, as the generic cell rate algorithm has it (ITU-T I.371): one number in place of a
//! count of tokens and the time of their last refill, and no rounding that adds up.

use core::time::Duration;

use super::RateLimit;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// A token bucket. Times are spans since any one moment, the same for all calls.
///
/// In any span of `w` seconds no more than `burst + per_second × w` requests start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Nanoseconds between two requests in the long run.
    interval: u64,
    /// How far before its own time a request may start: `interval` for each token but one.
    tolerance: u64,
    /// When the bucket will be full again.
    full_at: u64,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn full(limit: RateLimit) -> Self {
        let interval = interval(limit);
        Self {
            interval,
            tolerance: interval.saturating_mul(u64::from(limit.burst()) - 1),
            full_at: 0,
        }
    }

    /// When one more request may start, `others` having started before it: `now` or later.
    #[must_use]
    pub fn next_at(&self, now: Duration, others: usize) -> Duration {
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        let theirs = self
            .full_at
            .max(nanos(now))
            .saturating_add(others.saturating_mul(self.interval));
        Duration::from_nanos(theirs.saturating_sub(self.tolerance)).max(now)
    }

    /// Takes a token for a request that starts now.
    ///
    /// # Errors
    /// When there is one, where there is none now. Nothing is taken.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let at = self.next_at(now, 0);
        if at > now {
            return Err(at);
        }
        self.full_at = self.full_at.max(nanos(now)).saturating_add(self.interval);
        Ok(())
    }

    /// Whether it is full, as one that nobody has taken from.
    #[must_use]
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at <= nanos(now)
    }

    /// Whatever was in it, it had no token left at `at`: somebody else may have taken them.
    pub fn empty(&mut self, at: Duration) {
        let all = self.tolerance.saturating_add(self.interval);
        self.full_at = self.full_at.max(nanos(at).saturating_add(all));
    }

    /// Goes on with another limit: as many tokens as are missing stay missing.
    pub fn set_limit(&mut self, limit: RateLimit, now: Duration) {
        let new = Self::full(limit);
        let missing = self.full_at.saturating_sub(nanos(now));
        let scaled = u128::from(missing) * u128::from(new.interval) / u128::from(self.interval);
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        *self = Self {
            full_at: nanos(now).saturating_add(scaled),
            ..new
        };
    }
}

/// Nanoseconds between two requests, rounded up: never more than the rate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "1e5 to 1e11, by the bounds of the rate"
)]
fn interval(limit: RateLimit) -> u64 {
    (SECOND / limit.per_second()).ceil().max(1.0) as u64
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

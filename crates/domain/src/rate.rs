//! The rate of an endpoint: how many requests may start, by its limit and by what it takes.

mod bucket;
mod pace;

use crate::limits;

pub use self::bucket::Bucket;
pub use self::pace::{Answer, Pace};

/// So many requests a second, and so many at once after a rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    per_second: f64,
    burst: u32,
}

/// Why a rate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateLimitError {
    /// Not a number from 0.01 to 10,000.
    #[error(
        "per_second must be a number from {} to {}",
        limits::RATE_PER_SECOND_MIN,
        limits::RATE_PER_SECOND_MAX
    )]
    PerSecond,
    /// There is no rate without it.
    #[error(
        "per_second is missing: it must be a number from {} to {}",
        limits::RATE_PER_SECOND_MIN,
        limits::RATE_PER_SECOND_MAX
    )]
    PerSecondMissing,
    /// Not a number from 1 to 10,000.
    #[error("burst must be a whole number from 1 to {}", limits::RATE_BURST_MAX)]
    Burst,
}

impl RateLimit {
    /// How many requests may start at once, where nobody says.
    pub const BURST_DEFAULT: u32 = 1;

    /// A rate within its bounds.
    ///
    /// # Errors
    /// When one of the two is out of its range.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, RateLimitError> {
        if !(limits::RATE_PER_SECOND_MIN..=limits::RATE_PER_SECOND_MAX).contains(&per_second) {
            return Err(RateLimitError::PerSecond);
        }
        if !(1..=limits::RATE_BURST_MAX).contains(&burst) {
            return Err(RateLimitError::Burst);
        }
        Ok(Self { per_second, burst })
    }

    /// Requests a second, in the long run.
    #[must_use]
    pub const fn per_second(&self) -> f64 {
        self.per_second
    }

    /// Requests at once, after a rest.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_within_its_bounds() {
        assert!(RateLimit::new(0.01, 1).is_ok());
        assert!(RateLimit::new(10_000.0, 10_000).is_ok());
        for per_second in [0.0, 0.009, -1.0, 10_001.0, f64::NAN, f64::INFINITY] {
            assert_eq!(
                RateLimit::new(per_second, 1),
                Err(RateLimitError::PerSecond)
            );
        }
        for burst in [0, 10_001] {
            assert_eq!(RateLimit::new(1.0, burst), Err(RateLimitError::Burst));
        }
    }
}

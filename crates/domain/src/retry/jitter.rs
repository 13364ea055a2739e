//! Jitter: what failed together does not come back together.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;

/// How a delay `d` is spread, so that what failed together does not come back together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Exactly `d`.
    None,
    /// Anything from 0 to `d`, but at least 100 ms.
    Full,
    /// Anything from `d / 2` to `d`.
    Equal,
    /// Anything from `d (1 - r)` to `d (1 + r)`.
    Spread(f64),
}

impl Default for Jitter {
    fn default() -> Self {
        Self::Spread(0.2)
    }
}

impl Jitter {
    /// Spreads one delay by a draw from [0, 1).
    pub(super) fn spread(self, delay: Duration, draw: f64) -> Duration {
        let draw = within_unit(draw);
        let by = match self {
            Self::None => return delay,
            Self::Full => draw,
            Self::Equal => f64::midpoint(1.0, draw),
            Self::Spread(r) => 1.0 + within_unit(r) * (2.0 * draw - 1.0),
        };
        let spread = times(delay, by).unwrap_or(delay);
        if self == Self::Full {
            spread.max(limits::FULL_JITTER_MIN)
        } else {
            spread
        }
    }
}

/// A factor that is not a number would poison the schedule: it counts as the middle.
fn within_unit(x: f64) -> f64 {
    if x.is_nan() { 0.5 } else { x.clamp(0.0, 1.0) }
}

/// A delay times a factor; `None` when that is no length of time.
pub(super) fn times(delay: Duration, by: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(delay.as_secs_f64() * by).ok()
}

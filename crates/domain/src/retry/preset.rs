//! The policies with a name, and the shape that each stands for.

use super::Jitter;
use crate::word::words;

words! {
    /// Policies with a name.
    "retry preset" Preset {
        /// 1 s, 3 attempts: a receiver in the same house.
        Internal = "internal",
        /// 500 ms doubling to 30 s, 5 attempts, no jitter.
        InternalBulk = "internal_bulk",
        /// 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h, spread 0.2. The default.
        Standard = "standard",
        /// 1 s doubling to 60 s, 12 attempts, full jitter.
        HighVolume = "high_volume",
        /// 5 s, 15 s, 45 s, 2 min, 5 min, then hourly for a week, spread 0.1.
        Financial = "financial",
    }
}

/// A policy with its preset looked up.
#[derive(Clone, Copy)]
pub(super) enum Shape<'a> {
    Fixed {
        delay_ms: u64,
        max_attempts: u32,
    },
    Exponential {
        base_ms: u64,
        factor: f64,
        cap_ms: u64,
        max_attempts: u32,
        jitter: Jitter,
    },
    Schedule {
        delays_ms: &'a [u64],
        jitter: Jitter,
    },
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

const STANDARD: [u64; 9] = [
    5 * SECOND,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
];

/// Five quick ones, then 167 hours: a week less an hour.
const FINANCIAL: [u64; 172] = {
    let mut delays = [HOUR; 172];
    let (quick, _) = delays.split_at_mut(5);
    quick.copy_from_slice(&[5 * SECOND, 15 * SECOND, 45 * SECOND, 2 * MINUTE, 5 * MINUTE]);
    delays
};

impl Preset {
    pub(super) const fn shape(self) -> Shape<'static> {
        match self {
            Self::Internal => Shape::Fixed {
                delay_ms: SECOND,
                max_attempts: 3,
            },
            Self::InternalBulk => Shape::Exponential {
                base_ms: 500,
                factor: 2.0,
                cap_ms: 30 * SECOND,
                max_attempts: 5,
                jitter: Jitter::None,
            },
            Self::Standard => Shape::Schedule {
                delays_ms: &STANDARD,
                jitter: Jitter::Spread(0.2),
            },
            Self::HighVolume => Shape::Exponential {
                base_ms: SECOND,
                factor: 2.0,
                cap_ms: MINUTE,
                max_attempts: 12,
                jitter: Jitter::Full,
            },
            Self::Financial => Shape::Schedule {
                delays_ms: &FINANCIAL,
                jitter: Jitter::Spread(0.1),
            },
        }
    }
}

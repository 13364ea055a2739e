//! Retry policies as the document describes them. The values themselves are `posthorn_domain::retry`'s, whose
//! JSON this mirrors; a test compares the two.

use utoipa::ToSchema;

use crate::openapi::words::described_words;

/// When a failed attempt is followed by another.
#[derive(Debug, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(
    dead_code,
    reason = "describes the JSON of posthorn_domain::retry::RetryPolicy"
)]
pub(super) enum RetryPolicy {
    /// A policy with a name.
    Preset {
        /// Which one.
        name: Preset,
    },
    /// The same delay each time.
    Fixed {
        /// Milliseconds between attempts.
        #[schema(minimum = 10, maximum = 604_800_000)]
        delay_ms: u64,
        /// Attempts, the first included.
        #[schema(minimum = 1, maximum = 1000)]
        max_attempts: u32,
    },
    /// Delays that grow by a factor up to a cap.
    Exponential {
        /// Milliseconds after the first failure.
        #[schema(minimum = 10, maximum = 604_800_000)]
        base_ms: u64,
        /// Each delay is this many times the one before.
        #[schema(minimum = 1, maximum = 10)]
        factor: f64,
        /// Milliseconds that no delay exceeds before jitter.
        #[schema(minimum = 10, maximum = 604_800_000)]
        cap_ms: u64,
        /// Attempts, the first included.
        #[schema(minimum = 1, maximum = 1000)]
        max_attempts: u32,
        /// How delays are spread.
        #[schema(required = false)]
        jitter: Jitter,
    },
    /// Delays one by one; there is one more attempt than there are delays.
    Schedule {
        /// Milliseconds after the first failure, the second, and so on.
        #[schema(max_items = 999)]
        delays_ms: Vec<u64>,
        /// How delays are spread.
        #[schema(required = false)]
        jitter: Jitter,
    },
}

described_words! {
    /// Policies with a name.
    pub(super) Preset as "Preset" {
        /// 3 attempts, 1 s apart, no jitter: for a receiver of your own.
        "internal",
        /// 5 attempts: after 500 ms, then doubling (1 s, 2 s, 4 s), no jitter.
        "internal_bulk",
        /// 10 attempts over about 3 days: after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h, each spread by
        /// 0.2. The default.
        "standard",
        /// 12 attempts over about 6 minutes: after 1 s, doubling up to 60 s, full jitter.
        "high_volume",
        /// 173 attempts over 7 days: after 5 s, 15 s, 45 s, 2 min, 5 min, then hourly, each spread by 0.1.
        "financial",
    }
}

/// How a delay is spread, so that what failed together does not come back together: a word, or `{"spread": 0.2}`,
/// which is the default.
#[derive(Debug, ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "describes the JSON of posthorn_domain::retry::Jitter"
)]
pub(super) enum Jitter {
    /// A word.
    Word(JitterWord),
    /// A part of the delay.
    Spread(JitterSpread),
}

described_words! {
    /// How a delay is spread, in a word.
    pub(super) JitterWord as "JitterWord" {
        /// Exactly the delay.
        "none",
        /// Anything from 0 to the delay, but at least 100 ms.
        "full",
        /// Anything from half the delay to the delay.
        "equal",
    }
}

/// A delay is spread by a part of itself to either side.
#[derive(Debug, ToSchema)]
#[expect(
    dead_code,
    reason = "describes the JSON of posthorn_domain::retry::Jitter"
)]
pub(super) struct JitterSpread {
    /// Anything from the delay × (1 − `spread`) to the delay × (1 + `spread`).
    #[schema(minimum = 0, maximum = 1)]
    spread: f64,
}

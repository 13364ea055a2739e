//! Retry policies as the document describes them. The values themselves are `posthorn_domain::retry`'s, whose
//! JSON this mirrors; a test compares the two.

use utoipa::ToSchema;

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

/// Policies with a name.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(
    dead_code,
    reason = "describes the JSON of posthorn_domain::retry::Preset"
)]
pub(super) enum Preset {
    /// 1 s, 3 attempts.
    Internal,
    /// 500 ms doubling to 30 s, 5 attempts.
    InternalBulk,
    /// 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h. The default.
    Standard,
    /// 1 s doubling to 60 s, 12 attempts.
    HighVolume,
    /// 5 s, 15 s, 45 s, 2 min, 5 min, then hourly for a week.
    Financial,
}

/// How a delay is spread: `"none"`, `"full"`, `"equal"` or `{"spread": 0.2}`.
#[derive(Debug, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(
    dead_code,
    reason = "describes the JSON of posthorn_domain::retry::Jitter"
)]
pub(super) enum Jitter {
    /// Exactly the delay.
    None,
    /// Anything from 0 to the delay, but at least 100 ms.
    Full,
    /// Anything from half the delay to the delay.
    Equal,
    /// Anything from the delay × (1 − r) to the delay × (1 + r).
    Spread(f64),
}

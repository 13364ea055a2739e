//! Retry policies: how many attempts a delivery has and how long it waits between them.
//!
//! A policy is a value. Its JSON is what the API takes and gives and what the database keeps:
//! `{"kind": "preset", "name"}`, `{"kind": "fixed", "delay_ms", "max_attempts"}`,
//! `{"kind": "exponential", "base_ms", "factor", "cap_ms", "max_attempts", "jitter"}` or
//! `{"kind": "schedule", "delays_ms", "jitter"}`. Unknown fields are refused. `jitter` may be left out
//! and is then `{"spread": 0.2}`; `max_attempts` counts the first attempt.
//!
//! Bounds: 1 to 1,000 attempts; each delay 10 ms to 7 days; `factor` 1 to 10; `spread` 0 to 1; all delays
//! together at most 30 days, since no delivery lives longer.

use core::time::Duration;
use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::limits;

mod jitter;
mod preset;

pub use self::jitter::Jitter;
use self::jitter::times;
pub use self::preset::Preset;
use self::preset::Shape;

/// When a failed attempt is followed by the next.
///
/// Values that came from outside are within the bounds of the module; every method is total for any value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    rename_all = "snake_case",
    try_from = "wire::RetryPolicy"
)]
pub enum RetryPolicy {
    /// One that we named.
    Preset {
        /// Which one.
        name: Preset,
    },
    /// The same delay each time.
    Fixed {
        /// Milliseconds between attempts.
        delay_ms: u64,
        /// Attempts, the first included.
        max_attempts: u32,
    },
    /// Delays that grow by a factor up to a cap.
    Exponential {
        /// Milliseconds after the first failure.
        base_ms: u64,
        /// Each delay is this many times the one before.
        factor: f64,
        /// Milliseconds that no delay exceeds before jitter.
        cap_ms: u64,
        /// Attempts, the first included.
        max_attempts: u32,
        /// How delays are spread.
        jitter: Jitter,
    },
    /// Delays one by one; there is one more attempt than there are delays.
    Schedule {
        /// Milliseconds after the first failure, the second, and so on.
        delays_ms: Vec<u64>,
        /// How delays are spread.
        jitter: Jitter,
    },
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::Preset {
            name: Preset::Standard,
        }
    }
}

/// A policy as it was written, of which nobody knows yet whether it is within the bounds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct UncheckedPolicy(wire::RetryPolicy);

impl UncheckedPolicy {
    /// The policy, when it is within the bounds.
    ///
    /// # Errors
    ///
    /// Every bound that it breaks, and where; never none.
    pub fn checked(self) -> Result<RetryPolicy, Vec<RetryPolicyFault>> {
        let policy = RetryPolicy::from_wire(self.0);
        let faults = policy.faults();
        if faults.is_empty() {
            Ok(policy)
        } else {
            Err(faults)
        }
    }
}

/// A bound that a policy breaks. Its words say what the field must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryPolicyError {
    /// `max_attempts`.
    #[error("must be a whole number from 1 to 1000")]
    Attempts,
    /// The number of `delays_ms`: one less than there are attempts.
    #[error("must have at most 999 delays")]
    Delays,
    /// A delay.
    #[error("must be a whole number from 10 to 604800000")]
    Delay,
    /// `cap_ms` under `base_ms`.
    #[error("must be at least base_ms")]
    Cap,
    /// `factor`.
    #[error("must be a number from 1 to 10")]
    Factor,
    /// `spread`.
    #[error("must be a number from 0 to 1")]
    Spread,
    /// The sum of all delays.
    #[error("must have delays of at most 30 days together")]
    Span,
}

/// A bound that a policy breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer} {error}")]
pub struct RetryPolicyFault {
    /// The field, as a JSON pointer inside the policy; empty for the policy as a whole.
    pub pointer: Cow<'static, str>,
    /// The bound.
    pub error: RetryPolicyError,
}

impl RetryPolicy {
    /// As it was written; nobody knows yet whether it is within the bounds.
    fn from_wire(wire: wire::RetryPolicy) -> Self {
        match wire {
            wire::RetryPolicy::Preset { name } => Self::Preset { name },
            wire::RetryPolicy::Fixed {
                delay_ms,
                max_attempts,
            } => Self::Fixed {
                delay_ms,
                max_attempts,
            },
            wire::RetryPolicy::Exponential {
                base_ms,
                factor,
                cap_ms,
                max_attempts,
                jitter,
            } => Self::Exponential {
                base_ms,
                factor,
                cap_ms,
                max_attempts,
                jitter,
            },
            wire::RetryPolicy::Schedule { delays_ms, jitter } => {
                Self::Schedule { delays_ms, jitter }
            }
        }
    }

    /// Takes the policy when it is within the bounds. Reading one from JSON has done this already.
    ///
    /// # Errors
    ///
    /// [`RetryPolicyFault`] names the first bound that it breaks.
    pub fn checked(self) -> Result<Self, RetryPolicyFault> {
        match self.faults().into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(self),
        }
    }

    /// Every bound that it breaks, in the order of its fields.
    fn faults(&self) -> Vec<RetryPolicyFault> {
        let mut faults = Bounds::default();
        match self.shape() {
            Shape::Fixed {
                delay_ms,
                max_attempts,
            } => {
                faults.delay("/delay_ms", delay_ms);
                faults.attempts(max_attempts);
            }
            Shape::Exponential {
                base_ms,
                factor,
                cap_ms,
                max_attempts,
                jitter,
            } => {
                faults.delay("/base_ms", base_ms);
                let grows = (1.0..=limits::POLICY_FACTOR_MAX).contains(&factor);
                faults.unless(grows, "/factor", RetryPolicyError::Factor);
                faults.delay("/cap_ms", cap_ms);
                faults.unless(cap_ms >= base_ms, "/cap_ms", RetryPolicyError::Cap);
                faults.attempts(max_attempts);
                faults.jitter(jitter);
            }
            Shape::Schedule { delays_ms, jitter } => {
                let most = limits::POLICY_ATTEMPTS.saturating_sub(1);
                let few = u32::try_from(delays_ms.len()).is_ok_and(|n| n <= most);
                faults.unless(few, "/delays_ms", RetryPolicyError::Delays);
                // No more than there may be are looked at, so that faults are bounded (INV-11).
                for (at, delay) in (0..most).zip(delays_ms) {
                    faults.delay(format!("/delays_ms/{at}"), *delay);
                }
                faults.jitter(jitter);
            }
        }
        // A sum of what is out of bounds says nothing more.
        let short = !faults.0.is_empty() || self.span() <= limits::POLICY_SPAN_MAX;
        faults.unless(short, "", RetryPolicyError::Span);
        faults.0
    }

    /// Attempts that the policy allows, the first included.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        match self.shape() {
            Shape::Fixed { max_attempts, .. } | Shape::Exponential { max_attempts, .. } => {
                max_attempts.max(1)
            }
            Shape::Schedule { delays_ms, .. } => {
                u32::try_from(delays_ms.len()).map_or(u32::MAX, |n| n.saturating_add(1))
            }
        }
        .min(limits::POLICY_ATTEMPTS)
    }

    /// How long to wait after `step` failures that count (1 after the first), jitter included.
    ///
    /// `draw` is uniform in [0, 1). `None` when the policy allows no further attempt. With no failure yet
    /// there is nothing to wait for.
    #[must_use]
    pub fn delay(&self, step: u32, draw: f64) -> Option<Duration> {
        Some(self.jitter().spread(self.nominal(step)?, draw))
    }

    /// The delays before jitter, in milliseconds: one less than there are attempts.
    #[must_use]
    pub fn delays_ms(&self) -> Vec<u64> {
        self.nominals()
            .map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX))
            .collect()
    }

    /// The sum of the delays before jitter.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.nominals()
            .fold(Duration::ZERO, Duration::saturating_add)
    }

    /// How long a delivery lives when its endpoint does not say: the span and a day, 5 to 30 days.
    #[must_use]
    pub fn default_max_age(&self) -> Duration {
        self.span()
            .saturating_add(limits::MAX_AGE_BEYOND_SPAN)
            .clamp(limits::MAX_AGE_DEFAULT_MIN, limits::MAX_AGE_MAX)
    }

    fn nominals(&self) -> impl Iterator<Item = Duration> {
        (1..self.max_attempts()).map_while(|step| self.nominal(step))
    }

    /// The delay after `step` failures, before jitter.
    fn nominal(&self, step: u32) -> Option<Duration> {
        if step >= self.max_attempts() {
            return None;
        }
        let Some(place) = step.checked_sub(1) else {
            return Some(Duration::ZERO);
        };
        match self.shape() {
            Shape::Fixed { delay_ms, .. } => Some(Duration::from_millis(delay_ms)),
            Shape::Exponential {
                base_ms,
                factor,
                cap_ms,
                ..
            } => {
                let cap = Duration::from_millis(cap_ms);
                let growth = factor.powi(i32::try_from(place).unwrap_or(i32::MAX));
                Some(
                    times(Duration::from_millis(base_ms), growth)
                        .unwrap_or(cap)
                        .min(cap),
                )
            }
            Shape::Schedule { delays_ms, .. } => {
                let delay = delays_ms.get(usize::try_from(place).ok()?)?;
                Some(Duration::from_millis(*delay))
            }
        }
    }

    fn jitter(&self) -> Jitter {
        match self.shape() {
            Shape::Fixed { .. } => Jitter::None,
            Shape::Exponential { jitter, .. } | Shape::Schedule { jitter, .. } => jitter,
        }
    }

    fn shape(&self) -> Shape<'_> {
        match *self {
            Self::Preset { name } => name.shape(),
            Self::Fixed {
                delay_ms,
                max_attempts,
            } => Shape::Fixed {
                delay_ms,
                max_attempts,
            },
            Self::Exponential {
                base_ms,
                factor,
                cap_ms,
                max_attempts,
                jitter,
            } => Shape::Exponential {
                base_ms,
                factor,
                cap_ms,
                max_attempts,
                jitter,
            },
            Self::Schedule {
                ref delays_ms,
                jitter,
            } => Shape::Schedule { delays_ms, jitter },
        }
    }
}

/// The bounds that a policy breaks.
#[derive(Default)]
struct Bounds(Vec<RetryPolicyFault>);

impl Bounds {
    fn unless(
        &mut self,
        holds: bool,
        pointer: impl Into<Cow<'static, str>>,
        error: RetryPolicyError,
    ) {
        if !holds {
            let pointer = pointer.into();
            self.0.push(RetryPolicyFault { pointer, error });
        }
    }

    fn attempts(&mut self, attempts: u32) {
        let some = (1..=limits::POLICY_ATTEMPTS).contains(&attempts);
        self.unless(some, "/max_attempts", RetryPolicyError::Attempts);
    }

    fn delay(&mut self, pointer: impl Into<Cow<'static, str>>, ms: u64) {
        let bounds = limits::POLICY_DELAY_MIN..=limits::POLICY_DELAY_MAX;
        let within = bounds.contains(&Duration::from_millis(ms));
        self.unless(within, pointer, RetryPolicyError::Delay);
    }

    fn jitter(&mut self, jitter: Jitter) {
        let within = match jitter {
            Jitter::Spread(r) => (0.0..=1.0).contains(&r),
            _ => true,
        };
        self.unless(within, "/jitter/spread", RetryPolicyError::Spread);
    }
}

/// The policy as it is written, before its bounds are checked.
mod wire {
    use super::{Jitter, Preset, RetryPolicyFault};

    #[derive(Debug, Clone, PartialEq, serde::Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
    pub(super) enum RetryPolicy {
        Preset {
            name: Preset,
        },
        Fixed {
            delay_ms: u64,
            max_attempts: u32,
        },
        Exponential {
            base_ms: u64,
            factor: f64,
            cap_ms: u64,
            max_attempts: u32,
            #[serde(default)]
            jitter: Jitter,
        },
        Schedule {
            delays_ms: Vec<u64>,
            #[serde(default)]
            jitter: Jitter,
        },
    }

    impl TryFrom<RetryPolicy> for super::RetryPolicy {
        type Error = RetryPolicyFault;

        fn try_from(wire: RetryPolicy) -> Result<Self, RetryPolicyFault> {
            Self::from_wire(wire).checked()
        }
    }
}

#[cfg(test)]
mod tests;

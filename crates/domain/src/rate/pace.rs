//! The pace of an endpoint that refuses: how many requests a second it is sent, found out by what it takes.
//!
//! ```text
//! Free ──3 of 16 refused, or asked for time──► Rising from 1/s ──the same──► Steady, half ──the same──► Steady, half …
//!   ▲                                             │                            │
//!   └──── 1,000/s, or nothing refused for 10 min ─┴────────────────────────────┘
//! ```
//!
//! A receiver that answers 429 has a limit and does not say which. A number of requests under way does not keep it: one that
//! answers in 5 ms gets 200 a second one after the other. So the pace is a rate. It rises with what is taken, each second to
//! nearly three times as much until something is refused, then by a tenth; and it is halved when too much is refused.
//!
//! A 429 now and then costs nothing: with more taken than refused it is better to go on. Pure; times are spans since any one
//! moment, the same for all calls.

use core::time::Duration;

use super::RateLimit;
use crate::delivery::Outcome;
use crate::limits;

/// What an answer says of the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The event was taken.
    Taken,
    /// 429.
    Refused,
    /// 429 or 503, and the endpoint asked to be left alone for a while.
    Asked,
}

impl Answer {
    /// What an attempt says; `None` where it says nothing of how much the endpoint takes. A plain 503 is what stands in front of a
    /// receiver that is down: that is the circuit's.
    #[must_use]
    pub const fn of(outcome: &Outcome, status: Option<u16>) -> Option<Self> {
        match (outcome, status) {
            (Outcome::Success, _) => Some(Self::Taken),
            (Outcome::Failed { floor: Some(_), .. }, _) => Some(Self::Asked),
            (Outcome::Failed { floor: None, .. }, Some(429)) => Some(Self::Refused),
            _ => None,
        }
    }
}

/// Requests a second.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Speed {
    /// As many as there are.
    Free,
    /// The first so many were taken.
    Rising(f64),
    /// More were refused.
    Steady(f64),
}

/// The pace of an endpoint that refused something lately. Of all others there is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    speed: Speed,
    /// Answers since the count began, and those of them that were refusals.
    answers: u32,
    refused: u32,
    /// What answers requests that began before this was on its way, or met a limit that was used up.
    from: Duration,
    /// The last refusal that counted.
    refused_at: Duration,
}

impl Pace {
    /// Of an endpoint that asked to be left alone, when it may be sent to again.
    #[must_use]
    pub fn first(now: Duration) -> Self {
        Self::free(now).cut(now)
    }

    const fn free(now: Duration) -> Self {
        Self {
            speed: Speed::Free,
            answers: 0,
            refused: 0,
            from: Duration::ZERO,
            refused_at: now,
        }
    }

    /// The pace after an answer at `now` to a request that began at `began`; `None` where there is nothing to remember.
    #[must_use]
    pub fn after(
        before: Option<Self>,
        answer: Answer,
        began: Duration,
        now: Duration,
    ) -> Option<Self> {
        let pace = match (before, answer) {
            (None, Answer::Taken) => return None,
            (None, Answer::Refused | Answer::Asked) => Self::free(now),
            (Some(pace), _) if began < pace.from => return Some(pace),
            (Some(pace), _) => pace,
        };
        match answer {
            Answer::Taken => pace.taken(),
            Answer::Refused => Some(pace.refused(now)),
            Answer::Asked => Some(pace.cut(now)),
        }
    }

    /// How many requests may start; `None`: as many as there are.
    #[must_use]
    pub fn limit(&self) -> Option<RateLimit> {
        match self.speed {
            Speed::Free => None,
            Speed::Rising(per_second) | Speed::Steady(per_second) => Some(RateLimit {
                per_second,
                burst: burst(per_second),
            }),
        }
    }

    /// Whether nothing was refused for so long that it is forgotten.
    #[must_use]
    pub fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.refused_at) >= limits::PACE_KEPT
    }

    fn taken(self) -> Option<Self> {
        let speed = match self.speed {
            Speed::Free if self.answers.saturating_add(1) >= limits::PACE_ANSWERS => return None,
            Speed::Free => Speed::Free,
            Speed::Rising(per_second) => Speed::Rising(per_second + limits::PACE_RISES),
            Speed::Steady(per_second) => Speed::Steady(per_second + limits::PACE_GROWS),
        };
        let most = limits::PACE_MOST;
        if matches!(speed, Speed::Rising(now) | Speed::Steady(now) if now >= most) {
            return None;
        }
        Some(Self { speed, ..self }.answered())
    }

    fn refused(self, now: Duration) -> Self {
        let refused = self.refused.saturating_add(1);
        if refused >= limits::PACE_REFUSED {
            return self.cut(now);
        }
        Self {
            refused,
            refused_at: now,
            ..self
        }
        .answered()
    }

    /// One more answer. After a while the count begins anew.
    fn answered(self) -> Self {
        let answers = self.answers.saturating_add(1);
        if answers >= limits::PACE_ANSWERS {
            return Self {
                answers: 0,
                refused: 0,
                ..self
            };
        }
        Self { answers, ..self }
    }

    fn cut(self, now: Duration) -> Self {
        let speed = match self.speed {
            Speed::Free => Speed::Rising(limits::PACE_FIRST),
            Speed::Rising(per_second) | Speed::Steady(per_second) => {
                Speed::Steady((per_second / 2.0).max(limits::PACE_LEAST))
            }
        };
        Self {
            speed,
            answers: 0,
            refused: 0,
            from: now.saturating_add(limits::PACE_HOLD),
            refused_at: now,
        }
    }
}

/// What may start at once: what would start in 50 ms, so that the grain of timers does not hold a fast one back.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 50, by the bounds of the pace"
)]
fn burst(per_second: f64) -> u32 {
    (per_second / 20.0).max(1.0) as u32
}

#[cfg(test)]
mod tests;

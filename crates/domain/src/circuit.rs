//! The circuit of an endpoint: when nothing more is sent to it but probes, and how it is trusted again.
//!
//! ```text
//! Closed ──failure──► Failing ──10 failures, 60 s, 3 events──► Open ──success──► Ramping ──► Closed
//!    ▲                   │                                     ▲  ▲                 │
//!    └──────success──────┘                          failure ───┘  └────failure──────┘
//! ```
//!
//! Pure. Nodes tell one another what is open by the table `endpoint_state`; the failures before that each counts for itself.

use core::time::Duration;

use chrono::{DateTime, Utc};

use crate::id::EventId;
use crate::limits;

/// What an attempt says of its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// It took the event.
    Success,
    /// It did not; of which event.
    Failure(EventId),
}

/// Failed attempts without a success between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many.
    pub failures: u32,
    /// When the first of them was.
    pub first_at: DateTime<Utc>,
    /// The first few events that they were of.
    events: [Option<EventId>; limits::CIRCUIT_EVENTS],
}

impl Run {
    const fn none(at: DateTime<Utc>) -> Self {
        Self {
            failures: 0,
            first_at: at,
            events: [None; limits::CIRCUIT_EVENTS],
        }
    }

    fn and(mut self, event: EventId) -> Self {
        self.failures = self.failures.saturating_add(1);
        if !self.events.contains(&Some(event))
            && let Some(free) = self.events.iter_mut().find(|known| known.is_none())
        {
            *free = Some(event);
        }
        self
    }

    /// One poisonous event is no reason, nor is a burst of failures in a moment.
    fn opens(&self, at: DateTime<Utc>) -> bool {
        let lasted = (at - self.first_at).to_std().unwrap_or_default();
        self.failures >= limits::CIRCUIT_FAILURES
            && lasted >= limits::CIRCUIT_LASTED
            && self.events.iter().all(Option::is_some)
    }
}

/// Where a circuit stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Circuit {
    /// All is well.
    #[default]
    Closed,
    /// Attempts fail, not long enough yet.
    Failing(Run),
    /// Nothing is sent but probes.
    Open {
        /// Probes that failed.
        probes: u32,
    },
    /// A probe succeeded, and more and more is sent.
    Ramping {
        /// Requests that may be under way.
        allowed: u32,
        /// Successes since so many may be.
        successes: u32,
    },
}

impl Circuit {
    /// Trusted again, for one request.
    pub const RAMP: Self = Self::Ramping {
        allowed: 1,
        successes: 0,
    };

    /// Where it stands after an attempt. `most` requests may be under way when all is well. While it is open only probes
    /// count: what was under way when it opened says nothing new.
    #[must_use]
    pub fn after(self, came: Came, at: DateTime<Utc>, most: u32) -> Self {
        match (self, came) {
            (Self::Closed | Self::Failing(_), Came::Success) => Self::Closed,
            (Self::Closed, Came::Failure(event)) => Self::Failing(Run::none(at).and(event)),
            (Self::Failing(run), Came::Failure(event)) => {
                let run = run.and(event);
                if run.opens(at) {
                    Self::Open { probes: 0 }
                } else {
                    Self::Failing(run)
                }
            }
            (Self::Open { .. }, Came::Success) => Self::RAMP,
            (Self::Open { probes }, Came::Failure(_)) => Self::Open {
                probes: probes.saturating_add(1),
            },
            (Self::Ramping { .. }, Came::Failure(_)) => Self::Open { probes: 0 },
            (Self::Ramping { allowed, successes }, Came::Success) => {
                ramped(allowed, successes.saturating_add(1), most)
            }
        }
    }
}

/// 1, 2, 4, …: as many successes as may be under way double what may.
const fn ramped(allowed: u32, successes: u32, most: u32) -> Circuit {
    if successes < allowed {
        return Circuit::Ramping { allowed, successes };
    }
    let allowed = allowed.saturating_mul(2);
    if allowed >= most {
        return Circuit::Closed;
    }
    Circuit::Ramping {
        allowed,
        successes: 0,
    }
}

/// How long after the circuit opened, or after so many probes that failed, the next is made: 5 s, 10 s, 20 s, … 10 min, each
/// up to a fifth more or less. `draw` is uniform in [0, 1).
#[must_use]
pub fn probe_after(probes: u32, draw: f64) -> Duration {
    let doubled = limits::PROBE_FIRST.saturating_mul(1 << probes.min(16));
    let spread = doubled
        .min(limits::PROBE_LONGEST)
        .mul_f64(0.4_f64.mul_add(draw, 0.8));
    spread.clamp(limits::PROBE_FIRST, limits::PROBE_LONGEST)
}

/// Whether an endpoint whose circuit has been open since then is given up, and disabled.
#[must_use]
pub fn is_given_up(opened_at: DateTime<Utc>, at: DateTime<Utc>) -> bool {
    (at - opened_at).to_std().unwrap_or_default() >= limits::CIRCUIT_GIVEN_UP
}

#[cfg(test)]
mod tests;

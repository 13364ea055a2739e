//! The state machine of a delivery (INV-5): one pure function says what follows an attempt.
//!
//! [`next`] decides after an attempt; [`life`] holds the whole life of a delivery, with replays, verdicts
//! and everything that is not an attempt. The store applies a decision by compare-and-set on the number
//! of the attempt, and never decides by itself. The diagram is `docs/states.md`.

use core::time::Duration;

use chrono::{DateTime, Utc};

use crate::retry::RetryPolicy;
use crate::retry_after::parse_retry_after;
use crate::word::words;

pub mod life;

words! {
    /// Why a delivery is dead.
    "cause of a death" Cause {
        /// The retry policy allows no further attempt.
        Exhausted = "exhausted",
        /// The endpoint answered with a status that it calls fatal.
        FatalStatus = "fatal_status",
        /// The endpoint answered 410.
        Gone = "gone",
        /// Its `max_age` is over.
        Expired = "expired",
        /// The policy is exhausted and the last target was one that address policy forbids.
        RefusedTarget = "refused_target",
        /// The policy is exhausted and the last request could not be built or signed.
        Config = "config",
        /// The event's payload is no longer kept.
        PayloadGone = "payload_gone",
    }
}

words! {
    /// Why an attempt was made.
    "trigger of an attempt" Trigger {
        /// Its time had come: the first attempt, or a retry.
        Schedule = "schedule",
        /// Somebody asked for it.
        Replay = "replay",
        /// A test of the endpoint; no delivery.
        Test = "test",
        /// The circuit is open and this delivery was chosen to try it.
        Probe = "probe",
    }
}

words! {
    /// How an attempt failed.
    "kind of error" ErrorKind {
        /// No complete answer within the time limit.
        Timeout = "timeout",
        /// The name did not resolve.
        Dns = "dns",
        /// No connection.
        Connect = "connect",
        /// No trusted TLS session.
        Tls = "tls",
        /// Address policy forbids the target.
        RefusedTarget = "refused_target",
        /// An answer whose status is not 2xx.
        Status = "status",
        /// An answer that is not HTTP, or one that broke off.
        Protocol = "protocol",
        /// The request could not be built: its secret, URL or a header.
        Config = "config",
    }
}

words! {
    /// What a reader is told of a delivery.
    "state of a delivery" DeliveryState {
        /// No attempt yet.
        Waiting = "waiting",
        /// An attempt failed, the next has a time.
        Retrying = "retrying",
        /// Pending without a time.
        Parked = "parked",
        /// An attempt succeeded. For ever.
        Delivered = "delivered",
        /// It failed for good, and is in the dead letters.
        Dead = "dead",
        /// A person took it out of the dead letters.
        Discarded = "discarded",
        /// A person, or the deletion of its endpoint, ended it.
        Cancelled = "cancelled",
    }
}

words! {
    /// Why a delivery is in `pending`. The last seven are also the causes for which it can be parked.
    "reason to be pending" Why {
        /// Another node is to send it.
        Handover = "handover",
        /// An attempt failed.
        Retry = "retry",
        /// Its stream was closed before it was resolved.
        Recovered = "recovered",
        /// Somebody asked for it.
        Replay = "replay",
        /// The endpoint's rate limit.
        RateLimit = "rate_limit",
        /// The endpoint's circuit is open.
        Circuit = "circuit",
        /// The endpoint asked to be left alone for a while.
        RetryAfter = "retry_after",
        /// The endpoint is paused.
        Paused = "paused",
        /// The endpoint is disabled.
        Disabled = "disabled",
        /// There is no room for it in memory or in flight.
        Capacity = "capacity",
    }
}

/// What ends a delivery without a request; kept as a row among its attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Cancelled by a person.
    Cancelled,
    /// Taken out of the dead letters by a person.
    Discarded,
    /// Failed for good.
    Dead(Cause),
}

impl Verdict {
    /// The word in `attempts.outcome`.
    #[must_use]
    pub const fn as_outcome(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
            Self::Dead(Cause::Exhausted) => "dead_exhausted",
            Self::Dead(Cause::FatalStatus) => "dead_fatal_status",
            Self::Dead(Cause::Gone) => "dead_gone",
            Self::Dead(Cause::Expired) => "dead_expired",
            Self::Dead(Cause::RefusedTarget) => "dead_refused_target",
            Self::Dead(Cause::Config) => "dead_config",
            Self::Dead(Cause::PayloadGone) => "dead_payload_gone",
        }
    }

    /// Reads `attempts.outcome`; `None` for `success`, `failed` and foreign words.
    #[must_use]
    pub fn from_outcome(word: &str) -> Option<Self> {
        match word {
            "cancelled" => Some(Self::Cancelled),
            "discarded" => Some(Self::Discarded),
            _ => word.strip_prefix("dead_")?.parse().ok().map(Self::Dead),
        }
    }
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A 2xx status.
    Success,
    /// Anything that may be better next time.
    Failed {
        /// The endpoint asked for at least this much time.
        floor: Option<Duration>,
        /// What the delivery dies of when the policy allows no further attempt.
        dies_as: Cause,
    },
    /// A status that the endpoint calls fatal.
    Fatal,
    /// 410: the endpoint is to be disabled.
    Gone,
}

/// What a final status came to. `retry_after` is the header's value, honoured on 429 and 503.
///
/// 410 is [`Outcome::Gone`] and 2xx a success whatever `fatal` holds.
#[must_use]
pub fn classify(
    status: u16,
    retry_after: Option<&str>,
    fatal: &[u16],
    now: DateTime<Utc>,
) -> Outcome {
    match status {
        200..=299 => Outcome::Success,
        410 => Outcome::Gone,
        _ if fatal.contains(&status) => Outcome::Fatal,
        429 | 503 => Outcome::Failed {
            floor: retry_after.and_then(|value| parse_retry_after(value, now)),
            dies_as: Cause::Exhausted,
        },
        _ => Outcome::Failed {
            floor: None,
            dies_as: Cause::Exhausted,
        },
    }
}

/// What an attempt without a final status came to: it failed, and counts like any other failure.
#[must_use]
pub const fn classify_error(kind: ErrorKind) -> Outcome {
    let dies_as = match kind {
        ErrorKind::RefusedTarget => Cause::RefusedTarget,
        ErrorKind::Config => Cause::Config,
        ErrorKind::Timeout
        | ErrorKind::Dns
        | ErrorKind::Connect
        | ErrorKind::Tls
        | ErrorKind::Status
        | ErrorKind::Protocol => Cause::Exhausted,
    };
    Outcome::Failed {
        floor: None,
        dies_as,
    }
}

/// Where a delivery stood when the attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The number of the attempt just made, counted over the delivery's whole life from 1.
    pub n: u32,
    /// Failures before it that count in the policy.
    pub step: u32,
    /// `Some` for an extra attempt that a person asked for: it moves no schedule and uses up no attempt.
    /// The time that is left to the schedule's own next attempt.
    pub scheduled: Option<Duration>,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It ends well.
    Delivered,
    /// Attempt `n` is due after `after`, with `step` failures behind it that count.
    Retry {
        /// The number of the next attempt.
        n: u32,
        /// Failures that count in the policy.
        step: u32,
        /// Time from now; never beyond the delivery's end.
        after: Duration,
    },
    /// It ends badly.
    Dead(Cause),
}

/// Decides what follows an attempt.
///
/// `left` is the time until the delivery's `ends_at`: a retry that would be due later is due then, and
/// expires. `draw` is uniform in [0, 1) and decides the jitter; a floor that the endpoint asked for holds
/// after jitter.
#[must_use]
pub fn next(
    standing: Standing,
    outcome: &Outcome,
    policy: &RetryPolicy,
    left: Duration,
    draw: f64,
) -> Next {
    let (floor, dies_as) = match *outcome {
        Outcome::Success => return Next::Delivered,
        Outcome::Gone => return Next::Dead(Cause::Gone),
        Outcome::Fatal => return Next::Dead(Cause::FatalStatus),
        Outcome::Failed { floor, dies_as } => (floor.unwrap_or_default(), dies_as),
    };
    let n = standing.n.saturating_add(1);
    if let Some(scheduled) = standing.scheduled {
        return Next::Retry {
            n,
            step: standing.step,
            after: scheduled.max(floor).min(left),
        };
    }
    let step = standing.step.saturating_add(1);
    match policy.delay(step, draw) {
        Some(delay) => Next::Retry {
            n,
            step,
            after: delay.max(floor).min(left),
        },
        None => Next::Dead(dies_as),
    }
}

#[cfg(test)]
mod tests;

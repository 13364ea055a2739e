//! The whole life of a delivery: everything that may happen to it, and what it is then.
//!
//! [`advance`] is total: what cannot happen to a delivery as it stands is a [`Refusal`] and changes
//! nothing. Success wins over everything and for ever, however late it is known, since a request that was
//! answered 2xx cannot be taken back. An attempt changes the rest only if its number is the one that was
//! expected (the store's compare-and-set): what it says otherwise is history.

use core::time::Duration;

use super::{Cause, DeliveryState, Next, Outcome, Standing, Why, next};
use crate::retry::RetryPolicy;

/// What a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Accepted, in the memory of the node that accepted it; nothing has been recorded yet.
    Waiting,
    /// In `pending`: the fast path did not finish it, or it is replayed.
    Pending(Pending),
    /// An attempt succeeded.
    Delivered,
    /// In the dead letters.
    Dead(Cause),
    /// Taken out of the dead letters.
    Discarded,
    /// Ended by a person or with its endpoint.
    Cancelled,
}

/// A row of `pending`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Why it is there.
    pub why: Why,
    /// Whether the next attempt has a time.
    pub due: Due,
    /// The number that the next attempt will have.
    pub n: u32,
    /// Failures that count in the policy.
    pub step: u32,
    /// Void as soon as a success numbered at least this is on record.
    pub since: u32,
    /// `Some` while an extra attempt is under way that a person asked for: time left to the schedule's own.
    pub scheduled: Option<Duration>,
    /// How it had ended before it was replayed.
    pub before: Before,
}

/// Whether the next attempt has a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// After this much time.
    In(Duration),
    /// No time is known.
    Parked,
}

/// How a replayed delivery had ended: what it is again if the replay comes to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// It had not.
    Open,
    /// It is delivered, and stays so.
    Delivered,
    /// Its dead letter stands.
    Dead(Cause),
    /// It was discarded.
    Discarded,
}

/// What may happen to a delivery.
#[derive(Debug, Clone, Copy)]
pub enum Happening<'a> {
    /// The attempt numbered `n` came back.
    Attempted {
        /// Its number.
        n: u32,
        /// What it came to.
        outcome: &'a Outcome,
        /// The endpoint's policy.
        policy: &'a RetryPolicy,
        /// Time until the delivery's end.
        left: Duration,
        /// Uniform in [0, 1).
        draw: f64,
    },
    /// The accepting node gives it to the owner of its shard.
    HandedOver,
    /// Its stream was closed and recovery found it open.
    Recovered,
    /// It has no time now, for this reason.
    Parked(Why),
    /// What parked it is over: it is due.
    Released,
    /// A person asks for an attempt. `n` is one more than the highest number on record.
    Replayed {
        /// The number that the attempt will have.
        n: u32,
    },
    /// A person ends it.
    Cancel,
    /// A person takes it out of the dead letters.
    Discard,
    /// Its end has come.
    Expired,
    /// Its endpoint answered 410 to another delivery.
    EndpointGone,
    /// Its endpoint is deleted.
    EndpointDeleted,
    /// Its payload is no longer kept.
    PayloadGone,
}

/// Why something cannot happen to a delivery as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has ended already.
    #[error("the delivery has ended")]
    Ended,
    /// It is pending: it cannot be discarded, recovered or handed over.
    #[error("the delivery is being retried")]
    Pending,
    /// It is not pending: there is nothing to cancel, park or release.
    #[error("the delivery is not pending")]
    NotPending,
    /// It is not dead: there is nothing to discard.
    #[error("the delivery is not dead")]
    NotDead,
    /// It was cancelled: it is not replayed.
    #[error("the delivery was cancelled")]
    Cancelled,
    /// The attempt's number is not the expected one: it is recorded and decides nothing.
    #[error("the attempt is not the expected one")]
    Stale,
}

/// What the delivery is after this has happened to it.
///
/// # Errors
///
/// [`Refusal`] says why it cannot happen; the delivery stays as it is.
pub fn advance(delivery: Delivery, happening: Happening<'_>) -> Result<Delivery, Refusal> {
    match happening {
        Happening::Attempted {
            n,
            outcome,
            policy,
            left,
            draw,
        } => attempted(delivery, n, |standing| {
            next(standing, outcome, policy, left, draw)
        }),
        Happening::HandedOver => first_row(delivery, Why::Handover),
        Happening::Recovered => first_row(delivery, Why::Recovered),
        Happening::Parked(why) => parked(delivery, why),
        Happening::Released => released(delivery),
        Happening::Replayed { n } => replayed(delivery, n),
        Happening::Cancel => cancelled(delivery),
        Happening::Discard => discarded(delivery),
        Happening::Expired => killed(delivery, Cause::Expired),
        Happening::EndpointGone => killed(delivery, Cause::Gone),
        Happening::PayloadGone => killed(delivery, Cause::PayloadGone),
        Happening::EndpointDeleted => endpoint_deleted(delivery),
    }
}

impl Delivery {
    /// What a reader is told.
    #[must_use]
    pub const fn state(self) -> DeliveryState {
        match self {
            Self::Pending(Pending {
                before: Before::Delivered,
                ..
            })
            | Self::Delivered => DeliveryState::Delivered,
            Self::Pending(Pending {
                due: Due::Parked, ..
            }) => DeliveryState::Parked,
            Self::Waiting | Self::Pending(Pending { n: 1, .. }) => DeliveryState::Waiting,
            Self::Pending(_) => DeliveryState::Retrying,
            Self::Dead(_) => DeliveryState::Dead,
            Self::Discarded => DeliveryState::Discarded,
            Self::Cancelled => DeliveryState::Cancelled,
        }
    }

    /// True when nothing more will happen unless a person asks for it.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(
            self,
            Self::Delivered | Self::Dead(_) | Self::Discarded | Self::Cancelled
        )
    }
}

impl Pending {
    /// The row of a delivery that has not been attempted yet.
    #[must_use]
    pub const fn unattempted(why: Why, due: Due) -> Self {
        Self {
            why,
            due,
            n: 1,
            step: 0,
            since: 1,
            scheduled: None,
            before: Before::Open,
        }
    }

    const fn standing(self) -> Standing {
        Standing {
            n: self.n,
            step: self.step,
            scheduled: self.scheduled,
        }
    }

    /// What it is when its row goes and nothing else is said.
    const fn put_back(self) -> Option<Delivery> {
        match self.before {
            Before::Open => None,
            Before::Delivered => Some(Delivery::Delivered),
            Before::Dead(cause) => Some(Delivery::Dead(cause)),
            Before::Discarded => Some(Delivery::Discarded),
        }
    }

    /// What it is when this attempt, or the delivery, fails for good.
    const fn dies(self, cause: Cause) -> Delivery {
        match self.before {
            Before::Delivered => Delivery::Delivered,
            Before::Open | Before::Dead(_) | Before::Discarded => Delivery::Dead(cause),
        }
    }
}

fn attempted(
    delivery: Delivery,
    n: u32,
    decide: impl FnOnce(Standing) -> Next,
) -> Result<Delivery, Refusal> {
    let row = match delivery {
        Delivery::Waiting => Pending::unattempted(Why::Retry, Due::Parked),
        Delivery::Pending(row) => row,
        // A late success still counts; nothing else does.
        _ => Pending {
            n,
            ..Pending::unattempted(Why::Retry, Due::Parked)
        },
    };
    match decide(row.standing()) {
        Next::Delivered => Ok(Delivery::Delivered),
        _ if delivery.has_ended() || n != row.n => Err(Refusal::Stale),
        Next::Retry { n, step, after } => Ok(Delivery::Pending(Pending {
            why: Why::Retry,
            due: Due::In(after),
            n,
            step,
            scheduled: None,
            ..row
        })),
        Next::Dead(cause) => Ok(row.dies(cause)),
    }
}

fn first_row(delivery: Delivery, why: Why) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Waiting => Ok(Delivery::Pending(Pending::unattempted(
            why,
            Due::In(Duration::ZERO),
        ))),
        Delivery::Pending(_) => Err(Refusal::Pending),
        _ => Err(Refusal::Ended),
    }
}

fn parked(delivery: Delivery, why: Why) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Waiting => Ok(Delivery::Pending(Pending::unattempted(why, Due::Parked))),
        Delivery::Pending(row) => Ok(Delivery::Pending(Pending {
            why,
            due: Due::Parked,
            ..row
        })),
        _ => Err(Refusal::NotPending),
    }
}

fn released(delivery: Delivery) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Pending(row) => Ok(Delivery::Pending(Pending {
            due: Due::In(Duration::ZERO),
            ..row
        })),
        _ => Err(Refusal::NotPending),
    }
}

fn replayed(delivery: Delivery, n: u32) -> Result<Delivery, Refusal> {
    let before = match delivery {
        Delivery::Waiting => Before::Open,
        Delivery::Pending(row) => return Ok(Delivery::Pending(extra(row))),
        Delivery::Delivered => Before::Delivered,
        Delivery::Dead(cause) => Before::Dead(cause),
        Delivery::Discarded => Before::Discarded,
        Delivery::Cancelled => return Err(Refusal::Cancelled),
    };
    let row = Pending::unattempted(Why::Replay, Due::In(Duration::ZERO));
    Ok(Delivery::Pending(Pending {
        n,
        since: n,
        before,
        ..row
    }))
}

/// An extra attempt now, of a delivery that is pending anyway: its schedule is remembered.
fn extra(row: Pending) -> Pending {
    let scheduled = match row.due {
        Due::In(left) => row.scheduled.or(Some(left)),
        Due::Parked => row.scheduled,
    };
    Pending {
        why: Why::Replay,
        due: Due::In(Duration::ZERO),
        scheduled,
        ..row
    }
}

fn cancelled(delivery: Delivery) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Pending(row) => Ok(row.put_back().unwrap_or(Delivery::Cancelled)),
        _ => Err(Refusal::NotPending),
    }
}

fn discarded(delivery: Delivery) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Dead(_) => Ok(Delivery::Discarded),
        Delivery::Pending(_) => Err(Refusal::Pending),
        _ => Err(Refusal::NotDead),
    }
}

fn killed(delivery: Delivery, cause: Cause) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Waiting => Ok(Delivery::Dead(cause)),
        Delivery::Pending(row) => Ok(row.dies(cause)),
        _ => Err(Refusal::Ended),
    }
}

fn endpoint_deleted(delivery: Delivery) -> Result<Delivery, Refusal> {
    match delivery {
        Delivery::Waiting => Ok(Delivery::Cancelled),
        Delivery::Pending(row) => Ok(row.put_back().unwrap_or(Delivery::Cancelled)),
        _ => Err(Refusal::Ended),
    }
}

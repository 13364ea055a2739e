//! What the recorder is told: an attempt with what follows from it, or a delivery that goes to `pending` unsent.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{Cause, ErrorKind, Trigger, Why};
use posthorn_domain::id::{ApplicationId, EndpointId, EventId, ReplayId, TenantId};

/// The identity of a delivery, with its tenant. Ordered as the primary keys are, so that batches take locks in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    /// Whose.
    pub tenant: TenantId,
    /// To which endpoint.
    pub endpoint: EndpointId,
    /// Of which event.
    pub event: EventId,
}

/// How an attempt failed.
#[derive(Clone, Debug)]
pub struct AttemptError {
    /// The kind.
    pub kind: ErrorKind,
    /// Words that a customer can act on.
    pub detail: String,
}

/// What is kept of an answer.
#[derive(Clone, Debug)]
pub struct KeptResponse {
    /// A JSON array of [name, value] pairs, secrets masked.
    pub headers: String,
    /// The first bytes of the body.
    pub body: Vec<u8>,
    /// Bytes of the body that were read.
    pub size: u64,
    /// Whether the body went on.
    pub cut: bool,
}

/// One HTTP request of a delivery.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its number in the delivery, from 1.
    pub n: u32,
    /// Random: tells two requests of one number apart.
    pub nonce: u32,
    /// Whether the endpoint accepted the event.
    pub success: bool,
    /// The status, where one came.
    pub status: Option<u16>,
    /// When the request was sent.
    pub at: DateTime<Utc>,
    /// From then until the answer, or until it was given up.
    pub duration: Duration,
    /// What asked for it.
    pub trigger: Trigger,
    /// The replay that it is part of.
    pub replay: Option<ReplayId>,
    /// The address that was connected to.
    pub remote_address: Option<String>,
    /// How it failed.
    pub error: Option<AttemptError>,
    /// What is kept of the answer.
    pub response: Option<KeptResponse>,
    /// The version of the endpoint that it was made by.
    pub config_seq: i64,
}

impl Attempt {
    /// The number, then the random bytes: in the order of numbers.
    pub(crate) fn row_id(&self) -> i64 {
        let n = i32::try_from(self.n).unwrap_or(i32::MAX);
        (i64::from(n) << 32) | i64::from(self.nonce)
    }
}

/// Where the delivery was taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// From memory, straight after accept: there should be no pending row.
    Fresh,
    /// From its pending row.
    Pending,
}

/// The next attempt.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Failed attempts that count in the policy, this one included.
    pub step: u32,
    /// From now until it is due.
    pub after: Duration,
    /// The delivery's end.
    pub ends_at: DateTime<Utc>,
}

/// What follows from an attempt, as [`posthorn_domain::delivery::next`] decided it.
#[derive(Clone, Copy, Debug)]
pub enum Consequence {
    /// Accepted by the endpoint.
    Delivered,
    /// To be tried again.
    Retry(Retry),
    /// Failed for good.
    Dead(Cause),
}

/// A delivery that is not being sent and goes to `pending` without an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    /// Why it is not being sent.
    pub why: Why,
    /// Due at once, for whoever owns its shard; else parked until it is drained.
    pub due: bool,
    /// The delivery's end.
    pub ends_at: DateTime<Utc>,
}

/// One thing to record.
#[derive(Clone, Debug)]
pub enum Fact {
    /// An attempt was made.
    Attempted {
        /// Of which delivery.
        key: DeliveryKey,
        /// The attempt.
        attempt: Box<Attempt>,
        /// Where the delivery was taken from.
        source: Source,
        /// What follows.
        consequence: Consequence,
        /// The event's type, for the dead letter.
        event_type: String,
        /// The event's application, for the dead letter.
        application: Option<ApplicationId>,
    },
    /// A fresh delivery goes to `pending`.
    Parked {
        /// Which delivery.
        key: DeliveryKey,
        /// How.
        parked: Parked,
    },
}

impl Fact {
    /// The delivery that it is about.
    #[must_use]
    pub const fn key(&self) -> DeliveryKey {
        match self {
            Self::Attempted { key, .. } | Self::Parked { key, .. } => *key,
        }
    }

    /// The same fact without the texts that strangers wrote, for a row that the database refuses.
    #[must_use]
    pub fn without_texts(&self) -> Self {
        let mut bare = self.clone();
        if let Self::Attempted { attempt, .. } = &mut bare {
            attempt.response = None;
            attempt.remote_address = None;
            if let Some(error) = &mut attempt.error {
                "the answer could not be stored".clone_into(&mut error.detail);
            }
        }
        bare
    }
}

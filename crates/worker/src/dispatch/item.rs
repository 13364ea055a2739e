//! A delivery in memory, and what it weighs.

use std::sync::Arc;

use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use posthorn_store::accept::FreshEvent;
use posthorn_store::pending::Due;
use posthorn_store::record::DeliveryKey;

/// A delivery in memory.
#[derive(Clone, Debug)]
pub enum Item {
    /// Straight from accept.
    Fresh(Arc<FreshEvent>, EndpointId),
    /// A row of `pending`; its payload is read when it is sent.
    Pending(Due),
    /// The same, chosen to try an endpoint whose circuit is open.
    Probe(Due),
}

impl Item {
    /// Which delivery.
    #[must_use]
    pub fn key(&self) -> DeliveryKey {
        match self {
            Self::Fresh(event, endpoint) => DeliveryKey {
                tenant: event.tenant,
                endpoint: *endpoint,
                event: event.id,
            },
            Self::Pending(due) | Self::Probe(due) => due.key,
        }
    }

    /// Bytes that it keeps in memory from the moment it is queued. A row of `pending` is a key; keys are counted.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Fresh(event, _) => event.payload.len() + 512,
            Self::Pending(_) | Self::Probe(_) => 0,
        }
    }

    /// Slots that its request takes: of a row whose payload is not read yet, as many as the largest would.
    pub(super) fn slots(&self) -> usize {
        match self {
            Self::Fresh(event, _) => slots(event.payload.len()),
            Self::Pending(_) | Self::Probe(_) => SLOTS_MAX,
        }
    }
}

/// Slots of the largest payload there is.
pub(super) const SLOTS_MAX: usize = slots(limits::PAYLOAD_BYTES);

/// Slots that a request with a payload of so many bytes takes: one, and one more for each whole [`limits::SLOT_BYTES`].
pub(super) const fn slots(bytes: usize) -> usize {
    1 + bytes / limits::SLOT_BYTES
}

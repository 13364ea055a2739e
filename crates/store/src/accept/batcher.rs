//! The batcher: takes what is queued and makes it durable, in two lanes.
//!
//! Each lane has a queue, a connection and a row of `streams` as its fence, so that a small event never waits for the
//! statement of a large one. Which lane an event takes is its size alone.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use posthorn_domain::limits;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::AcceptorParts;
use super::lane::Lane;
use super::queue::Queue;
use crate::lease;

/// The queues of both lanes.
#[derive(Clone)]
pub(super) struct Queues {
    small: Queue,
    large: Queue,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            small: Queue::new(limits::SMALL_TURN_BYTES),
            large: Queue::new(limits::LARGE_TURN_BYTES),
        }
    }
}

impl Queues {
    /// The queue for an event that adds so many bytes to a flush.
    pub(super) const fn of(&self, bytes: usize) -> &Queue {
        if bytes > limits::SMALL_EVENT_BYTES {
            &self.large
        } else {
            &self.small
        }
    }
}

/// Takes what is queued and makes it durable.
pub struct Batcher {
    small: Lane,
    /// A second connection for small events: while one flush waits for the disk, another is put together and written.
    beside: Lane,
    large: Lane,
}

impl Batcher {
    pub(super) fn new(parts: AcceptorParts, queues: Queues, away: &Arc<AtomicBool>) -> Self {
        let small = || {
            let (parts, queue) = (parts.clone(), queues.small.clone());
            Lane::new(lease::SMALL, parts, queue, Arc::clone(away))
        };
        Self {
            small: small(),
            beside: small(),
            large: Lane::new(lease::LARGE, parts, queues.large, Arc::clone(away)),
        }
    }

    /// Flushes until `stop`, then what is queued, then ends. Dropped, it ends where it stands: what was not confirmed stays open,
    /// and whoever waits for it hears that it is not known.
    pub async fn run(self, stop: CancellationToken) {
        // A task of its own: to put a statement of large payloads together takes its time.
        let others = [
            tokio::spawn(self.large.run(stop.clone())),
            tokio::spawn(self.beside.run_beside(stop.clone())),
        ]
        .map(AbortOnDropHandle::new);
        self.small.run(stop).await;
        for other in others {
            if let Err(error) = other.await {
                tracing::error!(%error, "a lane of the batcher ended by itself");
            }
        }
    }
}

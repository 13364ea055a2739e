//! The threads that deliveries run on.
//!
//! They are not those that answer callers. A task of the runtime waits its turn behind all that are ready, in the order in
//! which they became so; a burst of deliveries makes hundreds ready at once, and whoever submits an event would wait for
//! them several times over. Between threads it is the kernel that shares, and it is quick to wake one that has slept (INV-13).

use std::io;

use posthorn_store::stream::Sending;
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime for deliveries, as wide as the machine, on a node that sends.
pub(crate) struct SendingThreads(Option<Runtime>);

impl SendingThreads {
    /// Starts them where this node sends.
    ///
    /// # Errors
    /// When the system gives no more threads or descriptors.
    pub(crate) fn start(sending: Sending) -> io::Result<Self> {
        let runtime = match sending {
            Sending::Here => Some(
                Builder::new_multi_thread()
                    .thread_name("posthorn-send")
                    .enable_all()
                    .build()?,
            ),
            Sending::Elsewhere => None,
        };
        Ok(Self(runtime))
    }

    /// Where to spawn; where the node does not send, the runtime of whoever asks.
    pub(crate) fn handle(&self) -> Handle {
        self.0
            .as_ref()
            .map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for SendingThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Not awaited: a runtime must not wait for another, and what had to end has ended by now.
            runtime.shutdown_background();
        }
    }
}

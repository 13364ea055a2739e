//! The hint that something has become due. A hint only: the timer is what is relied on.

use std::sync::Arc;

use tokio::sync::Notify;

/// Rung after a commit that made deliveries due; the due timer of the same node then looks at once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DueHint {
    notify: Arc<Notify>,
}

impl DueHint {
    /// Something may be due.
    pub fn ring(&self) {
        self.notify.notify_one();
    }

    /// What the due timer waits on beside its clock.
    #[must_use]
    pub fn listen(&self) -> &Notify {
        &self.notify
    }
}

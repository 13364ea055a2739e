//! What accept is told of endpoints that are behind, so that no more is accepted than can be sent.

use std::time::Instant;

use posthorn_domain::limits;

use super::Dispatcher;

impl Dispatcher {
    /// Tells accept which endpoints are behind, if there is anything to tell.
    pub(super) fn tell_behind(&self, now: Instant) {
        let (behind, started) = {
            let mut lanes = self.lanes();
            let behind = now
                .checked_sub(limits::BEHIND_AFTER)
                .map(|since| lanes.behind(since))
                .unwrap_or_default();
            (behind, lanes.started())
        };
        if !behind.is_empty() || self.backpressure.is_on() {
            self.backpressure.tell(behind, started);
        }
    }
}

//! Which parked row of each endpoint was the last to be sent as a probe. Pure.

use std::collections::HashMap;

use posthorn_domain::id::EndpointId;
use posthorn_store::pending::Parked;

/// The last row that was sent as a probe, of each endpoint whose circuit is open. One that fails says nothing of the
/// others, so each probe is of the next row; behind the last comes the first again.
#[derive(Default)]
pub(super) struct Probes {
    probed: HashMap<EndpointId, Parked>,
}

impl Probes {
    /// Behind which row the next probe is looked for; `None`: at the beginning.
    pub(super) fn place(&self, endpoint: EndpointId) -> Option<Parked> {
        self.probed.get(&endpoint).copied()
    }

    /// This row is sent.
    pub(super) fn reached(&mut self, endpoint: EndpointId, row: Parked) {
        self.probed.insert(endpoint, row);
    }

    /// There is none behind the last one.
    pub(super) fn ended(&mut self, endpoint: EndpointId) {
        self.probed.remove(&endpoint);
    }

    /// Forgets the endpoints that are well.
    pub(super) fn forget_unless(&mut self, unwell: impl Fn(EndpointId) -> bool) {
        self.probed.retain(|endpoint, _| unwell(*endpoint));
    }
}

//! How far the drain of each endpoint has come. Pure.

use std::collections::HashMap;
use std::time::Instant;

use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use posthorn_store::pending::Parked;

struct Drain {
    reached: Option<Parked>,
    began: Instant,
}

/// The last row that each drain has read. A hint: it goes back to the beginning every 15 s, since rows are parked behind
/// it, and whenever the drain comes to the end.
#[derive(Default)]
pub(super) struct Drains {
    drains: HashMap<EndpointId, Drain>,
}

impl Drains {
    /// Behind which row an endpoint's drain goes on; `None`: at the beginning.
    pub(super) fn place(&mut self, endpoint: EndpointId, now: Instant) -> Option<Parked> {
        let new = || Drain {
            reached: None,
            began: now,
        };
        let drain = self.drains.entry(endpoint).or_insert_with(new);
        if now.saturating_duration_since(drain.began) >= limits::DUE_RESTART {
            *drain = new();
        }
        drain.reached
    }

    /// The drain has come to this row.
    pub(super) fn reached(&mut self, endpoint: EndpointId, row: Parked) {
        if let Some(drain) = self.drains.get_mut(&endpoint) {
            drain.reached = Some(row);
        }
    }

    /// It has come to the end.
    pub(super) fn ended(&mut self, endpoint: EndpointId) {
        self.drains.remove(&endpoint);
    }

    /// Forgets those that would begin anew, and those of endpoints that are another node's to drain: when they come back,
    /// rows were parked meanwhile.
    pub(super) fn forget_old(&mut self, now: Instant, owns: impl Fn(EndpointId) -> bool) {
        self.drains.retain(|endpoint, drain| {
            owns(*endpoint) && now.saturating_duration_since(drain.began) < limits::DUE_RESTART
        });
    }
}

//! Hand-over: what this node holds that is another's to send.
//!
//! Rows of `pending` are sent by the owner of their shard, and so are fresh events for strict endpoints. Whoever owns a shard may
//! change at any moment: what arrives, what is queued, and what is about to be sent each asks anew, and what is not this node's
//! goes to `pending`, due for the owner. A shard is given back only when nothing of it is held ([`Dispatcher::quiet`]).

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_store::accept::FreshEvent;
use posthorn_store::stream::Sending;

use super::{Dispatcher, is_row};
use crate::record::Recorder;

impl Dispatcher {
    /// These shards are about to be this node's; `ago` is for how long no other has sent, `None` where none ever did. What may be
    /// sent to their endpoints by their rates is counted as though the other had sent all that it might until then.
    pub fn shards_taken(&self, shards: &[i16], ago: Option<Duration>) {
        if let Some(ago) = ago
            && !shards.is_empty()
        {
            let now = self.clock.monotonic();
            let until = now.checked_sub(ago).unwrap_or(now);
            self.lanes().taken(shards, until);
        }
    }

    /// Some shards are no longer this node's: what is queued of theirs is let go of.
    pub fn shards_given_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Lets go of what is queued of shards that are not this node's. Rows lie in `pending` as they are, for the owner;
    /// fresh deliveries to strict endpoints are brought there.
    pub(super) fn let_go(&self, recorder: &Recorder) {
        let gone = {
            let mut lanes = self.lanes();
            let gone = lanes.let_go(
                |endpoint| self.shards.owns(endpoint),
                |tenant, endpoint| self.is_strict(tenant, endpoint),
            );
            for item in gone.iter().filter(|item| is_row(item)) {
                lanes.recorded(item.key());
            }
            gone
        };
        for item in gone.iter().filter(|item| !is_row(item)) {
            recorder.park(self.parked(item, Why::Handover, true));
        }
    }

    /// Those of these shards of which this node holds nothing: neither queued, nor under way, nor waiting to be recorded.
    /// Once a shard is not this node's any more, nothing of it begins.
    #[must_use]
    pub fn quiet(&self, shards: &[i16]) -> Vec<i16> {
        let busy = self
            .lanes()
            .busy(shards, |tenant, endpoint| self.is_strict(tenant, endpoint));
        let quiet = shards.iter().filter(|shard| !busy.contains(shard));
        quiet.copied().collect()
    }

    /// The endpoints of a fresh event that this node does not send to after all: strict ones whose shard it has given up
    /// since the event was matched, or has so many that the flush could not hand them over; all, when it sends no more.
    pub(super) fn elsewhere(&self, event: &FreshEvent) -> HashSet<EndpointId> {
        let all = self.shards.sending() == Sending::Elsewhere;
        if !all && !event.has_strict {
            return HashSet::new();
        }
        let endpoints = event.endpoints.iter().copied();
        endpoints
            .filter(|endpoint| {
                all || (self.is_strict(event.tenant, *endpoint) && !self.shards.owns(*endpoint))
            })
            .collect()
    }

    /// Whether one node alone sends to an endpoint.
    fn is_strict(&self, tenant: TenantId, endpoint: EndpointId) -> bool {
        let snapshot = self.cache.snapshot();
        snapshot
            .endpoint(tenant, endpoint)
            .is_some_and(|entry| entry.is_strict())
    }
}

//! Handover: which deliveries of an event are another node's to send.
//!
//! An endpoint with a strict limit is sent to by one node alone, the owner of its shard; and a node that does not send hands
//! over everything. The flush writes a row of `pending` for each such delivery, due at once, in the statement that
//! writes the event: so the event and its hand-overs are durable together or not at all, and the owner's due timer finds
//! them.
//!
//! Who owns a shard may change between this decision and the sending. Whoever is about to send asks again; this one
//! only saves the way through memory (INV-6).

use std::collections::HashSet;
use std::time::Duration;

use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;

use super::flush::Row;
use crate::configuration::TenantConfig;
use crate::shards::Shards;
use crate::stream::Sending;

/// A delivery of an event that another node sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    /// To which endpoint.
    pub(super) endpoint: EndpointId,
    /// From accept to the delivery's end.
    pub(super) max_age: Duration,
}

/// Those of an event's deliveries that its flush hands over, at most [`limits::FLUSH_HANDOVERS`]. What is over that is
/// brought to `pending` by this node's dispatcher, after the flush.
pub(super) fn of(tenant: &TenantConfig, matched: &[EndpointId], shards: &Shards) -> Vec<Handover> {
    let all = shards.sending() == Sending::Elsewhere;
    if !all && !tenant.has_strict() {
        return Vec::new();
    }
    matched
        .iter()
        .filter_map(|id| tenant.endpoint(*id))
        .filter(|entry| all || (entry.is_strict() && !shards.owns(entry.id)))
        .map(|entry| Handover {
            endpoint: entry.id,
            max_age: entry.max_age,
        })
        .take(limits::FLUSH_HANDOVERS)
        .collect()
}

/// Parts the endpoints of a row that is in the log: those that are this node's own, and those that its flush handed over.
pub(super) fn part(row: &Row, endpoints: Vec<EndpointId>) -> (Vec<EndpointId>, Vec<EndpointId>) {
    if row.handovers.is_empty() {
        return (endpoints, Vec::new());
    }
    let handed: HashSet<_> = row.handovers.iter().map(|of| of.endpoint).collect();
    endpoints.into_iter().partition(|id| !handed.contains(id))
}

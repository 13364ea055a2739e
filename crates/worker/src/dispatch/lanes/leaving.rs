//! How deliveries leave the queues without being sent from them.

use std::collections::BTreeSet;
use std::time::Instant;

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_store::record::DeliveryKey;

use super::Lanes;
use crate::dispatch::item::Item;

impl Lanes {
    /// Takes out the fresh deliveries that have been queued since before `since`, with what they waited for; they are no
    /// longer queued, but held.
    pub(in crate::dispatch) fn overdue(&mut self, since: Instant) -> Vec<(Item, Why)> {
        let mut overdue = Vec::new();
        for tenant in self.tenants.values_mut() {
            for lane in tenant.lanes.values_mut() {
                lane.overdue(since, &mut overdue);
            }
        }
        overdue
    }

    /// Takes out what is queued for endpoints whose shards this node does not own: rows of `pending`, and what is fresh where
    /// the endpoint is strict. They stay held until the caller says otherwise.
    pub(in crate::dispatch) fn let_go(
        &mut self,
        owns: impl Fn(EndpointId) -> bool,
        is_strict: impl Fn(TenantId, EndpointId) -> bool,
    ) -> Vec<Item> {
        let mut gone = Vec::new();
        for (id, tenant) in &mut self.tenants {
            for (endpoint, lane) in &mut tenant.lanes {
                if owns(*endpoint) {
                    continue;
                }
                if is_strict(*id, *endpoint) {
                    lane.drain(&mut gone);
                } else {
                    lane.let_go(&mut gone);
                }
            }
        }
        gone
    }

    /// The shards among those of `of` of which something is held that only their owner sends, queued, being sent or not yet
    /// recorded: rows of `pending`, and whatever is for a strict endpoint.
    pub(in crate::dispatch) fn busy(
        &self,
        of: &[i16],
        is_strict: impl Fn(TenantId, EndpointId) -> bool,
    ) -> BTreeSet<i16> {
        let shard = |key: &DeliveryKey| i16::from(key.endpoint.shard());
        self.held
            .iter()
            .filter(|(key, _)| of.contains(&shard(key)))
            .filter(|(key, held)| held.rows > 0 || is_strict(key.tenant, key.endpoint))
            .map(|(key, _)| shard(key))
            .collect()
    }

    /// Takes out the fresh deliveries of streams that are closed; they stay held until the caller says otherwise.
    pub(in crate::dispatch) fn closed(&mut self) -> Vec<Item> {
        let mut closed = Vec::new();
        for lane in self
            .tenants
            .values_mut()
            .flat_map(|tenant| tenant.lanes.values_mut())
        {
            lane.closed(&mut closed);
        }
        closed
    }

    /// Takes out everything that is queued.
    pub(in crate::dispatch) fn drain(&mut self) -> Vec<Item> {
        self.ring.clear();
        self.later.clear();
        let mut all: Vec<_> = self.evicted().into_iter().map(|(item, _)| item).collect();
        for tenant in self.tenants.values_mut() {
            tenant.drain(&mut all);
        }
        all
    }
}

//! Which endpoints are behind, for want of anything free on this node.
//!
//! To be asked when nothing more can be started. A lane that stands in its tenant's ring then waits for the node: one that has reached
//! its cap, its rate or its part of the slots stands elsewhere.

use std::collections::HashSet;
use std::time::Instant;

use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;

use super::Lanes;

impl Lanes {
    /// The endpoints whose next fresh delivery has been queued since before `since`, though nothing but the node keeps it; not
    /// those of a tenant that has little waiting beside the others, for it is they whom it waits for (INV-13).
    pub(in crate::dispatch) fn behind(&self, since: Instant) -> HashSet<EndpointId> {
        let tenants: Vec<_> = self
            .ring
            .iter()
            .filter_map(|tenant| self.tenants.get(tenant))
            .map(|tenant| (tenant, tenant.waiting()))
            .collect();
        let all: usize = tenants.iter().map(|(_, waiting)| waiting).sum();
        if all < limits::BEHIND_LEAST {
            return HashSet::new();
        }
        tenants
            .iter()
            .filter(|(_, waiting)| 2 * waiting * tenants.len() >= all)
            .filter(|(tenant, _)| tenant.is_brisk())
            .flat_map(|(tenant, _)| tenant.behind(since))
            .collect()
    }

    /// How many fresh deliveries were started since the last call.
    pub(in crate::dispatch) fn started(&mut self) -> usize {
        std::mem::take(&mut self.started)
    }

    /// A quarter of a second has passed: see [`Lanes::behind`], where a tenant's requests that are slow are its own to wait for.
    pub(in crate::dispatch) fn tick(&mut self) {
        self.tenants.values_mut().for_each(super::TenantLanes::tick);
    }
}

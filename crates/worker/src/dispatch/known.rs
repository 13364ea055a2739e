//! What is known of endpoints, by the configuration and by how they fare, and what follows for their lanes.

use std::sync::Arc;

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_store::configuration::Snapshot;
use posthorn_store::health::HealthSnapshot;
use posthorn_store::record::DeliveryKey;

use super::{Allowance, Dispatcher};

/// What is known of endpoints at a moment.
pub(super) struct Known {
    config: Arc<Snapshot>,
    health: Arc<HealthSnapshot>,
}

/// Of the configuration and of the endpoints that are not well.
pub(super) type Version = (i64, u64);

impl Known {
    fn version(&self) -> Version {
        (self.config.seq(), self.health.version())
    }
}

impl Dispatcher {
    /// Asks again what may be sent to each endpoint, when what is known is no longer what was asked.
    pub(super) fn allow(&self, version: &mut Option<Version>) {
        let known = self.known();
        if version.replace(known.version()) != Some(known.version()) {
            self.lanes()
                .allow(|tenant, endpoint| self.allowance(&known, tenant, endpoint));
        }
    }

    /// By the clock: a floor passes, a shard changes hands.
    pub(super) fn look_again(&self) {
        let known = self.known();
        let changed = self.circuits.look_again(&known.config, &known.health);
        let mut lanes = self.lanes();
        for (tenant, endpoint) in known.health.endpoints().chain(changed) {
            lanes.set_allowance(tenant, endpoint, self.allowance(&known, tenant, endpoint));
        }
        lanes.tick();
        lanes.forget(self.clock.monotonic());
        let load = [lanes.in_flight(), lanes.held()];
        drop(lanes);
        let [in_flight, held] =
            load.map(|count| f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
        metrics::gauge!("posthorn_requests_in_flight").set(in_flight);
        metrics::gauge!("posthorn_deliveries_in_memory").set(held);
    }

    pub(super) fn known(&self) -> Known {
        Known {
            config: self.cache.snapshot(),
            health: self.circuits.health(),
        }
    }

    pub(super) fn allowance(
        &self,
        known: &Known,
        tenant: TenantId,
        endpoint: EndpointId,
    ) -> Allowance {
        self.circuits
            .allowance(&known.config, &known.health, (tenant, endpoint))
    }

    /// Asks again what may be sent to one endpoint.
    pub(crate) fn allow_one(&self, tenant: TenantId, endpoint: EndpointId) {
        let known = self.known();
        let allowance = self.allowance(&known, tenant, endpoint);
        self.lanes().set_allowance(tenant, endpoint, allowance);
        self.wake.notify_one();
    }

    /// Nothing more is sent to an endpoint until something else is known of it.
    pub(crate) fn shut(&self, tenant: TenantId, endpoint: EndpointId, why: Why) {
        let shut = Allowance {
            shut: Some(why),
            ..Allowance::default()
        };
        self.lanes().set_allowance(tenant, endpoint, shut);
        self.wake.notify_one();
    }

    /// Why nothing may be sent to an endpoint now, if so.
    pub(crate) fn is_shut(&self, key: DeliveryKey) -> Option<Why> {
        self.allowance(&self.known(), key.tenant, key.endpoint).shut
    }
}

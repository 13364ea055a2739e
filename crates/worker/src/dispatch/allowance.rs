//! What may be sent to an endpoint now.

use posthorn_domain::delivery::Why;
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::limits;
use posthorn_domain::rate::RateLimit;
use posthorn_store::configuration::EndpointEntry;

/// What may be sent to an endpoint by this node, now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Allowance {
    /// How many requests may be under way; 0: none.
    pub(crate) in_flight: usize,
    /// How many may start.
    pub(crate) rate: Option<RateLimit>,
    /// Nothing starts, and what is queued is parked for this reason.
    pub(crate) shut: Option<Why>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            in_flight: limits::IN_FLIGHT_PER_ENDPOINT,
            rate: None,
            shut: None,
        }
    }
}

impl Allowance {
    /// What a delivery waits for that is not sent in time.
    pub(crate) const fn waits_for(&self) -> Why {
        if self.rate.is_some() {
            Why::RateLimit
        } else {
            Why::Capacity
        }
    }

    /// The same at this rate, where it is less than the endpoint's own.
    pub(crate) fn paced(self, pace: Option<RateLimit>) -> Self {
        let own = self.rate;
        let less = pace.filter(|pace| own.is_none_or(|own| pace.per_second() < own.per_second()));
        Self {
            rate: less.or(own),
            ..self
        }
    }

    /// What the configuration says. Of an endpoint that it does not know nothing is queued up: whoever sends finds out
    /// what became of it.
    #[must_use]
    pub(crate) fn of(entry: Option<&EndpointEntry>) -> Self {
        let Some(entry) = entry else {
            return Self::default();
        };
        let in_flight = entry
            .max_in_flight
            .map_or(limits::IN_FLIGHT_PER_ENDPOINT, |limit| {
                usize::try_from(limit).unwrap_or(usize::MAX)
            });
        let shut = match entry.state {
            EndpointState::Enabled => None,
            EndpointState::Paused => Some(Why::Paused),
            EndpointState::Disabled => Some(Why::Disabled),
        };
        Self {
            in_flight,
            rate: entry.rate_limit,
            shut,
        }
    }
}

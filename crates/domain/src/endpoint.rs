//! The state of an endpoint, and what it means for the deliveries that wait for it.

use crate::delivery::{Cause, Why};
use crate::word::words;

words! {
    /// What people set; Posthorn itself sets `disabled`, with a cause.
    "state of an endpoint" EndpointState {
        /// Matched and sent to.
        Enabled = "enabled",
        /// Matched; deliveries wait.
        Paused = "paused",
        /// Not matched; what waits is kept until its end.
        Disabled = "disabled",
    }
}

words! {
    /// Why Posthorn disabled an endpoint.
    "cause of an endpoint's state" StateCause {
        /// It answered 410.
        Gone = "gone",
        /// It failed without a break for days.
        Failing = "failing",
    }
}

words! {
    /// Of which attempts the response is kept.
    "choice of responses to keep" KeepResponses {
        /// Of those that failed. The default.
        Failures = "failures",
        /// Of all.
        All = "all",
        /// Of none.
        None = "none",
    }
}

words! {
    /// A scheme of Standard Webhooks, and the kind of secret that it takes.
    "signing scheme" SigningScheme {
        /// HMAC-SHA256 with a shared secret.
        V1 = "v1",
        /// ed25519 with a key pair.
        V1a = "v1a",
    }
}

/// What this node's configuration says of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// It is there, with this state and cause.
    State(EndpointState, Option<StateCause>),
    /// It was deleted.
    Deleted,
    /// This node has not heard of it: its configuration may be older than the row.
    Unknown,
}

/// What is to be done with a pending row of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Send it when it is due.
    Send,
    /// Park it for this reason.
    Park(Why),
    /// It is dead.
    Die(Cause),
    /// It is cancelled.
    Cancel,
    /// Leave it until the configuration is known.
    Wait,
}

/// What a pending row means by its endpoint.
#[must_use]
pub const fn treatment(known: Known) -> Treatment {
    match known {
        Known::State(EndpointState::Enabled, _) => Treatment::Send,
        Known::State(EndpointState::Paused, _) => Treatment::Park(Why::Paused),
        Known::State(EndpointState::Disabled, Some(StateCause::Gone)) => {
            Treatment::Die(Cause::Gone)
        }
        Known::State(EndpointState::Disabled, Some(StateCause::Failing) | None) => {
            Treatment::Park(Why::Disabled)
        }
        Known::Deleted => Treatment::Cancel,
        Known::Unknown => Treatment::Wait,
    }
}

/// True for a status that an endpoint may call fatal: 400 to 599 but 408, 410 and 429.
#[must_use]
pub const fn may_be_fatal(status: u16) -> bool {
    matches!(status, 400..=599) && !matches!(status, 408 | 410 | 429)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_of_an_endpoint_means_one_thing_for_what_waits() {
        let by_state = |state, cause| treatment(Known::State(state, cause));
        assert_eq!(by_state(EndpointState::Enabled, None), Treatment::Send);
        assert_eq!(
            by_state(EndpointState::Paused, None),
            Treatment::Park(Why::Paused)
        );
        assert_eq!(
            by_state(EndpointState::Disabled, None),
            Treatment::Park(Why::Disabled)
        );
        assert_eq!(
            by_state(EndpointState::Disabled, Some(StateCause::Failing)),
            Treatment::Park(Why::Disabled)
        );
        assert_eq!(
            by_state(EndpointState::Disabled, Some(StateCause::Gone)),
            Treatment::Die(Cause::Gone)
        );
        assert_eq!(treatment(Known::Deleted), Treatment::Cancel);
        assert_eq!(treatment(Known::Unknown), Treatment::Wait);
    }

    #[test]
    fn the_statuses_that_may_be_fatal_leave_out_the_three_with_a_meaning_of_their_own() {
        let fatal = (0..=u16::MAX)
            .filter(|&status| may_be_fatal(status))
            .count();
        assert_eq!(fatal, crate::limits::FATAL_STATUSES);
        for status in [200, 302, 399, 408, 410, 429, 600] {
            assert!(!may_be_fatal(status), "{status}");
        }
    }
}

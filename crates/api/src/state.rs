//! What every handler may reach.

use std::sync::Arc;

use posthorn_domain::address::EgressPolicy;
use posthorn_domain::retention::Days;
use posthorn_domain::seal::KeyRing;
use posthorn_store::accept::Acceptor;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::configure::Sealer;
use posthorn_store::database::Database;
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::key_use::KeyUses;
use posthorn_store::test_send::TestSends;

use crate::refusals::Refusals;

/// The parts that the API is made of.
pub struct ApiParts {
    /// Reads and changes of tenants' rows.
    pub database: Database,
    /// Keys and endpoints in memory.
    pub cache: ConfigCache,
    /// Where events go.
    pub acceptor: Acceptor,
    /// Which targets are forbidden.
    pub egress: Arc<EgressPolicy>,
    /// What seals secrets.
    pub ring: Arc<KeyRing>,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub entropy: Entropy,
    /// Rung when a replay made something due.
    pub due: DueHint,
    /// Where uses of keys are noted.
    pub key_uses: KeyUses,
    /// How long dead letters are kept.
    pub dead_letters: Days,
    /// Who sends tests of endpoints.
    pub test_sends: TestSends,
    /// Where the server is reached from outside, without a slash at the end, for the examples of the reference.
    pub public_url: String,
}

/// [`ApiParts`], shared by all requests. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    parts: Arc<ApiParts>,
    refusals: Arc<Refusals>,
}

impl ApiState {
    /// Shares the parts.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        Self {
            parts: Arc::new(parts),
            refusals: Arc::default(),
        }
    }

    pub(crate) fn database(&self) -> &Database {
        &self.parts.database
    }

    pub(crate) fn cache(&self) -> &ConfigCache {
        &self.parts.cache
    }

    pub(crate) fn dead_letters(&self) -> Days {
        self.parts.dead_letters
    }

    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.parts.acceptor
    }

    pub(crate) fn egress(&self) -> &EgressPolicy {
        &self.parts.egress
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.parts.clock
    }

    pub(crate) fn entropy(&self) -> Entropy {
        self.parts.entropy
    }

    pub(crate) fn key_uses(&self) -> &KeyUses {
        &self.parts.key_uses
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub(crate) fn due(&self) -> &DueHint {
        &self.parts.due
    }

    pub(crate) fn test_sends(&self) -> &TestSends {
        &self.parts.test_sends
    }

    pub(crate) fn public_url(&self) -> &str {
        &self.parts.public_url
    }

    /// Brings the configuration in memory up to a change that was just committed. Should the database go away in
    /// between, the change stands and the next poll brings it; matching never trusts an older version (INV-12).
    pub(crate) async fn catch_up(&self) {
        if let Err(error) = self.parts.cache.refresh().await {
            tracing::warn!(%error, "the configuration was changed, but could not be read back yet");
        }
    }

    pub(crate) fn sealer(&self) -> Sealer<'_> {
        Sealer {
            ring: &self.parts.ring,
            clock: &self.parts.clock,
            entropy: self.parts.entropy,
        }
    }
}

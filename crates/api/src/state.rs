//! What every handler may reach.

use std::sync::Arc;

use posthorn_domain::address::EgressPolicy;
use posthorn_domain::seal::KeyRing;
use posthorn_store::accept::Acceptor;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::configure::Sealer;
use posthorn_store::database::Database;
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::key_use::KeyUses;

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
    /// Where the server is reached from outside, without a slash at the end, for the examples of the reference.
    pub public_url: String,
}

/// [`ApiParts`], shared by all requests. Cheap to clone.
#[derive(Clone)]
pub struct ApiState(Arc<ApiParts>);

impl ApiState {
    /// Shares the parts.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    pub(crate) fn cache(&self) -> &ConfigCache {
        &self.0.cache
    }

    pub(crate) fn acceptor(&self) -> &Acceptor {
        &self.0.acceptor
    }

    pub(crate) fn egress(&self) -> &EgressPolicy {
        &self.0.egress
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub(crate) fn entropy(&self) -> Entropy {
        self.0.entropy
    }

    pub(crate) fn key_uses(&self) -> &KeyUses {
        &self.0.key_uses
    }

    pub(crate) fn due(&self) -> &DueHint {
        &self.0.due
    }

    pub(crate) fn public_url(&self) -> &str {
        &self.0.public_url
    }

    /// Brings the configuration in memory up to a change that was just committed. Should the database go away in
    /// between, the change stands and the next poll brings it; matching never trusts an older version (INV-12).
    pub(crate) async fn catch_up(&self) {
        if let Err(error) = self.0.cache.refresh().await {
            tracing::warn!(%error, "the configuration was changed, but could not be read back yet");
        }
    }

    pub(crate) fn sealer(&self) -> Sealer<'_> {
        Sealer {
            ring: &self.0.ring,
            clock: &self.0.clock,
            entropy: self.0.entropy,
        }
    }
}

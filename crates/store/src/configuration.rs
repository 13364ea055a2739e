//! The configuration in memory: who may call, which endpoints there are, what each wants.
//!
//! A [`Snapshot`] is immutable and shared; [`ConfigCache::refresh`] replaces it by one that is as new as
//! the database's. What makes a change take force before the request that made it is answered (INV-12) is not
//! this cache but the flush, which writes nothing that was matched against an older version.

mod load;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, Utc};
use posthorn_domain::api_key::Environment;
use posthorn_domain::body::BodyForm;
use posthorn_domain::compat::Compat;
use posthorn_domain::content_type::ContentType;
use posthorn_domain::endpoint::{EndpointState, KeepResponses};
use posthorn_domain::event_type::{EventType, EventTypePattern};
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, IdMap, KeyId, TenantId};
use posthorn_domain::rate::RateLimit;
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::scope::Scope;
use posthorn_domain::seal::KeyRing;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature_headers::SignatureHeaders;
use posthorn_domain::url::EndpointUrl;
use tokio::sync::Mutex;

use crate::database::{Database, DatabaseError};

pub(crate) use self::load::{associated_data, compat_data};

/// A signing secret and how long it signs.
pub struct LiveSecret {
    /// The opened secret.
    pub secret: SigningSecret,
    /// From here on it no longer signs; `None`: in force.
    pub retires_at: Option<DateTime<Utc>>,
}

/// What an endpoint's requests are signed with besides, or under other names.
pub struct Signing {
    /// The names of the headers.
    pub headers: SignatureHeaders,
    /// A further signature in the form of others.
    pub compat: Option<Compat>,
}

/// One endpoint, ready to be sent to.
pub struct EndpointConfig {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its id.
    pub id: EndpointId,
    /// Where requests go.
    pub url: EndpointUrl,
    /// Headers of its own, opened.
    pub headers: CustomHeaders,
    /// When a failed attempt is followed by another.
    pub retry_policy: RetryPolicy,
    /// Every delivery's end, counted from accept.
    pub max_age: Duration,
    /// One deadline over connect, headers and body.
    pub timeout: Duration,
    /// Statuses that end a delivery at once.
    pub fatal_statuses: Vec<u16>,
    /// What its requests carry.
    pub body: BodyForm,
    /// Which answers are kept.
    pub keep_responses: KeepResponses,
    /// What people set.
    pub state: EndpointState,
    /// The secrets that sign, newest first.
    pub secrets: Vec<LiveSecret>,
    /// What the signatures' headers are called and what signs besides; `None`: as Standard Webhooks says, and nothing, which is
    /// so for almost all.
    pub signing: Option<Box<Signing>>,
    /// Names the row of `endpoint_versions` that attempts refer to.
    pub config_seq: i64,
}

/// An endpoint of a snapshot: ready, or why it cannot be sent to.
///
/// A row that cannot be read (a secret sealed by a key that is gone) must not stop its siblings: it is
/// matched as before, and its attempts fail with the kind `config`.
pub struct EndpointEntry {
    /// Its id.
    pub id: EndpointId,
    /// What it listens to.
    pub patterns: Vec<EventTypePattern>,
    /// What people set.
    pub state: EndpointState,
    /// As `EndpointConfig::max_age`, for those that are not ready, too.
    pub max_age: Duration,
    /// As `EndpointConfig::retry_policy`; the default policy where the row's cannot be read.
    pub retry_policy: RetryPolicy,
    /// How many requests may start; `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// How many requests may be under way over all nodes; `None`: [`posthorn_domain::limits::IN_FLIGHT_PER_ENDPOINT`]
    /// on each.
    pub max_in_flight: Option<u32>,
    /// What its requests carry: an event that they cannot is not for it.
    pub body: BodyForm,
    /// Names the row of `endpoint_versions`.
    pub config_seq: i64,
    /// Ready, or the reason in words that name no secret.
    pub config: Result<EndpointConfig, String>,
}

impl EndpointEntry {
    /// Whether it has a limit that holds exactly, over all nodes: one node alone sends to it, the owner of its shard.
    #[must_use]
    pub const fn is_strict(&self) -> bool {
        self.rate_limit.is_some() || self.max_in_flight.is_some()
    }
}

/// An API key, known by its hash alone.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// Its id.
    pub id: KeyId,
    /// The tenant it acts in.
    pub tenant: TenantId,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Refused from here on.
    pub expires_at: Option<DateTime<Utc>>,
}

/// One tenant with its endpoints.
pub struct TenantConfig {
    /// Its id.
    pub id: TenantId,
    /// Its name.
    pub name: String,
    /// Live or test.
    pub environment: Environment,
    /// The SHA-256 of its keys' texts, to find them again when the tenant is replaced.
    key_hashes: Vec<[u8; 32]>,
    endpoints: IdMap<EndpointId, Arc<EndpointEntry>>,
    /// Endpoints by the one type they name, and those with wildcards, so that an exact type scans no others.
    exact: HashMap<String, Vec<EndpointId>>,
    wild: Vec<(EventTypePattern, EndpointId)>,
    /// Some endpoint is strict.
    has_strict: bool,
}

impl TenantConfig {
    /// One of its endpoints.
    #[must_use]
    pub fn endpoint(&self, id: EndpointId) -> Option<&Arc<EndpointEntry>> {
        self.endpoints.get(&id)
    }

    /// Whether one of its endpoints is strict: where none is, nobody asks whose an endpoint's shard is.
    #[must_use]
    pub const fn has_strict(&self) -> bool {
        self.has_strict
    }

    /// Its endpoints that want events of this type and can be sent such payloads, each once, in the order of their ids: enabled
    /// and paused ones; a disabled one is not matched.
    #[must_use]
    pub fn matching(&self, event_type: &EventType, content_type: &ContentType) -> Vec<EndpointId> {
        let exact = self
            .exact
            .get(event_type.as_str())
            .into_iter()
            .flatten()
            .copied();
        let wild = self
            .wild
            .iter()
            .filter(|(pattern, _)| pattern.matches(event_type))
            .map(|(_, id)| *id);
        let mut matched: Vec<_> = exact.chain(wild).collect();
        matched.sort_unstable();
        matched.dedup();
        // Whatever the form, JSON can be sent in it: nearly no event comes here.
        if !content_type.is_json() {
            matched.retain(|id| {
                let endpoint = self.endpoints.get(id);
                endpoint.is_some_and(|endpoint| endpoint.body.carries(content_type))
            });
        }
        matched
    }
}

/// The configuration of one version.
#[derive(Default)]
pub struct Snapshot {
    seq: i64,
    tenants: IdMap<TenantId, Arc<TenantConfig>>,
    keys: HashMap<[u8; 32], Arc<KeyRecord>>,
}

impl Snapshot {
    /// Its version: the `config_head.seq` that it was loaded with.
    #[must_use]
    pub const fn seq(&self) -> i64 {
        self.seq
    }

    /// The key with this SHA-256, if it was not revoked.
    #[must_use]
    pub fn key(&self, hash: &[u8; 32]) -> Option<&Arc<KeyRecord>> {
        self.keys.get(hash)
    }

    /// A tenant that was not deleted.
    #[must_use]
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<TenantConfig>> {
        self.tenants.get(&id)
    }

    /// An endpoint that was not deleted.
    #[must_use]
    pub fn endpoint(&self, tenant: TenantId, id: EndpointId) -> Option<&Arc<EndpointEntry>> {
        self.tenants.get(&tenant)?.endpoint(id)
    }
}

/// The present snapshot and the way to a newer one. Cheap to clone.
#[derive(Clone)]
pub struct ConfigCache {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    ring: Arc<KeyRing>,
    present: ArcSwap<Snapshot>,
    /// One load at a time: a later one would only find less to do.
    loading: Mutex<()>,
}

impl ConfigCache {
    /// An empty cache: nobody may call and nothing matches until the first [`ConfigCache::reload`].
    #[must_use]
    pub fn new(database: Database, ring: Arc<KeyRing>) -> Self {
        let present = ArcSwap::from_pointee(Snapshot::default());
        Self {
            inner: Arc::new(Inner {
                database,
                ring,
                present,
                loading: Mutex::new(()),
            }),
        }
    }

    /// The ids of the master keys that it opens with, the one that seals first.
    pub(crate) fn master_keys(&self) -> Vec<String> {
        self.inner.ring.ids().map(str::to_owned).collect()
    }

    /// The present snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.inner.present.load_full()
    }

    /// Catches up with the database: the tenants that changed, or everything where the log of changes no
    /// longer reaches back. Answers the version that is then in force.
    ///
    /// # Errors
    /// When the database does not answer; the present snapshot stays.
    pub async fn refresh(&self) -> Result<i64, DatabaseError> {
        let _one = self.inner.loading.lock().await;
        let present = self.snapshot();
        let newer = load::newer(&self.inner.database, &self.inner.ring, &present).await?;
        Ok(self.keep(present.seq, newer))
    }

    /// Loads everything, as each new stream does before its first flush.
    ///
    /// # Errors
    /// When the database does not answer; the present snapshot stays.
    pub async fn reload(&self) -> Result<i64, DatabaseError> {
        let _one = self.inner.loading.lock().await;
        let all = load::all(&self.inner.database, &self.inner.ring).await?;
        Ok(self.keep(-1, Some(all)))
    }

    fn keep(&self, present: i64, newer: Option<Snapshot>) -> i64 {
        let Some(newer) = newer else { return present };
        let seq = newer.seq;
        self.inner.present.store(Arc::new(newer));
        seq
    }
}

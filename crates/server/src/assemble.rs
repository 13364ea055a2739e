//! The wiring of one node: which part gets what, and in which order they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use posthorn_api::{ApiParts, ApiState};
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::limits;
use posthorn_domain::retention::Retention;
use posthorn_domain::seal::KeyRing;
use posthorn_egress::{Egress, EgressError, EgressOptions};
use posthorn_store::accept::{Acceptor, AcceptorParts};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseOptions};
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::key_use::KeyUses;
use posthorn_store::shards::Shards;
use posthorn_store::stream::{Sending, StreamKeeper};
use posthorn_worker::{Worker, WorkerParts};
use tokio::sync::mpsc;

use crate::settings::{PublicUrl, Role};

/// Everything that the parts are made from.
pub(crate) struct Parts {
    /// How the pools connect.
    pub(crate) database: DatabaseOptions,
    /// Opens and seals secrets.
    pub(crate) ring: KeyRing,
    /// Time.
    pub(crate) clock: Clock,
    /// Randomness.
    pub(crate) entropy: Entropy,
    /// What may be reached, without our own listeners.
    pub(crate) egress: EgressPolicy,
    /// Whose certificates are trusted, beside the public ones.
    pub(crate) egress_roots: Option<Vec<u8>>,
    /// How long things are kept.
    pub(crate) retention: Retention,
    /// The origin that browsers may call from.
    pub(crate) public_url: PublicUrl,
    /// What this node does.
    pub(crate) roles: BTreeSet<Role>,
}

/// The running parts of a node.
pub(crate) struct Engine {
    router: Router,
    keeper: Arc<StreamKeeper>,
    database: Database,
    acceptor: Acceptor,
    worker: Worker,
}

impl Engine {
    /// Opens the stream, starts the worker, and makes the API and the console as the roles say.
    ///
    /// # Errors
    /// When a part does not start.
    pub(crate) async fn start(parts: Parts) -> anyhow::Result<Self> {
        let Parts {
            database,
            ring,
            clock,
            entropy,
            egress,
            egress_roots,
            retention,
            public_url,
            roles,
        } = parts;
        let client = guarded(egress.clone(), egress_roots)?;
        let database = Database::new(database);
        let ring = Arc::new(ring);
        let cache = ConfigCache::new(database.clone(), Arc::clone(&ring));
        let name = format!("{}:{}", std::process::id(), public_url.origin());
        let parts = (database.clone(), cache.clone(), clock.clone(), entropy);
        let keeper = opened(parts, name, sending(&roles)).await?;
        let due = DueHint::default();
        let key_uses = KeyUses::default();
        let (fresh_in, fresh) = mpsc::channel(limits::FRESH_EVENTS);
        let shards = Shards::new(Arc::clone(&keeper));
        let (acceptor, batcher) = Acceptor::new(AcceptorParts {
            database: database.clone(),
            cache: cache.clone(),
            keeper: Arc::clone(&keeper),
            shards: shards.clone(),
            clock: clock.clone(),
            dispatch: fresh_in,
            due: due.clone(),
        });
        let worker = Worker::start(WorkerParts {
            database: database.clone(),
            cache: cache.clone(),
            keeper: Arc::clone(&keeper),
            shards,
            clock: clock.clone(),
            entropy,
            egress: client,
            retention,
            hint: due.clone(),
            key_uses: key_uses.clone(),
            batcher,
            fresh,
        });
        let api = ApiParts {
            database: database.clone(),
            cache,
            acceptor: acceptor.clone(),
            egress: Arc::new(egress),
            ring,
            clock,
            entropy,
            due,
            key_uses,
            public_url: public_url.origin().to_owned(),
        };
        Ok(Self {
            router: router(&roles, api),
            keeper,
            database,
            acceptor,
            worker,
        })
    }

    /// What the listener serves.
    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    /// This node's stream, for those who ask whether it may accept and send.
    pub(crate) fn keeper(&self) -> Arc<StreamKeeper> {
        Arc::clone(&self.keeper)
    }

    /// Hands over what waits, lets go of the stream, closes the pools. Requests must have ended.
    pub(crate) async fn shutdown(self) {
        self.acceptor.stop();
        self.worker.shutdown().await;
        self.database.close().await;
    }
}

/// The first stream of the node.
async fn opened(
    (database, cache, clock, entropy): (Database, ConfigCache, Clock, Entropy),
    name: String,
    sending: Sending,
) -> anyhow::Result<Arc<StreamKeeper>> {
    let keeper = StreamKeeper::new(database, cache, clock, entropy, name, sending);
    keeper
        .reopen(None)
        .await
        .context("no stream could be opened")?;
    Ok(Arc::new(keeper))
}

/// A node without the role worker hands over whatever it accepts.
fn sending(roles: &BTreeSet<Role>) -> Sending {
    if roles.contains(&Role::Worker) {
        Sending::Here
    } else {
        Sending::Elsewhere
    }
}

/// The client that endpoints are reached through.
fn guarded(policy: EgressPolicy, extra_roots: Option<Vec<u8>>) -> Result<Egress, EgressError> {
    let options = EgressOptions {
        extra_roots,
        ..EgressOptions::default()
    };
    Egress::new(policy, &options)
}

/// The pages of this node's roles.
fn router(roles: &BTreeSet<Role>, api: ApiParts) -> Router {
    let mut router = Router::new();
    if roles.contains(&Role::Console) {
        router = router.merge(posthorn_console::router());
    }
    if roles.contains(&Role::Api) {
        router = router.merge(posthorn_api::router(ApiState::new(api)));
    }
    router
}

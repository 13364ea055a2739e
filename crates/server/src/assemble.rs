//! The wiring of one node: which part gets what, and in which order they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use posthorn_api::{ApiParts, ApiState, Submissions};
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::limits;
use posthorn_domain::retention::Retention;
use posthorn_domain::seal::KeyRing;
use posthorn_domain::shutdown::Deadline;
use posthorn_egress::{Egress, EgressOptions};
use posthorn_store::accept::{Acceptor, AcceptorParts, Backpressure};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseOptions};
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::key_use::KeyUses;
use posthorn_store::master_key;
use posthorn_store::shards::Shards;
use posthorn_store::stream::{Sending, StreamKeeper};
use posthorn_store::test_send::TestSends;
use posthorn_worker::{Worker, WorkerParts};
use tokio::sync::mpsc;

use crate::sending::SendingThreads;
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
    /// How it is reached.
    pub(crate) egress_options: EgressOptions,
    /// How long things are kept.
    pub(crate) retention: Retention,
    /// The origin that browsers may call from.
    pub(crate) public_url: PublicUrl,
    /// What this node does.
    pub(crate) roles: BTreeSet<Role>,
}

/// What a node serves, beside probes and metrics.
#[derive(Clone)]
pub(crate) struct Pages {
    /// Everything.
    pub(crate) router: Router,
    /// The shorter way of submissions, on a node with the role api.
    pub(crate) submissions: Option<Submissions>,
}

/// The running parts of a node.
pub(crate) struct Engine {
    pages: Pages,
    keeper: Arc<StreamKeeper>,
    database: Database,
    acceptor: Acceptor,
    worker: Worker,
    /// Last: connections to the database that they opened are of their runtime.
    _sending: SendingThreads,
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
            retention,
            ..
        } = parts;
        let client = Egress::new(egress.clone(), &parts.egress_options)?;
        let (database, ring) = (Database::new(database), Arc::new(ring));
        let cache = ConfigCache::new(database.clone(), Arc::clone(&ring));
        let known = (database.clone(), cache.clone(), clock.clone(), entropy);
        let keeper = opened(known, &ring, &parts.public_url, sending(&parts.roles)).await?;
        let threads = SendingThreads::start(keeper.sending()).context("no threads to send with")?;
        let (due, key_uses) = (DueHint::default(), KeyUses::default());
        let (fresh_in, fresh) = mpsc::channel(limits::FRESH_EVENTS);
        let (shards, backpressure) = (Shards::new(Arc::clone(&keeper)), Backpressure::default());
        let (test_sends, tests) = TestSends::new();
        let (acceptor, batcher) = Acceptor::new(AcceptorParts {
            database: database.clone(),
            cache: cache.clone(),
            keeper: Arc::clone(&keeper),
            shards: shards.clone(),
            clock: clock.clone(),
            dispatch: fresh_in,
            due: due.clone(),
            backpressure: backpressure.clone(),
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
            backpressure,
            tests,
            sending: threads.handle(),
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
            dead_letters: retention.dead_letters,
            test_sends,
            public_url: parts.public_url.origin().to_owned(),
        };
        Ok(Self {
            pages: pages(&parts.roles, api),
            keeper,
            database,
            acceptor,
            worker,
            _sending: threads,
        })
    }

    /// What the listener serves.
    pub(crate) fn pages(&self) -> Pages {
        self.pages.clone()
    }

    /// This node's stream, for those who ask whether it may accept and send.
    pub(crate) fn keeper(&self) -> Arc<StreamKeeper> {
        Arc::clone(&self.keeper)
    }

    /// Hands over what waits, lets go of the stream, closes the pools, all of it by the deadline. Requests must have ended.
    pub(crate) async fn shutdown(self, deadline: Deadline, clock: &Clock) {
        self.acceptor.stop();
        self.worker.shutdown(deadline).await;
        let left = deadline.left(limits::SHUTDOWN_CLOSE, clock.monotonic());
        self.database.close_within(left).await;
    }
}

/// The first stream of the node.
async fn opened(
    (database, cache, clock, entropy): (Database, ConfigCache, Clock, Entropy),
    ring: &KeyRing,
    public_url: &PublicUrl,
    sending: Sending,
) -> anyhow::Result<Arc<StreamKeeper>> {
    let name = format!("{}:{}", std::process::id(), public_url.origin());
    let keeper = StreamKeeper::new(database.clone(), cache, clock, entropy, name, sending);
    keeper
        .reopen(None)
        .await
        .context("no stream could be opened")?;
    // Once more, now that the stream tells which keys this node has: whoever lets go of one looks at that.
    master_key::prove_again(&database, ring, entropy.bytes()).await?;
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

/// The pages of this node's roles.
fn pages(roles: &BTreeSet<Role>, api: ApiParts) -> Pages {
    let mut router = Router::new();
    let mut submissions = None;
    if roles.contains(&Role::Console) {
        router = router.merge(posthorn_console::router());
    }
    if roles.contains(&Role::Api) {
        let state = ApiState::new(api);
        router = router.merge(posthorn_api::router(state.clone()));
        submissions = Some(Submissions::new(state));
    }
    Pages {
        router,
        submissions,
    }
}

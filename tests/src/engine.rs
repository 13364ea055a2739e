//! One node's engine inside the test's own process, its loops by the clock left to the test.
//!
//! What runs by itself: accept's flushes, dispatch, record, and the renewal of the lease. What a test steps through: the due
//! timer, the sweep over parked rows, recovery. So a test moves the time in the database and calls a step; nothing sleeps.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::TenantId;
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::retention::Retention;
use posthorn_domain::shutdown::Deadline;
use posthorn_egress::{Egress, EgressOptions};
use posthorn_store::accept::{
    AcceptError, Accepted, Acceptor, AcceptorParts, Backpressure, Batcher, FreshEvent, NewEvent,
};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::Database;
use posthorn_store::drive::drive;
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::health::HealthCache;
use posthorn_store::key_use::KeyUses;
use posthorn_store::record::RecordWriter;
use posthorn_store::shards::Shards;
use posthorn_store::stream::{Sending, StreamKeeper};
use posthorn_store::test_send::TestSends;
use posthorn_worker::{
    CircuitParts, Circuits, Dispatcher, DueTimer, Keeping, KeepingParts, Loader, Parking,
    ParkingParts, Recorder, Recovery, Sender, SenderParts, WorkerParts,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::tenants::ring;
use crate::wait::until;

/// How long anything may take on a machine that is busy with other things.
pub const AMPLE: Duration = Duration::from_secs(30);

/// What of a node runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Accept, dispatch, record and the lease.
    All,
    /// Accept and the lease: what is accepted is never sent.
    AcceptOnly,
    /// Accept, dispatch and record: the lease is renewed when a test says so.
    WithoutLease,
}

/// A node up to the point where its engine starts.
pub struct Parts {
    /// Its connections.
    pub database: Database,
    /// Its configuration, loaded when its stream was opened, and after that only when asked.
    pub cache: ConfigCache,
    /// Its stream, open.
    pub keeper: Arc<StreamKeeper>,
    /// The shards that it owns; none yet.
    pub shards: Shards,
    /// Rung when something is due.
    pub due: DueHint,
    /// The database's time.
    pub clock: Clock,
    /// The caller's side of accept.
    pub acceptor: Acceptor,
    batcher: Batcher,
    fresh: mpsc::Receiver<FreshEvent>,
    /// What the dispatcher tells accept of endpoints that are behind.
    pub backpressure: Backpressure,
}

impl Parts {
    /// Opens a stream of a node that sends.
    pub async fn open(database: Database) -> Self {
        Self::open_as(database, Sending::Here).await
    }

    /// Opens a stream.
    pub async fn open_as(database: Database, sending: Sending) -> Self {
        let clock = Clock::start();
        let cache = ConfigCache::new(database.clone(), ring());
        let keeper = Arc::new(StreamKeeper::new(
            database.clone(),
            cache.clone(),
            clock.clone(),
            Entropy,
            "test".to_owned(),
            sending,
        ));
        keeper.reopen(None).await.unwrap();
        let (dispatch, fresh) = mpsc::channel(limits::FRESH_EVENTS);
        let shards = Shards::new(Arc::clone(&keeper));
        let due = DueHint::default();
        let backpressure = Backpressure::default();
        let (acceptor, batcher) = Acceptor::new(AcceptorParts {
            database: database.clone(),
            cache: cache.clone(),
            keeper: Arc::clone(&keeper),
            shards: shards.clone(),
            clock: clock.clone(),
            dispatch,
            due: due.clone(),
            backpressure: backpressure.clone(),
        });
        Self {
            database,
            cache,
            keeper,
            shards,
            due,
            clock,
            acceptor,
            batcher,
            fresh,
            backpressure,
        }
    }

    /// For the whole engine as the program starts it.
    #[must_use]
    pub fn whole(self) -> WorkerParts {
        WorkerParts {
            database: self.database,
            cache: self.cache,
            keeper: self.keeper,
            shards: self.shards,
            clock: self.clock,
            entropy: Entropy,
            egress: egress(),
            retention: Retention::default(),
            hint: self.due,
            key_uses: KeyUses::default(),
            batcher: self.batcher,
            fresh: self.fresh,
            backpressure: self.backpressure,
            tests: TestSends::new().1,
            sending: Handle::current(),
        }
    }
}

/// The whole budget of a node that stops, from now on.
#[must_use]
pub fn in_order() -> Deadline {
    Deadline::begun(Clock::start().monotonic())
}

/// A client that may send to the loopback.
#[must_use]
pub fn egress() -> Egress {
    let policy = EgressPolicy::parse("127.0.0.0/8").unwrap();
    Egress::new(policy, &EgressOptions::default()).unwrap()
}

/// A running node.
pub struct Node {
    /// Its connections.
    pub database: Database,
    /// Its configuration; it is not polled.
    pub cache: ConfigCache,
    /// What it knows of endpoints that are not well; it is not polled.
    pub health: HealthCache,
    /// Its stream.
    pub keeper: Arc<StreamKeeper>,
    /// Its time.
    pub clock: Clock,
    /// The caller's side of accept.
    pub acceptor: Acceptor,
    /// Its queues.
    pub dispatcher: Arc<Dispatcher>,
    /// What these tell of endpoints that are behind.
    pub backpressure: Backpressure,
    /// The due timer.
    pub due: DueTimer,
    /// The sweep over parked rows.
    pub parking: Parking,
    /// The shards that it owns.
    pub shards: Shards,
    /// The lease.
    pub keeping: Arc<Keeping>,
    /// Recovery.
    pub recovery: Recovery,
    /// What was accepted and is not sent, where nothing dispatches.
    pub unsent: Option<mpsc::Receiver<FreshEvent>>,
    /// Ends with this.
    _tasks: JoinSet<()>,
}

impl Node {
    /// A node over these connections.
    pub async fn start(database: Database, runs: Runs) -> Self {
        Self::start_from(Parts::open(database).await, runs).await
    }

    /// A node that accepts and does not send.
    pub async fn start_accepting(database: Database) -> Self {
        let parts = Parts::open_as(database, Sending::Elsewhere).await;
        Self::start_from(parts, Runs::WithoutLease).await
    }

    async fn start_from(parts: Parts, runs: Runs) -> Self {
        let Parts {
            database,
            cache,
            keeper,
            shards,
            due,
            clock,
            acceptor,
            batcher,
            fresh,
            backpressure,
        } = parts;
        let (health, circuits) = circuits(&database, &cache, &shards, &clock).await;
        let dispatcher = Dispatcher::new(
            clock.clone(),
            cache.clone(),
            Arc::clone(&circuits),
            Arc::clone(&keeper),
            shards.clone(),
            backpressure.clone(),
        );
        let dispatcher = Arc::new(dispatcher);
        let mut tasks = JoinSet::new();
        tasks.spawn(batcher.run(CancellationToken::new()));
        let sending = (&circuits, &dispatcher);
        let unsent = if runs == Runs::AcceptOnly {
            Some(fresh)
        } else {
            dispatch(
                &mut tasks, &database, &cache, &clock, sending, &shards, fresh,
            );
            None
        };
        let keeping = keeping(&database, &keeper, &clock, &shards, &dispatcher);
        // Takes the shards up.
        keeping.run_once().await;
        if runs != Runs::WithoutLease {
            tasks.spawn(renew(clock.clone(), Arc::clone(&keeping)));
        }
        let parking = ParkingParts {
            database: database.clone(),
            cache: cache.clone(),
            circuits,
            dispatcher: Arc::clone(&dispatcher),
            shards: shards.clone(),
            clock: clock.clone(),
        };
        Self {
            due: DueTimer::new(
                database.clone(),
                Arc::clone(&dispatcher),
                shards.clone(),
                clock.clone(),
            ),
            parking: Parking::new(parking),
            shards,
            recovery: Recovery::new(database.clone(), due),
            database,
            cache,
            health,
            keeper,
            clock,
            acceptor,
            dispatcher,
            backpressure,
            keeping,
            unsent,
            _tasks: tasks,
        }
    }

    /// Submits an event of the type `order.paid` with this payload.
    ///
    /// # Errors
    ///
    /// As the caller is answered.
    pub async fn submit(
        &self,
        tenant: TenantId,
        payload: impl Into<Bytes>,
    ) -> Result<Accepted, AcceptError> {
        self.acceptor.accept(event(tenant, payload)).await
    }

    /// The same, where it must be accepted.
    pub async fn accept(&self, tenant: TenantId, payload: impl Into<Bytes>) -> Accepted {
        self.submit(tenant, payload).await.unwrap()
    }

    /// Waits until this node holds no delivery: what it sent is on record.
    pub async fn settled(&self) {
        until("the node to hold no delivery", AMPLE, || async {
            (self.dispatcher.load() == (0, 0)).then_some(())
        })
        .await;
    }
}

/// An event of the type `order.paid`.
#[must_use]
pub fn event(tenant: TenantId, payload: impl Into<Bytes>) -> NewEvent {
    NewEvent {
        tenant,
        event_type: EventType::parse("order.paid").unwrap(),
        content_type: ContentType::JSON,
        payload: payload.into(),
        occurred_at: None,
        metadata: Metadata::default(),
        headers: CustomHeaders::default(),
        keys: None,
    }
}

async fn circuits(
    database: &Database,
    cache: &ConfigCache,
    shards: &Shards,
    clock: &Clock,
) -> (HealthCache, Arc<Circuits>) {
    let health = HealthCache::new(database.clone());
    health.refresh().await.unwrap();
    let circuits = Circuits::new(CircuitParts {
        database: database.clone(),
        cache: cache.clone(),
        health: health.clone(),
        shards: shards.clone(),
        clock: clock.clone(),
        entropy: Entropy,
    });
    (health, Arc::new(circuits))
}

fn dispatch(
    tasks: &mut JoinSet<()>,
    database: &Database,
    cache: &ConfigCache,
    clock: &Clock,
    (circuits, dispatcher): (&Arc<Circuits>, &Arc<Dispatcher>),
    shards: &Shards,
    fresh: mpsc::Receiver<FreshEvent>,
) {
    let writer = RecordWriter::new(database.clone());
    let (recorder, recording) = Recorder::new(writer, Arc::clone(dispatcher), clock.clone());
    let (loader, loading) = Loader::new(database.clone());
    let sender = Arc::new(Sender::new(SenderParts {
        database: database.clone(),
        loader,
        cache: cache.clone(),
        egress: egress(),
        clock: clock.clone(),
        entropy: Entropy,
        circuits: Arc::clone(circuits),
        dispatcher: Arc::clone(dispatcher),
        recorder: recorder.clone(),
        shards: shards.clone(),
    }));
    tasks.spawn(loading.run(CancellationToken::new()));
    let running = Arc::clone(dispatcher);
    tasks.spawn(recording.run());
    tasks.spawn(running.run(sender, recorder, fresh, CancellationToken::new()));
}

fn keeping(
    database: &Database,
    keeper: &Arc<StreamKeeper>,
    clock: &Clock,
    shards: &Shards,
    dispatcher: &Arc<Dispatcher>,
) -> Arc<Keeping> {
    Arc::new(Keeping::new(KeepingParts {
        database: database.clone(),
        keeper: Arc::clone(keeper),
        clock: clock.clone(),
        entropy: Entropy,
        shards: shards.clone(),
        dispatcher: Arc::clone(dispatcher),
    }))
}

async fn renew(clock: Clock, keeping: Arc<Keeping>) {
    let stop = CancellationToken::new();
    drive(&clock, limits::WATERMARK_EVERY, None, &stop, || async {
        keeping.run_once().await;
    })
    .await;
}

//! The engine of one node: its loops, in the order in which they start and stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits::{self, LONG_STEP, STEP};
use posthorn_domain::retention::Retention;
use posthorn_domain::shutdown::{Deadline, Share};
use posthorn_egress::Egress;
use posthorn_store::accept::{Backpressure, Batcher, FreshEvent};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseError, answered};
use posthorn_store::drive::drive;
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::health::HealthCache;
use posthorn_store::key_use::KeyUses;
use posthorn_store::lease;
use posthorn_store::record::RecordWriter;
use posthorn_store::shards::Shards;
use posthorn_store::stream::{Sending, StreamKeeper};
use posthorn_store::test_send::Asked;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::circuit::{CircuitParts, Circuits};
use crate::dispatch::Dispatcher;
use crate::housekeeping::{Housekeeping, HousekeepingParts};
use crate::park::{Parking, ParkingParts};
use crate::record::Recorder;
use crate::recover::{Keeping, KeepingParts, Recovery};
use crate::retry::DueTimer;
use crate::send::{Loader, Sender, SenderParts};
use crate::stall::Stalls;

/// Loops that come at least so often tell together when they do not get on; a rare one says each time.
const OFTEN: Duration = Duration::from_secs(5);

/// What the engine is made from.
pub struct WorkerParts {
    /// The database.
    pub database: Database,
    /// The configuration.
    pub cache: ConfigCache,
    /// This node's stream. Must be open already.
    pub keeper: Arc<StreamKeeper>,
    /// The shards that it owns.
    pub shards: Shards,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub entropy: Entropy,
    /// The guarded client.
    pub egress: Egress,
    /// How long things are kept.
    pub retention: Retention,
    /// Rung when a replay makes something due.
    pub hint: DueHint,
    /// Uses of keys that are to be written.
    pub key_uses: KeyUses,
    /// The accept side's loop.
    pub batcher: Batcher,
    /// What the batcher has made durable.
    pub fresh: mpsc::Receiver<FreshEvent>,
    /// What the accept side is told of endpoints that are behind.
    pub backpressure: Backpressure,
    /// Tests of endpoints that somebody asks for.
    pub tests: mpsc::Receiver<Asked>,
    /// Where deliveries run, with everything that moves them. The loop of the accept side, and the lease that both sides need,
    /// run where [`Worker::start`] is called: a burst of deliveries must not keep them waiting (INV-13).
    pub sending: Handle,
}

/// The running engine.
pub struct Worker {
    database: Database,
    keeper: Arc<StreamKeeper>,
    clock: Clock,
    entropy: Entropy,
    dispatcher: Arc<Dispatcher>,
    shards: Shards,
    batcher: Loop,
    dispatch: Loop,
    record: Loop,
    load: Loop,
    tests: Loop,
    timers: Vec<Loop>,
}

/// A task and the token that ends it.
struct Loop {
    name: &'static str,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Loop {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        on: &Handle,
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            name,
            task: on.spawn(run(stop.clone())),
            stop,
        }
    }

    /// Ends it, in order or, when it has had so long, where it stands.
    async fn end(mut self, within: Duration) {
        self.stop.cancel();
        match tokio::time::timeout(within, &mut self.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, part = self.name, "a loop of the engine ended by itself");
            }
            Err(_) => {
                self.task.abort();
                tracing::warn!(
                    part = self.name,
                    "cut short, for the node stops; what it leaves open is recovery's"
                );
            }
        }
    }
}

impl Worker {
    /// Starts all loops.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn start(parts: WorkerParts) -> Self {
        let WorkerParts {
            database,
            cache,
            keeper,
            shards,
            clock,
            entropy,
            egress,
            backpressure,
            sending,
            ..
        } = parts;
        let health = HealthCache::new(database.clone());
        let writer = RecordWriter::new(database.clone());
        let circuits = Arc::new(Circuits::new(CircuitParts {
            database: database.clone(),
            cache: cache.clone(),
            health: health.clone(),
            shards: shards.clone(),
            clock: clock.clone(),
            entropy,
        }));
        let known = (cache.clone(), Arc::clone(&circuits));
        let dispatcher = Arc::new(dispatcher(known, backpressure, &keeper, &shards, &clock));
        let (recorder, recording) = Recorder::new(writer, Arc::clone(&dispatcher), clock.clone());
        let (loader, loading) = Loader::new(database.clone());
        let sender = Arc::new(Sender::new(SenderParts {
            database: database.clone(),
            loader,
            cache: cache.clone(),
            egress,
            clock: clock.clone(),
            entropy,
            circuits: Arc::clone(&circuits),
            dispatcher: Arc::clone(&dispatcher),
            recorder: recorder.clone(),
            shards: shards.clone(),
        }));
        let tester = sender.tester();
        let timers = Timers {
            database: database.clone(),
            cache,
            keeper: Arc::clone(&keeper),
            clock: clock.clone(),
            entropy,
            health,
            circuits,
            dispatcher: Arc::clone(&dispatcher),
            hint: parts.hint,
            key_uses: parts.key_uses,
            shards: shards.clone(),
            retention: parts.retention,
            sending: sending.clone(),
        };
        let (running, here) = (Arc::clone(&dispatcher), Handle::current());
        let dispatch = |stop| running.run(sender, recorder, parts.fresh, stop);
        Self {
            batcher: Loop::spawn("flush", &here, |stop| parts.batcher.run(stop)),
            dispatch: Loop::spawn("dispatch", &sending, dispatch),
            record: Loop::spawn("record", &sending, |_| recording.run()),
            load: Loop::spawn("load", &sending, |stop| loading.run(stop)),
            tests: Loop::spawn("tests", &sending, |stop| tester.run(parts.tests, stop)),
            timers: timers.start(),
            database,
            keeper,
            clock,
            entropy,
            dispatcher,
            shards,
        }
    }

    /// Requests under way, and deliveries held in memory.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        self.dispatcher.load()
    }

    /// Ends in order: shards are given back as soon as nothing of theirs is under way, what is queued is flushed, what is
    /// not being sent goes to `pending`, what is out is awaited and recorded, and the stream is closed: as recovered only if
    /// nothing is open. Nobody may submit any more.
    ///
    /// All of it ends by the deadline, each stage by its share: what hangs is cut, and what it had in hand stays open.
    pub async fn shutdown(self, deadline: Deadline) {
        let clock = self.clock.clone();
        let left = |share: Share| deadline.left(share, clock.monotonic());
        self.shards.leave();
        self.batcher.end(left(limits::SHUTDOWN_FLUSH)).await;
        self.dispatch.stop.cancel();
        // Rows of `pending` that are not read yet stay there, and are not waited for.
        self.load.task.abort();
        // Those who asked for a test had their time to wait for it.
        self.tests.task.abort();
        self.dispatch.end(left(limits::SHUTDOWN_REQUESTS)).await;
        self.record.end(left(limits::SHUTDOWN_RECORD)).await;
        for timer in &self.timers {
            timer.stop.cancel();
        }
        let steps = left(limits::SHUTDOWN_STEPS);
        let timers: JoinSet<()> = self
            .timers
            .into_iter()
            .map(|timer| timer.end(steps))
            .collect();
        timers.join_all().await;
        self.keeper.retire();
        let Some(stream) = self.keeper.present() else {
            return;
        };
        let nothing_open = stream.open().is_empty();
        let watermark = stream
            .open()
            .watermark(self.clock.now(), self.entropy.bytes());
        let leaving = lease::leave(&self.database, stream.id(), watermark, nothing_open);
        match answered(left(limits::SHUTDOWN_LEAVE), leaving).await {
            Ok(()) => tracing::info!(stream = stream.id(), nothing_open, "left the stream"),
            Err(error) => {
                tracing::warn!(%error, "the stream could not be left in order; another node will adopt it");
            }
        }
    }
}

fn dispatcher(
    (cache, circuits): (ConfigCache, Arc<Circuits>),
    backpressure: Backpressure,
    keeper: &Arc<StreamKeeper>,
    shards: &Shards,
    clock: &Clock,
) -> Dispatcher {
    let (keeper, shards) = (Arc::clone(keeper), shards.clone());
    Dispatcher::new(clock.clone(), cache, circuits, keeper, shards, backpressure)
}

/// What the loops by the clock are made from.
struct Timers {
    database: Database,
    cache: ConfigCache,
    keeper: Arc<StreamKeeper>,
    clock: Clock,
    entropy: Entropy,
    health: HealthCache,
    circuits: Arc<Circuits>,
    dispatcher: Arc<Dispatcher>,
    hint: DueHint,
    key_uses: KeyUses,
    shards: Shards,
    retention: Retention,
    sending: Handle,
}

impl Timers {
    /// The loops of the node's roles: one that does not send looks for nothing to send, and leaves recovery to those that do.
    fn start(self) -> Vec<Loop> {
        let here = Driver {
            runtime: Handle::current(),
            clock: self.clock.clone(),
            stalls: Stalls::default(),
        };
        let sending = Driver {
            runtime: self.sending.clone(),
            ..here.clone()
        };
        let mut loops = vec![self.keeping(&here)];
        if self.keeper.sending() == Sending::Here {
            loops.extend(self.recovery_and_due(&sending));
            loops.extend(self.parking(&sending));
        }
        loops.extend(self.house(&sending));
        loops.extend(self.looking_after(&here));
        loops
    }

    /// The loops that nothing waits for.
    fn house(&self, driver: &Driver) -> [Loop; 2] {
        let alarm = Alarm::new(self.database.clone(), self.clock.clone());
        let housekeeping = Housekeeping::new(HousekeepingParts {
            database: self.database.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy,
            retention: self.retention,
        });
        let (looks, alarms) = (
            (limits::HOUSEKEEPING_LOOK, LONG_STEP),
            (limits::ALARM_EVERY, STEP),
        );
        [
            driver.every("housekeeping", looks, None, housekeeping, keep_the_house),
            driver.every("alarm", alarms, None, alarm, look),
        ]
    }

    /// The loops that move no delivery.
    fn looking_after(&self, driver: &Driver) -> [Loop; 2] {
        let known = (self.cache.clone(), self.health.clone());
        let uses = (self.key_uses.clone(), self.database.clone());
        let (poll, minute) = ((limits::CONFIG_POLL, STEP), (limits::KEY_USE_EVERY, STEP));
        [
            driver.every("configuration", poll, None, known, refresh),
            driver.every("use of keys", minute, None, uses, write_key_uses),
        ]
    }

    fn keeping(&self, driver: &Driver) -> Loop {
        let keeping = Keeping::new(KeepingParts {
            database: self.database.clone(),
            keeper: Arc::clone(&self.keeper),
            clock: self.clock.clone(),
            entropy: self.entropy,
            shards: self.shards.clone(),
            dispatcher: Arc::clone(&self.dispatcher),
        });
        let times = (limits::WATERMARK_EVERY, STEP);
        driver.every("lease", times, None, keeping, keep)
    }

    fn recovery_and_due(&self, driver: &Driver) -> [Loop; 3] {
        let recovery = Recovery::new(self.database.clone(), self.hint.clone());
        let due = Arc::new(DueTimer::new(
            self.database.clone(),
            Arc::clone(&self.dispatcher),
            self.shards.clone(),
            self.clock.clone(),
        ));
        let overfull = Some(due.overfull_hint());
        let (hint, poll) = (Some(self.hint.clone()), (limits::DUE_POLL, STEP));
        let times = (limits::WATERMARK_EVERY, LONG_STEP);
        [
            driver.every("recovery", times, None, recovery, take_up),
            driver.every("due", poll, hint, Arc::clone(&due), look_for_due),
            driver.every("overfull", times, overfull, due, park_overfull),
        ]
    }

    /// The sweep over parked rows, and the refilling of lanes that run low.
    fn parking(&self, driver: &Driver) -> [Loop; 2] {
        let low = Some(self.dispatcher.low_hint());
        let parking = Arc::new(Parking::new(ParkingParts {
            database: self.database.clone(),
            cache: self.cache.clone(),
            circuits: Arc::clone(&self.circuits),
            dispatcher: Arc::clone(&self.dispatcher),
            shards: self.shards.clone(),
            clock: self.clock.clone(),
        }));
        let sweeping = Arc::clone(&parking);
        let (long, short) = ((limits::PARK_SWEEP, LONG_STEP), (limits::PARK_SWEEP, STEP));
        [
            driver.every("sweep", long, None, sweeping, sweep),
            driver.every("drain", short, low, parking, refill),
        ]
    }
}

/// Drives the loops of a node, and tells when they do not get on.
#[derive(Clone)]
struct Driver {
    runtime: Handle,
    clock: Clock,
    stalls: Stalls,
}

impl Driver {
    /// A loop by the clock, on its own task: a long recovery must not keep the lease waiting.
    ///
    /// A step that takes longer than `limit` is given up: its connection may be one that nobody answers on any more. Every step
    /// may be cut anywhere.
    fn every<T, F, S>(
        &self,
        name: &'static str,
        (period, limit): (Duration, Duration),
        hint: Option<DueHint>,
        state: impl Into<Arc<T>>,
        step: F,
    ) -> Loop
    where
        T: Send + Sync + 'static,
        F: Fn(Arc<T>) -> S + Send + Sync + 'static,
        S: Future<Output = Result<(), DatabaseError>> + Send + 'static,
    {
        let (clock, stalls, state) = (self.clock.clone(), self.stalls.clone(), state.into());
        Loop::spawn(name, &self.runtime, |stop| async move {
            let hint = hint.as_ref().map(DueHint::listen);
            drive(&clock, period, hint, &stop, || {
                let bounded = tokio::time::timeout(limit, step(Arc::clone(&state)));
                let stalls = stalls.clone();
                async move {
                    let failed: Box<dyn std::fmt::Display + Send> = match bounded.await {
                        Ok(Ok(())) => return stalls.done(name),
                        Ok(Err(error)) => Box::new(error),
                        Err(given_up) => Box::new(given_up),
                    };
                    if period <= OFTEN {
                        stalls.failed(name, &failed);
                    } else {
                        tracing::warn!(step = name, error = %failed, "a step of a loop failed");
                    }
                }
            })
            .await;
        })
    }
}

async fn keep(keeping: Arc<Keeping>) -> Result<(), DatabaseError> {
    keeping.step().await.map(drop)
}

async fn take_up(recovery: Arc<Recovery>) -> Result<(), DatabaseError> {
    recovery.step().await.map(drop)
}

async fn look_for_due(due: Arc<DueTimer>) -> Result<(), DatabaseError> {
    due.step().await.map(drop)
}

async fn park_overfull(due: Arc<DueTimer>) -> Result<(), DatabaseError> {
    due.park_overfull().await.map(drop)
}

async fn sweep(parking: Arc<Parking>) -> Result<(), DatabaseError> {
    parking.step().await.map(drop)
}

async fn refill(parking: Arc<Parking>) -> Result<(), DatabaseError> {
    parking.refill().await.map(drop)
}

async fn keep_the_house(housekeeping: Arc<Housekeeping>) -> Result<(), DatabaseError> {
    housekeeping.run_once().await;
    Ok(())
}

async fn look(alarm: Arc<Alarm>) -> Result<(), DatabaseError> {
    alarm.run_once().await;
    Ok(())
}

async fn refresh(known: Arc<(ConfigCache, HealthCache)>) -> Result<(), DatabaseError> {
    let (cache, health) = &*known;
    cache.refresh().await?;
    health.refresh().await.map(drop)
}

async fn write_key_uses(state: Arc<(KeyUses, Database)>) -> Result<(), DatabaseError> {
    let (key_uses, database) = &*state;
    key_uses.run_once(database).await.map(drop)
}

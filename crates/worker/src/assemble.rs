//! The engine of one node: its loops, in the order in which they start and stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits::{self, LONG_STEP, STEP};
use posthorn_domain::retention::Retention;
use posthorn_egress::Egress;
use posthorn_store::accept::{Batcher, FreshEvent};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::drive::drive;
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::health::HealthCache;
use posthorn_store::key_use::KeyUses;
use posthorn_store::lease;
use posthorn_store::record::RecordWriter;
use posthorn_store::stream::StreamKeeper;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::circuit::{CircuitParts, Circuits};
use crate::dispatch::Dispatcher;
use crate::housekeeping::{Housekeeping, HousekeepingParts};
use crate::park::{Parking, ParkingParts};
use crate::record::Recorder;
use crate::recover::{Keeping, Recovery, Shards};
use crate::retry::DueTimer;
use crate::send::{Loader, Sender, SenderParts};

/// What the engine is made from.
pub struct WorkerParts {
    /// The database.
    pub database: Database,
    /// The configuration.
    pub cache: ConfigCache,
    /// This node's stream. Must be open already.
    pub keeper: Arc<StreamKeeper>,
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
}

/// The running engine.
pub struct Worker {
    database: Database,
    keeper: Arc<StreamKeeper>,
    clock: Clock,
    entropy: Entropy,
    dispatcher: Arc<Dispatcher>,
    batcher: Loop,
    dispatch: Loop,
    record: Loop,
    load: Loop,
    timers: Vec<Loop>,
}

/// A task and the token that ends it.
struct Loop {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Loop {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        Self {
            task: tokio::spawn(run(stop.clone())),
            stop,
        }
    }

    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a loop of the engine ended by itself");
        }
    }
}

impl Worker {
    /// Starts all loops.
    #[must_use]
    pub fn start(parts: WorkerParts) -> Self {
        let WorkerParts {
            database,
            cache,
            keeper,
            clock,
            entropy,
            egress,
            batcher,
            fresh,
            ..
        } = parts;
        let shards = Shards::new(Arc::clone(&keeper));
        let health = HealthCache::new(database.clone());
        let circuits = Arc::new(Circuits::new(CircuitParts {
            database: database.clone(),
            cache: cache.clone(),
            health: health.clone(),
            shards: shards.clone(),
            clock: clock.clone(),
            entropy,
        }));
        let dispatcher = Arc::new(Dispatcher::new(
            clock.clone(),
            cache.clone(),
            Arc::clone(&circuits),
            Arc::clone(&keeper),
        ));
        let writer = RecordWriter::new(database.clone());
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
            shards,
            retention: parts.retention,
        };
        let running = Arc::clone(&dispatcher);
        Self {
            batcher: Loop::spawn(|stop| batcher.run(stop)),
            dispatch: Loop::spawn(|stop| running.run(sender, recorder, fresh, stop)),
            record: Loop::spawn(|stop| recording.run(stop)),
            load: Loop::spawn(|stop| loading.run(stop)),
            timers: timers.start(),
            database,
            keeper,
            clock,
            entropy,
            dispatcher,
        }
    }

    /// Requests under way, and deliveries held in memory.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        self.dispatcher.load()
    }

    /// Ends in order: what is queued is flushed, what is not being sent goes to `pending`, what is out is awaited and
    /// recorded, and the stream is closed: as recovered only if nothing is open. Nobody may submit any more.
    pub async fn shutdown(self) {
        self.batcher.end().await;
        self.dispatch.end().await;
        self.load.end().await;
        self.record.end().await;
        for timer in &self.timers {
            timer.stop.cancel();
        }
        for timer in self.timers {
            timer.end().await;
        }
        self.keeper.retire();
        let Some(stream) = self.keeper.present() else {
            return;
        };
        let nothing_open = stream.open().is_empty();
        let watermark = stream
            .open()
            .watermark(self.clock.now(), self.entropy.bytes());
        let leaving = lease::leave(&self.database, stream.id(), watermark, nothing_open);
        let left: Result<(), DatabaseError> = tokio::time::timeout(STEP, leaving)
            .await
            .unwrap_or(Err(DatabaseError::PoolTimedOut));
        match left {
            Ok(()) => tracing::info!(stream = stream.id(), nothing_open, "left the stream"),
            Err(error) => {
                tracing::warn!(%error, "the stream could not be left in order; another node will adopt it");
            }
        }
    }
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
}

impl Timers {
    fn start(self) -> Vec<Loop> {
        let Self {
            database,
            cache,
            keeper,
            clock,
            entropy,
            health,
            circuits,
            dispatcher,
            hint,
            key_uses,
            shards,
            retention,
        } = self;
        let keeping = Keeping::new(
            database.clone(),
            Arc::clone(&keeper),
            clock.clone(),
            entropy,
            shards.clone(),
        );
        let due = DueTimer::new(
            database.clone(),
            Arc::clone(&dispatcher),
            shards.clone(),
            clock.clone(),
        );
        let parking = ParkingParts {
            database: database.clone(),
            cache: cache.clone(),
            circuits,
            dispatcher,
            shards,
            clock: clock.clone(),
        };
        let recovery = Recovery::new(database.clone(), hint.clone());
        let mut loops = vec![
            every(&clock, (limits::WATERMARK_EVERY, STEP), None, keeping, keep),
            every(
                &clock,
                (limits::WATERMARK_EVERY, LONG_STEP),
                None,
                recovery,
                take_up,
            ),
            every(
                &clock,
                (limits::DUE_POLL, STEP),
                Some(hint),
                due,
                look_for_due,
            ),
        ];
        loops.extend(park(parking));
        let house = HousekeepingParts {
            database: database.clone(),
            clock: clock.clone(),
            entropy,
            retention,
        };
        loops.extend(keep_house(&clock, house));
        loops.extend(look_after(&clock, database, (cache, health), key_uses));
        loops
    }
}

/// The loops that nothing waits for.
fn keep_house(clock: &Clock, parts: HousekeepingParts) -> [Loop; 2] {
    let alarm = Alarm::new(parts.database.clone(), clock.clone());
    let housekeeping = Housekeeping::new(parts);
    [
        every(
            clock,
            (limits::HOUSEKEEPING_LOOK, LONG_STEP),
            None,
            housekeeping,
            keep_the_house,
        ),
        every(clock, (limits::ALARM_EVERY, STEP), None, alarm, look),
    ]
}

/// The loops that move no delivery.
fn look_after(
    clock: &Clock,
    database: Database,
    known: (ConfigCache, HealthCache),
    key_uses: KeyUses,
) -> [Loop; 2] {
    [
        every(clock, (limits::CONFIG_POLL, STEP), None, known, refresh),
        every(
            clock,
            (limits::KEY_USE_EVERY, STEP),
            None,
            (key_uses, database),
            write_key_uses,
        ),
    ]
}

/// The sweep over parked rows, and the refilling of lanes that run low.
fn park(parts: ParkingParts) -> [Loop; 2] {
    let clock = parts.clock.clone();
    let low = parts.dispatcher.low_hint();
    let parking = Arc::new(Parking::new(parts));
    let sweeping = Arc::clone(&parking);
    [
        every(
            &clock,
            (limits::PARK_SWEEP, LONG_STEP),
            None,
            sweeping,
            sweep,
        ),
        every(
            &clock,
            (limits::PARK_SWEEP, STEP),
            Some(low),
            parking,
            refill,
        ),
    ]
}

/// A loop by the clock, on its own task: a long recovery must not keep the lease waiting.
///
/// A step that takes longer than `limit` is given up: its connection may be one that nobody answers on any more.
fn every<T, F, S>(
    clock: &Clock,
    (period, limit): (Duration, Duration),
    hint: Option<DueHint>,
    state: impl Into<Arc<T>>,
    step: F,
) -> Loop
where
    T: Send + Sync + 'static,
    F: Fn(Arc<T>) -> S + Send + Sync + 'static,
    S: Future<Output = ()> + Send + 'static,
{
    let (clock, state) = (clock.clone(), state.into());
    Loop::spawn(|stop| async move {
        drive(
            &clock,
            period,
            hint.as_ref().map(DueHint::listen),
            &stop,
            || {
                let bounded = tokio::time::timeout(limit, step(Arc::clone(&state)));
                async move {
                    if bounded.await.is_err() {
                        tracing::warn!(?limit, "a step of a loop was given up");
                    }
                }
            },
        )
        .await;
    })
}

async fn keep(keeping: Arc<Keeping>) {
    keeping.run_once().await;
}

async fn take_up(recovery: Arc<Recovery>) {
    recovery.run_once().await;
}

async fn look_for_due(due: Arc<DueTimer>) {
    due.run_once().await;
}

async fn sweep(parking: Arc<Parking>) {
    parking.run_once().await;
}

async fn keep_the_house(housekeeping: Arc<Housekeeping>) {
    housekeeping.run_once().await;
}

async fn look(alarm: Arc<Alarm>) {
    alarm.run_once().await;
}

async fn refill(parking: Arc<Parking>) {
    parking.refill().await;
}

async fn refresh(known: Arc<(ConfigCache, HealthCache)>) {
    let (cache, health) = &*known;
    if let Err(error) = cache.refresh().await {
        tracing::warn!(%error, "the configuration could not be read");
    }
    if let Err(error) = health.refresh().await {
        tracing::warn!(%error, "which endpoints are not well could not be read");
    }
}

async fn write_key_uses(state: Arc<(KeyUses, Database)>) {
    let (key_uses, database) = &*state;
    if let Err(error) = key_uses.run_once(database).await {
        tracing::warn!(%error, "when keys were last used could not be written yet");
    }
}

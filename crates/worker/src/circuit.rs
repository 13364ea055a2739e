//! Circuit: what attempts say of their endpoints, and what may be sent to those that are not well.
//!
//! Failures in a row are counted here, by each node for itself; when they open a circuit, and from then on, all nodes know by
//! `endpoint_state`. While it is open or on its way back, the owner of the endpoint's shard alone sends, and the others park.
//! A floor that a receiver asked for (Retry-After) holds for all; after it, and where more is refused than now and then, the
//! endpoint has a pace ([`Paces`]).
//!
//! An endpoint that is well and has no failure behind it costs a look at a counter.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use posthorn_domain::circuit::{Came, Circuit, is_given_up, probe_after};
use posthorn_domain::delivery::{ErrorKind, Outcome, Trigger, Why};
use posthorn_domain::endpoint::StateCause;
use posthorn_domain::id::{EndpointId, EventId, IdMap, TenantId};
use posthorn_domain::limits;
use posthorn_domain::rate::Answer;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::{ConfigCache, EndpointEntry, Snapshot};
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::entropy::Entropy;
use posthorn_store::gone;
use posthorn_store::health::{self, HealthCache, HealthSnapshot, Opening, Probed, SharedCircuit};
use posthorn_store::shards::Shards;

use crate::dispatch::Allowance;
use crate::pace::Paces;
use crate::stall::Stalls;
use crate::step::bounded;

/// Which endpoint.
type Of = (TenantId, EndpointId);

/// What circuits need.
pub struct CircuitParts {
    /// For what all nodes are to know.
    pub database: Database,
    /// Endpoints as they are now.
    pub cache: ConfigCache,
    /// What all nodes know.
    pub health: HealthCache,
    /// Whose endpoints are probed here.
    pub shards: Shards,
    /// Time.
    pub clock: Clock,
    /// For the jitter of probes.
    pub entropy: Entropy,
}

/// The circuits of this node.
pub struct Circuits {
    database: Database,
    cache: ConfigCache,
    health: HealthCache,
    shards: Shards,
    clock: Clock,
    entropy: Entropy,
    /// Endpoints with failures behind them, or on their way back.
    counted: Mutex<IdMap<Of, Counted>>,
    /// How many these are, to be read without the lock.
    count: AtomicUsize,
    paces: Paces,
    stalls: Stalls,
}

/// What this node knows by itself of an endpoint.
#[derive(Clone, Copy)]
struct Counted {
    circuit: Circuit,
    /// The version of the endpoint that it is of: a changed endpoint begins afresh.
    config_seq: i64,
}

/// An attempt that has ended.
#[derive(Clone, Copy)]
pub(crate) struct Attempted {
    pub(crate) of: Of,
    pub(crate) event: EventId,
    pub(crate) trigger: Trigger,
    pub(crate) outcome: Outcome,
    /// What the endpoint answered, if it did.
    pub(crate) status: Option<u16>,
    pub(crate) cause: Option<ErrorKind>,
    /// When its request began.
    pub(crate) began: Instant,
}

/// What the sweep is to do with what is parked for an endpoint that is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parked {
    /// Send it.
    Drain,
    /// Send one of it.
    Probe,
    /// Leave it.
    Wait,
}

/// What all nodes are to be told.
enum Told {
    Opened(Opening),
    Probed(Probed),
    Ramped(i64),
    Reopened(Probed),
    Closed(i64),
    GivenUp,
}

impl Circuits {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new(parts: CircuitParts) -> Self {
        let CircuitParts {
            database,
            cache,
            health,
            shards,
            clock,
            entropy,
        } = parts;
        Self {
            database,
            cache,
            health,
            shards,
            paces: Paces::new(clock.monotonic()),
            clock,
            entropy,
            counted: Mutex::default(),
            count: AtomicUsize::new(0),
            stalls: Stalls::default(),
        }
    }

    /// What all nodes know.
    pub(crate) fn health(&self) -> Arc<HealthSnapshot> {
        self.health.snapshot()
    }

    /// What may be sent to an endpoint by this node, now.
    pub(crate) fn allowance(
        &self,
        config: &Snapshot,
        health: &HealthSnapshot,
        of: Of,
    ) -> Allowance {
        let entry = config.endpoint(of.0, of.1).map(Arc::as_ref);
        let pace = entry.and_then(|entry| self.paces.limit(of, entry.config_seq));
        let mut allowance = Allowance::of(entry).paced(pace);
        if health.is_empty() || allowance.shut.is_some() {
            return allowance;
        }
        let Some(health) = health.get(of.0, of.1) else {
            return allowance;
        };
        if health
            .retry_after
            .is_some_and(|until| until > self.clock.now())
        {
            allowance.shut = Some(Why::RetryAfter);
            return allowance;
        }
        match health.circuit {
            None => {}
            Some(SharedCircuit::Ramping) if self.shards.owns(of.1) => {
                let allowed = self.ramp_of(of).unwrap_or(allowance.in_flight);
                allowance.in_flight = allowance.in_flight.min(allowed);
            }
            Some(SharedCircuit::Ramping | SharedCircuit::Open { .. }) => {
                allowance.shut = Some(Why::Circuit);
            }
        }
        allowance
    }

    /// By the clock: what is over is forgotten, and an endpoint that asked another node for time has a pace here, too. Answers
    /// the endpoints that something else may be sent to now, as far as their health does not say so.
    pub(crate) fn look_again(&self, config: &Snapshot, health: &HealthSnapshot) -> Vec<Of> {
        self.forget_failures(config, health);
        let (now, at) = (self.clock.now(), self.clock.monotonic());
        for of in health.endpoints() {
            let floor = health.get(of.0, of.1).and_then(|health| health.retry_after);
            if floor.is_some_and(|until| until > now)
                && let Some(entry) = config.endpoint(of.0, of.1)
            {
                self.paces.asked(of, entry.config_seq, at);
            }
        }
        self.paces.forget(config, at)
    }

    /// Whether some endpoint has a pace, so that requests have to ask for theirs.
    pub(crate) fn holds_back(&self) -> bool {
        !self.paces.is_empty()
    }

    /// Takes in what an attempt says of how much its endpoint takes. Answers whether something else may be sent from now on.
    pub(crate) fn heard(&self, attempted: &Attempted, entry: &EndpointEntry) -> bool {
        let answer = Answer::of(&attempted.outcome, attempted.status);
        answer.is_some_and(|answer| {
            let times = (attempted.began, self.clock.monotonic());
            self.paces
                .heard((attempted.of, entry.config_seq), answer, times)
        })
    }

    /// Forgets failures of endpoints whose circuit is open by now, for whatever comes after that is another run, and of those
    /// that are no more.
    fn forget_failures(&self, config: &Snapshot, health: &HealthSnapshot) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let is_open = |of: &Of| {
            let known = health.get(of.0, of.1);
            known.is_some_and(|known| matches!(known.circuit, Some(SharedCircuit::Open { .. })))
        };
        let mut counted = self.counted();
        counted.retain(|of, _| config.endpoint(of.0, of.1).is_some() && !is_open(of));
        self.count.store(counted.len(), Ordering::Relaxed);
    }

    /// What is to be done with what is parked for an endpoint of this node's shards.
    pub(crate) fn parked(&self, of: Of) -> Parked {
        let health = self.health.snapshot();
        let Some(health) = health.get(of.0, of.1) else {
            return Parked::Drain;
        };
        let now = self.clock.now();
        if health.retry_after.is_some_and(|until| until > now) {
            return Parked::Wait;
        }
        match health.circuit {
            Some(SharedCircuit::Open { next_probe_at, .. }) if next_probe_at <= now => {
                Parked::Probe
            }
            Some(SharedCircuit::Open { .. }) => Parked::Wait,
            Some(SharedCircuit::Ramping) | None => Parked::Drain,
        }
    }

    /// Takes in what an attempt came to. Answers whether something else may be sent to its endpoint from now on.
    pub(crate) async fn attempted(&self, attempted: Attempted, entry: &EndpointEntry) -> bool {
        let mut known = self.health.snapshot();
        let success = attempted.outcome == Outcome::Success;
        if success && known.is_empty() && self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let floor = match attempted.outcome {
            Outcome::Failed { floor, .. } => floor,
            _ => None,
        };
        let mut changed = false;
        if let Some(span) = floor
            && !self.is_asked(&known, attempted.of, span)
        {
            let floor = self.written(health::floor(&self.database, attempted.of, span));
            if Box::pin(floor).await {
                changed = true;
                // The floor has raised the revision, by which what follows is decided.
                self.read_again().await;
                known = self.health.snapshot();
            }
        }
        let (level, told) = self.count(attempted, entry, &known);
        if let Some(told) = told
            && Box::pin(self.tell(attempted.of, told, entry.config_seq)).await
        {
            changed = true;
            self.read_again().await;
        }
        changed || level
    }

    async fn read_again(&self) {
        let read = Box::pin(bounded(self.health.refresh())).await;
        self.stalls.told("reading health", &read);
    }

    /// Whether a floor as late as this is known already, to a second: everything that was under way is told the same.
    fn is_asked(&self, known: &HealthSnapshot, of: Of, span: Duration) -> bool {
        let until = known.get(of.0, of.1).and_then(|health| health.retry_after);
        let slack = span.saturating_sub(Duration::from_secs(1));
        let left = until.map_or(0, |until| (until - self.clock.now()).num_milliseconds());
        left > 0 && u128::try_from(left).is_ok_and(|left| left >= slack.as_millis())
    }

    /// Counts an attempt. Answers whether the level of a way back has changed, and what all nodes are to be told.
    fn count(
        &self,
        attempted: Attempted,
        entry: &EndpointEntry,
        known: &HealthSnapshot,
    ) -> (bool, Option<Told>) {
        let of = attempted.of;
        let now = self.clock.now();
        let came = if attempted.outcome == Outcome::Success {
            Came::Success
        } else {
            Came::Failure(attempted.event)
        };
        let cause = attempted.cause.unwrap_or(ErrorKind::Status);
        let shared = known.get(of.0, of.1);
        let revision = shared.map_or(0, |health| health.revision);
        match shared.and_then(|health| health.circuit) {
            Some(SharedCircuit::Open {
                opened_at, probes, ..
            }) => {
                // What was under way when it opened says nothing new. What somebody asked for is sent as a probe.
                let told = matches!(attempted.trigger, Trigger::Probe | Trigger::Replay)
                    .then(|| self.probe_came(came, cause, revision, (opened_at, probes)));
                (false, told)
            }
            Some(SharedCircuit::Ramping) if !self.shards.owns(of.1) => (false, None),
            Some(SharedCircuit::Ramping) => self.ramp(of, entry, came, (cause, revision)),
            // Somebody asked for it: it says nothing of what was going on before.
            None if attempted.trigger == Trigger::Replay => (false, None),
            None => (false, self.run(of, entry, came, (cause, now))),
        }
    }

    fn probe_came(
        &self,
        came: Came,
        cause: ErrorKind,
        revision: i64,
        (opened_at, probes): (DateTime<Utc>, u32),
    ) -> Told {
        match came {
            Came::Success => Told::Ramped(revision),
            Came::Failure(_) if is_given_up(opened_at, self.clock.now()) => Told::GivenUp,
            Came::Failure(_) => Told::Probed(Probed {
                revision,
                cause,
                next_probe: probe_after(probes.saturating_add(1), self.entropy.uniform()),
            }),
        }
    }

    /// An attempt on the way back.
    fn ramp(
        &self,
        of: Of,
        entry: &EndpointEntry,
        came: Came,
        (cause, revision): (ErrorKind, i64),
    ) -> (bool, Option<Told>) {
        let most = entry
            .max_in_flight
            .unwrap_or(u32::try_from(limits::IN_FLIGHT_PER_ENDPOINT).unwrap_or(u32::MAX));
        let mut counted = self.counted();
        let before = match counted.get(&of) {
            Some(known) if matches!(known.circuit, Circuit::Ramping { .. }) => known.circuit,
            _ => Circuit::RAMP,
        };
        let after = before.after(came, self.clock.now(), most);
        self.keep(&mut counted, of, entry, after);
        match after {
            Circuit::Ramping { .. } => (true, None),
            Circuit::Closed | Circuit::Failing(_) => (true, Some(Told::Closed(revision))),
            Circuit::Open { .. } => (
                true,
                Some(Told::Reopened(Probed {
                    revision,
                    cause,
                    next_probe: probe_after(0, self.entropy.uniform()),
                })),
            ),
        }
    }

    /// An attempt while the circuit is closed.
    fn run(
        &self,
        of: Of,
        entry: &EndpointEntry,
        came: Came,
        (cause, now): (ErrorKind, DateTime<Utc>),
    ) -> Option<Told> {
        let mut counted = self.counted();
        let before = counted
            .get(&of)
            .filter(|known| known.config_seq == entry.config_seq)
            .map_or(Circuit::Closed, |known| known.circuit);
        let before = match before {
            Circuit::Failing(_) => before,
            // What was open or on its way back is neither any more.
            _ => Circuit::Closed,
        };
        let after = before.after(came, now, u32::MAX);
        if let (Circuit::Failing(run), Circuit::Open { .. }) = (before, after) {
            // Stays counted until all nodes know: else the next failure opens it.
            return Some(Told::Opened(Opening {
                failures: run.failures.saturating_add(1),
                first_failed_at: run.first_at,
                cause,
                next_probe: probe_after(0, self.entropy.uniform()),
            }));
        }
        self.keep(&mut counted, of, entry, after);
        None
    }

    fn keep(
        &self,
        counted: &mut IdMap<Of, Counted>,
        of: Of,
        entry: &EndpointEntry,
        circuit: Circuit,
    ) {
        match circuit {
            Circuit::Closed | Circuit::Open { .. } => {
                counted.remove(&of);
            }
            Circuit::Failing(_) | Circuit::Ramping { .. } => {
                let config_seq = entry.config_seq;
                counted.insert(
                    of,
                    Counted {
                        circuit,
                        config_seq,
                    },
                );
            }
        }
        self.count.store(counted.len(), Ordering::Relaxed);
    }

    fn forget(&self, of: Of) {
        let mut counted = self.counted();
        counted.remove(&of);
        self.count.store(counted.len(), Ordering::Relaxed);
    }

    /// How many requests may be under way to an endpoint on its way back, as far as this node has counted.
    fn ramp_of(&self, of: Of) -> Option<usize> {
        let allowed = match self.counted().get(&of).map(|known| known.circuit) {
            Some(Circuit::Ramping { allowed, .. }) => allowed,
            _ => 1,
        };
        usize::try_from(allowed).ok()
    }

    async fn tell(&self, of: Of, told: Told, config_seq: i64) -> bool {
        let database = &self.database;
        match told {
            Told::Opened(opening) => {
                let opened = bounded(health::open(database, of, opening)).await;
                self.stalls.told("writing health", &opened);
                match opened {
                    Ok(true) => {
                        let failures = opening.failures;
                        tracing::info!(endpoint = %of.1, failures, "the circuit of an endpoint is open");
                    }
                    // It is open already, or another node was answered meanwhile: what was counted here is no row of failures.
                    Ok(false) => self.forget(of),
                    Err(_) => return false,
                }
                true
            }
            Told::Probed(probed) => self.written(health::probed(database, of, probed)).await,
            Told::Ramped(revision) => self.written(health::ramp(database, of, revision)).await,
            Told::Reopened(again) => self.written(health::reopen(database, of, again)).await,
            Told::Closed(revision) => {
                tracing::info!(endpoint = %of.1, "an endpoint is well again");
                self.written(health::close(database, of, revision)).await
            }
            Told::GivenUp => {
                tracing::warn!(endpoint = %of.1, "an endpoint has failed for days and is disabled");
                let disabled = gone::disable(database, of.0, of.1, config_seq, StateCause::Failing);
                self.written(disabled).await && self.written(self.cache.refresh()).await
            }
        }
    }

    /// Whether a change was written. One that was not is tried again by the next attempt.
    async fn written<T>(&self, change: impl Future<Output = Result<T, DatabaseError>>) -> bool {
        let written = bounded(change).await;
        self.stalls.told("writing health", &written);
        written.is_ok()
    }

    fn counted(&self) -> MutexGuard<'_, IdMap<Of, Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

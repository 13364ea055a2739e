//! Park: what waits without a known time, and how it leaves again.
//!
//! The endpoints with parked rows are listed from the index, never from a flag. Each is drained while it is enabled and
//! has room, ended where its own row says that it is deleted or gone, and swept for deliveries whose end has come.
//!
//! A drain brings the keys of parked rows into an endpoint's lane; they stay parked until they are sent, so that nothing
//! is written twice and nothing has to be put back. The dispatcher says when a lane runs low, and [`Parking::refill`] brings the
//! next: how fast a drain goes does not depend on the sweep's period.

mod drains;
mod probes;
mod walk;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::pending::{self, Listed, ParkedEndpoint};
use posthorn_store::shards::Shards;

use self::drains::Drains;
use self::probes::Probes;
use self::walk::Walk;
use crate::circuit::{self, Circuits};
use crate::dispatch::Dispatcher;

/// What parking needs.
pub struct ParkingParts {
    /// Parked rows.
    pub database: Database,
    /// Endpoints as they are now.
    pub cache: ConfigCache,
    /// What may be sent to endpoints that are not well.
    pub circuits: Arc<Circuits>,
    /// Takes what is drained.
    pub dispatcher: Arc<Dispatcher>,
    /// The shards of this node.
    pub shards: Shards,
    /// For the cursors of drains.
    pub clock: Clock,
}

/// The sweep over parked rows, and the drains that it begins.
pub struct Parking {
    database: Database,
    cache: ConfigCache,
    circuits: Arc<Circuits>,
    dispatcher: Arc<Dispatcher>,
    shards: Shards,
    clock: Clock,
    walk: Mutex<Walk>,
    drains: Mutex<Drains>,
    probes: Mutex<Probes>,
}

impl Parking {
    /// A sweep over the shards of this node.
    #[must_use]
    pub fn new(parts: ParkingParts) -> Self {
        let ParkingParts {
            database,
            cache,
            circuits,
            dispatcher,
            shards,
            clock,
        } = parts;
        Self {
            database,
            cache,
            circuits,
            dispatcher,
            shards,
            clock,
            walk: Mutex::default(),
            drains: Mutex::default(),
            probes: Mutex::default(),
        }
    }

    /// One sweep. Answers how many rows it ended or queued.
    pub async fn run_once(&self) -> u64 {
        self.step().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "parked deliveries could not be looked for");
            0
        })
    }

    /// The same, for a loop that tells itself what goes wrong.
    pub(crate) async fn step(&self) -> Result<u64, DatabaseError> {
        self.drains()
            .forget_old(self.clock.monotonic(), |endpoint| {
                self.shards.owns(endpoint)
            });
        let health = self.circuits.health();
        self.probes()
            .forget_unless(|endpoint| health.knows(endpoint));
        let (mut moved, mut failed) = (0, None);
        for _ in 0..limits::PARK_SWEEP_PAGES {
            let page = self.listed().await?;
            for listed in &page {
                match self.sweep(*listed).await {
                    Ok(rows) => moved += rows,
                    Err(error) => {
                        tracing::debug!(%error, endpoint = %listed.of.endpoint, "parked deliveries could not be swept");
                        // Each of the others would wait as long as this one did.
                        if is_away(&error) {
                            return Err(error);
                        }
                        failed = Some(error);
                    }
                }
            }
            if i64::try_from(page.len()).is_ok_and(|found| found < limits::PARK_SWEEP_ENDPOINTS) {
                break;
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    /// Brings more parked rows to the lanes that run low. Answers how many.
    ///
    /// # Errors
    /// When the database did not answer for one of them; the sweep begins its drain again.
    pub async fn refill(&self) -> Result<u64, DatabaseError> {
        let (mut moved, mut failed) = (0, None);
        for of in self.dispatcher.low() {
            if !self.may_drain(of) {
                continue;
            }
            match self.drain(of).await {
                Ok(rows) => moved += rows,
                Err(error) => {
                    tracing::debug!(%error, endpoint = %of.endpoint, "parked deliveries could not be read");
                    if is_away(&error) {
                        return Err(error);
                    }
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    /// The next endpoints with parked rows: each sweep goes on where the last one stopped.
    async fn listed(&self) -> Result<Vec<Listed>, DatabaseError> {
        let shards = self.shards.owned();
        if shards.is_empty() {
            return Ok(Vec::new());
        }
        let from = self.walk().begin(&shards);
        let parked = pending::parked_endpoints(
            &self.database,
            &from,
            limits::PARK_SWEEP_PER_SHARD,
            limits::PARK_SWEEP_ENDPOINTS,
        )
        .await?;
        let found: Vec<_> = parked.iter().map(|listed| listed.of).collect();
        self.walk().advance(&from, &found);
        Ok(parked)
    }

    fn walk(&self) -> MutexGuard<'_, Walk> {
        self.walk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drains(&self) -> MutexGuard<'_, Drains> {
        self.drains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_drain(&self, of: ParkedEndpoint) -> bool {
        let snapshot = self.cache.snapshot();
        let entry = snapshot.endpoint(of.tenant, of.endpoint);
        entry.is_some_and(|entry| entry.state == EndpointState::Enabled)
            && self.circuits.parked((of.tenant, of.endpoint)) == circuit::Parked::Drain
            && self.shards.owns(of.endpoint)
    }

    /// Asks nothing of an endpoint for which nothing can be done: of those there are thousands, and others wait behind them.
    async fn sweep(&self, Listed { of, over }: Listed) -> Result<u64, DatabaseError> {
        let snapshot = self.cache.snapshot();
        let state = snapshot
            .endpoint(of.tenant, of.endpoint)
            .map(|entry| entry.state);
        match state {
            Some(EndpointState::Enabled) => {
                let expired = self.expire(of, over).await?;
                let sent = match self.circuits.parked((of.tenant, of.endpoint)) {
                    circuit::Parked::Drain => self.drain(of).await?,
                    circuit::Parked::Probe => self.probe(of).await?,
                    circuit::Parked::Wait => 0,
                };
                Ok(expired + sent)
            }
            Some(EndpointState::Paused) => self.expire(of, over).await,
            Some(EndpointState::Disabled) => {
                Ok(pending::cancel(&self.database, of).await? + self.expire(of, over).await?)
            }
            None => pending::cancel(&self.database, of).await,
        }
    }

    async fn expire(&self, of: ParkedEndpoint, over: bool) -> Result<u64, DatabaseError> {
        if over {
            pending::expire(&self.database, of).await
        } else {
            Ok(0)
        }
    }

    /// Has one parked row sent, to see whether the endpoint answers: another one each time.
    async fn probe(&self, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
        let after = self.probes().place(of.endpoint);
        let found = pending::parked(&self.database, of, after, 1).await?;
        let Some(parked) = found.first() else {
            self.probes().ended(of.endpoint);
            return Ok(0);
        };
        let taken = self.dispatcher.offer_probe(parked.row);
        if taken {
            self.probes().reached(of.endpoint, *parked);
        }
        Ok(u64::from(taken))
    }

    fn probes(&self) -> MutexGuard<'_, Probes> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues as many rows as there is room for.
    async fn drain(&self, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
        let room = self.dispatcher.room(of);
        if room < limits::PARKED_PER_ENDPOINT / 2 {
            return Ok(0);
        }
        let after = self.drains().place(of.endpoint, self.clock.monotonic());
        let parked = pending::parked(&self.database, of, after, room).await?;
        let more = parked.len() == room;
        let rows: Vec<_> = parked.iter().map(|parked| parked.row).collect();
        let taken = self.dispatcher.offer_parked(of, &rows, more);
        if !more && taken == rows.len() {
            self.drains().ended(of.endpoint);
        } else if let Some(last) = taken.checked_sub(1).and_then(|last| parked.get(last)) {
            self.drains().reached(of.endpoint, *last);
        }
        Ok(u64::try_from(taken).unwrap_or(u64::MAX))
    }
}

/// Whether it is the database that does not answer, and not a statement that it refused.
fn is_away(error: &DatabaseError) -> bool {
    !error.is_refusal()
}

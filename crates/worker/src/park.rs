//! Park: what waits without a known time, and how it leaves again.
//!
//! The endpoints with parked rows are listed from the index, never from a flag. Each is drained while it is enabled and
//! has room, ended where its own row says that it is deleted or gone, and swept for deliveries whose end has come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::limits;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::pending::{self, ParkedEndpoint};

use crate::dispatch::Dispatcher;
use crate::recover::Shards;

/// How many shards further each sweep begins: prime to 256, so that every shard comes first in turn.
const STRIDE: usize = 37;

/// The sweep over parked rows.
pub struct Parking {
    database: Database,
    cache: ConfigCache,
    dispatcher: Arc<Dispatcher>,
    shards: Shards,
    sweeps: AtomicUsize,
}

impl Parking {
    /// A sweep over the shards of this node.
    #[must_use]
    pub const fn new(
        database: Database,
        cache: ConfigCache,
        dispatcher: Arc<Dispatcher>,
        shards: Shards,
    ) -> Self {
        Self {
            database,
            cache,
            dispatcher,
            shards,
            sweeps: AtomicUsize::new(0),
        }
    }

    /// One sweep. Answers how many rows it moved.
    pub async fn run_once(&self) -> u64 {
        let shards = self.shards.owned();
        if shards.is_empty() {
            return 0;
        }
        // Each sweep begins elsewhere: should one see only so many endpoints, all have their turn.
        let mut shards = shards.to_vec();
        let turn = self.sweeps.fetch_add(1, Ordering::Relaxed);
        let begin = turn.wrapping_mul(STRIDE) % shards.len();
        shards.rotate_left(begin);
        let parked =
            match pending::parked_endpoints(&self.database, &shards, limits::PARK_SWEEP_ENDPOINTS)
                .await
            {
                Ok(parked) => parked,
                Err(error) => {
                    tracing::warn!(%error, "parked deliveries could not be looked for");
                    return 0;
                }
            };
        let mut moved = 0;
        for of in parked {
            match self.sweep(of).await {
                Ok(rows) => moved += rows,
                Err(error) => {
                    tracing::warn!(%error, endpoint = %of.endpoint, "parked deliveries could not be swept");
                }
            }
        }
        moved
    }

    async fn sweep(&self, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
        let snapshot = self.cache.snapshot();
        let state = snapshot
            .endpoint(of.tenant, of.endpoint)
            .map(|entry| entry.state);
        match state {
            Some(EndpointState::Enabled) => {
                let expired = pending::expire(&self.database, of).await?;
                Ok(expired + self.drain(of).await?)
            }
            Some(EndpointState::Paused) => pending::expire(&self.database, of).await,
            Some(EndpointState::Disabled) => Ok(pending::cancel(&self.database, of).await?
                + pending::expire(&self.database, of).await?),
            None => pending::cancel(&self.database, of).await,
        }
    }

    /// Makes as many rows due as there is room for, and queues them at once.
    async fn drain(&self, of: ParkedEndpoint) -> Result<u64, DatabaseError> {
        let room = self.dispatcher.room(of.endpoint);
        if room < limits::DUE_ROWS_PER_ENDPOINT / 2 {
            return Ok(0);
        }
        let due =
            pending::unpark(&self.database, of, i64::try_from(room).unwrap_or(i64::MAX)).await?;
        self.dispatcher.offer(&due);
        Ok(u64::try_from(due.len()).unwrap_or(u64::MAX))
    }
}

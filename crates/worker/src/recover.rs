//! Recover: this node's lease, and what becomes of streams that nobody renews.
//!
//! [`Keeping`] renews the lease with the watermark, takes the database's time, closes streams that were seen lapsed at two
//! renewals in a row, and takes up shards that nobody alive owns. [`Recovery`] writes what closed streams left open into
//! `pending`; it is a loop of its own, since it may take longer than a lease lives.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use posthorn_domain::id::EndpointId;
use posthorn_store::clock::Clock;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::lease::{self, Renewal};
use posthorn_store::recover;
use posthorn_store::stream::StreamKeeper;

/// The shards that this node owns. Cheap to clone.
#[derive(Clone)]
pub struct Shards {
    keeper: Arc<StreamKeeper>,
    claimed: Arc<ArcSwap<Claimed>>,
}

/// What was claimed, and by which stream: a stream that another node closed owns nothing any more, whoever has opened the
/// next one meanwhile.
#[derive(Default)]
struct Claimed {
    stream: Option<i64>,
    shards: Arc<Vec<i16>>,
}

impl Shards {
    /// None yet.
    #[must_use]
    pub fn new(keeper: Arc<StreamKeeper>) -> Self {
        Self {
            keeper,
            claimed: Arc::default(),
        }
    }

    /// The shards that the present stream owned at its last renewal.
    #[must_use]
    pub fn owned(&self) -> Arc<Vec<i16>> {
        let claimed = self.claimed.load();
        let present = self.keeper.present().map(|stream| stream.id());
        if claimed.stream == present {
            Arc::clone(&claimed.shards)
        } else {
            Arc::default()
        }
    }

    /// Whether the pending rows of this endpoint are this node's to send.
    #[must_use]
    pub fn owns(&self, endpoint: EndpointId) -> bool {
        self.owned().contains(&i16::from(endpoint.shard()))
    }

    fn set(&self, stream: i64, shards: Vec<i16>) {
        self.claimed.store(Arc::new(Claimed {
            stream: Some(stream),
            shards: Arc::new(shards),
        }));
    }
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Whether the lease was renewed.
    pub renewed: bool,
    /// Streams of other nodes that this step closed.
    pub closed: usize,
}

/// Keeps this node's stream alive, and closes streams that nobody renews.
pub struct Keeping {
    database: Database,
    keeper: Arc<StreamKeeper>,
    clock: Clock,
    entropy: Entropy,
    shards: Shards,
    /// Streams that the last renewal saw lapsed.
    suspects: Mutex<HashSet<i64>>,
}

impl Keeping {
    /// Nothing is suspected yet.
    #[must_use]
    pub fn new(
        database: Database,
        keeper: Arc<StreamKeeper>,
        clock: Clock,
        entropy: Entropy,
        shards: Shards,
    ) -> Self {
        Self {
            database,
            keeper,
            clock,
            entropy,
            shards,
            suspects: Mutex::default(),
        }
    }

    /// One step.
    pub async fn run_once(&self) -> Tally {
        match self.step().await {
            Ok(tally) => tally,
            Err(error) => {
                tracing::warn!(%error, "the lease could not be renewed");
                Tally::default()
            }
        }
    }

    async fn step(&self) -> Result<Tally, DatabaseError> {
        let Some(renewal) = self.renew().await? else {
            return Ok(Tally::default());
        };
        let mut tally = Tally {
            renewed: true,
            ..Tally::default()
        };
        for stream in self.confirmed(&renewal.lapsed) {
            if lease::close_lapsed(&self.database, stream).await? {
                tracing::warn!(stream, "closed the stream of a node whose lease has lapsed");
                tally.closed += 1;
            }
        }
        self.claim().await?;
        Ok(tally)
    }

    /// Renews the lease; where another node closed the stream, opens the next one.
    async fn renew(&self) -> Result<Option<Renewal>, DatabaseError> {
        let Some(stream) = self.keeper.present() else {
            return Ok(None);
        };
        let watermark = stream
            .open()
            .watermark(self.clock.now(), self.entropy.bytes());
        let began = self.clock.monotonic();
        let renewal = lease::renew(&self.database, stream.id(), watermark).await?;
        if !renewal.open {
            tracing::warn!(stream = stream.id(), "another node closed this stream");
            self.keeper.reopen(Some(&stream)).await?;
            return Ok(None);
        }
        stream.renewed(began);
        self.clock.observe(renewal.now, self.clock.monotonic());
        Ok(Some(renewal))
    }

    /// Those of the lapsed streams that the renewal before saw lapsed, too.
    fn confirmed(&self, lapsed: &[i64]) -> Vec<i64> {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let confirmed = lapsed
            .iter()
            .copied()
            .filter(|stream| suspects.contains(stream))
            .collect();
        *suspects = lapsed.iter().copied().collect();
        confirmed
    }

    async fn claim(&self) -> Result<(), DatabaseError> {
        let Some(stream) = self.keeper.present() else {
            return Ok(());
        };
        let shards = lease::claim_shards(&self.database, stream.id()).await?;
        self.shards.set(stream.id(), shards);
        Ok(())
    }
}

/// Takes up closed streams that are not recovered yet.
pub struct Recovery {
    database: Database,
    hint: DueHint,
}

impl Recovery {
    /// Rings `hint` when something became due.
    #[must_use]
    pub const fn new(database: Database, hint: DueHint) -> Self {
        Self { database, hint }
    }

    /// Recovers every closed stream. Answers how many.
    pub async fn run_once(&self) -> usize {
        match self.step().await {
            Ok(recovered) => recovered,
            Err(error) => {
                tracing::warn!(%error, "a closed stream could not be recovered yet");
                0
            }
        }
    }

    async fn step(&self) -> Result<usize, DatabaseError> {
        let closed = lease::to_recover(&self.database).await?;
        for stream in &closed {
            let rows = recover::recover(&self.database, *stream).await?;
            tracing::info!(stream, rows, "recovered a closed stream");
        }
        if !closed.is_empty() {
            self.hint.ring();
        }
        Ok(closed.len())
    }
}

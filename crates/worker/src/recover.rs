//! Recover: this node's lease, and what becomes of streams that nobody renews.
//!
//! [`Keeping`] renews the lease with the watermark, takes the database's time, closes streams that were seen lapsed at two
//! renewals in a row, and keeps this node's part of the shards: takes free ones, gives back what is more. No renewal waits for
//! that: what cannot be done soon is left to the next one. [`Recovery`]
//! writes what closed streams left open into `pending`; it is a loop of its own, since it may take longer than a lease lives.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::database::{Database, DatabaseError, answered};
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::lease::{self, Renewal};
use posthorn_store::recover;
use posthorn_store::shards::{self, Shards};
use posthorn_store::stream::StreamKeeper;

use crate::dispatch::Dispatcher;

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Whether the lease was renewed.
    pub renewed: bool,
    /// Streams of other nodes that this step closed.
    pub closed: usize,
}

/// What keeping needs.
pub struct KeepingParts {
    /// Leases and shards.
    pub database: Database,
    /// This node's stream.
    pub keeper: Arc<StreamKeeper>,
    /// Told the database's time.
    pub clock: Clock,
    /// For watermarks.
    pub entropy: Entropy,
    /// Told what this node owns.
    pub shards: Shards,
    /// Knows what is under way of a shard that is given back.
    pub dispatcher: Arc<Dispatcher>,
}

/// Keeps this node's stream alive, and closes streams that nobody renews.
pub struct Keeping {
    database: Database,
    keeper: Arc<StreamKeeper>,
    clock: Clock,
    entropy: Entropy,
    shards: Shards,
    dispatcher: Arc<Dispatcher>,
    /// Streams that the last renewal saw lapsed.
    suspects: Mutex<HashSet<i64>>,
}

impl Keeping {
    /// Nothing is suspected yet.
    #[must_use]
    pub fn new(parts: KeepingParts) -> Self {
        let KeepingParts {
            database,
            keeper,
            clock,
            entropy,
            shards,
            dispatcher,
        } = parts;
        Self {
            database,
            keeper,
            clock,
            entropy,
            shards,
            dispatcher,
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

    /// One step, for a loop that tells itself what goes wrong.
    pub(crate) async fn step(&self) -> Result<Tally, DatabaseError> {
        let Some(renewal) = self.renew().await? else {
            return Ok(Tally::default());
        };
        let closing_and_sharing = async {
            let closed = self.close(self.confirmed(&renewal.lapsed)).await?;
            self.share().await.map(|()| closed)
        };
        // The next renewal waits for neither: what was not done, it does.
        let closed = answered(limits::SHARING_WAIT, closing_and_sharing).await?;
        Ok(Tally {
            renewed: true,
            closed,
        })
    }

    /// Closes lapsed streams. Answers how many.
    async fn close(&self, lapsed: Vec<i64>) -> Result<usize, DatabaseError> {
        let mut closed = 0;
        for stream in lapsed {
            if lease::close_lapsed(&self.database, stream).await? {
                tracing::warn!(stream, "closed the stream of a node whose lease has lapsed");
                closed += 1;
            }
        }
        Ok(closed)
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
        let renewing = lease::renew(
            &self.database,
            stream.id(),
            watermark,
            self.keeper.sending(),
        );
        // A peer that fell silent must not cost the stream.
        let renewal = answered(limits::LEASE_RENEWAL_WAIT, renewing).await?;
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

    /// Takes free shards up to this node's part. What it owns beyond that it stops sending at once, and gives back shard by
    /// shard when nothing of one is held any more.
    async fn share(&self) -> Result<(), DatabaseError> {
        let Some(stream) = self.keeper.present() else {
            return Ok(());
        };
        let share = shards::take(&self.database, stream.id()).await?;
        let mut owned = share.owned;
        let surplus = owned.split_off(share.part.min(owned.len()));
        // Before they count as this node's: from then on it sends.
        let taken = self.shards.new_among(&owned);
        self.dispatcher.shards_taken(&taken, share.alone);
        if self.shards.keep(stream.id(), owned) {
            self.dispatcher.shards_given_up();
        }
        if surplus.is_empty() {
            return Ok(());
        }
        let quiet = self.dispatcher.quiet(&surplus);
        if !quiet.is_empty() {
            shards::give_back(&self.database, stream.id(), &quiet).await?;
            tracing::debug!(shards = quiet.len(), "gave shards back");
        }
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

    /// The same, for a loop that tells itself what goes wrong.
    pub(crate) async fn step(&self) -> Result<usize, DatabaseError> {
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

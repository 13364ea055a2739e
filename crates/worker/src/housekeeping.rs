//! Housekeeping: leaves made ahead, old ones kept from, emptied and dropped, and whatever else has had its time.
//!
//! Every node looks once a minute whether it is its turn; [`posthorn_store::housekeeping`] says what a turn is and why
//! the steps are safe to repeat. A step that fails is told and left for the next round; the others are done all the same.
//! Does not: hurry.

use std::collections::HashSet;

use chrono::NaiveDate;
use posthorn_domain::limits;
use posthorn_domain::retention::Retention;
use posthorn_store::clock::Clock;
use posthorn_store::database::{Database, DatabaseError};
use posthorn_store::entropy::Entropy;
use posthorn_store::housekeeping::{self, Housekeeper, Leaf, LeafOutcome, Turn};
use posthorn_store::idempotent::Expired;
use posthorn_store::partitions;

use crate::expire::Expiry;

/// What housekeeping is made from.
pub struct HousekeepingParts {
    /// The database.
    pub database: Database,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub entropy: Entropy,
    /// How long things are kept.
    pub retention: Retention,
}

/// This node's part in housekeeping.
pub struct Housekeeping {
    database: Database,
    clock: Clock,
    retention: Retention,
    expiry: Expiry,
    /// This node, among those that may have the turn.
    holder: i64,
}

/// What one look came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Keys that were deleted.
    pub expired: Expired,
    /// The round, where one was due.
    pub round: Option<Round>,
}

/// What a round did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Whether every step came to its end.
    pub whole: bool,
    /// Dead letters whose time was over.
    pub dead_letters: u64,
    /// Events that were copied to `kept_events`.
    pub kept: u64,
    /// Kept events that were removed.
    pub released: u64,
    /// Days whose leaves were emptied.
    pub emptied: usize,
    /// Days whose leaves were dropped.
    pub dropped: usize,
    /// Days whose leaves autovacuum was told to freeze.
    pub frozen: usize,
    /// Days whose leaves somebody was reading.
    pub in_use: usize,
}

impl Housekeeping {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(parts: HousekeepingParts) -> Self {
        let HousekeepingParts {
            database,
            clock,
            entropy,
            retention,
        } = parts;
        Self {
            expiry: Expiry::new(database.clone()),
            holder: i64::from_be_bytes(entropy.bytes()),
            database,
            clock,
            retention,
        }
    }

    /// Takes the turn if it is to be had, does what is due, and gives it back. `None`: it is another node's.
    pub async fn run_once(&self) -> Option<Kept> {
        let turn = match housekeeping::take(&self.database, self.holder).await {
            Ok(turn) => turn,
            Err(error) => {
                tracing::warn!(%error, "the turn to keep house could not be asked for");
                return None;
            }
        };
        if turn == Turn::Anothers {
            return None;
        }
        self.make_leaves().await;
        let mut kept = Kept {
            expired: self.expiry.run_once().await,
            round: None,
        };
        if turn == Turn::OursWithRound {
            kept.round = self.round().await;
        }
        if let Err(error) = housekeeping::give_back(&self.database, self.holder).await {
            tracing::warn!(%error, "the turn to keep house could not be given back");
        }
        Some(kept)
    }

    /// First of all: without leaves nothing is accepted.
    async fn make_leaves(&self) {
        let made = match partitions::days_ready(&self.database).await {
            Ok(ready) if ready > partitions::DAYS_AHEAD => Ok(0),
            Ok(_) => partitions::make_ahead(&self.database).await,
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            tracing::warn!(%error, "leaves for the coming days could not be made");
        }
    }

    async fn round(&self) -> Option<Round> {
        let housekeeper = match Housekeeper::connect(&self.database).await {
            Ok(housekeeper) => housekeeper,
            Err(error) => {
                tracing::warn!(%error, "housekeeping has no connection");
                return None;
            }
        };
        let mut steps = Steps {
            of: self,
            housekeeper,
            round: Round {
                whole: true,
                ..Round::default()
            },
        };
        steps.run().await;
        let mut round = steps.round;
        if round.whole {
            match housekeeping::finished(&self.database, self.holder).await {
                Ok(ours) => round.whole = ours,
                Err(error) => tracing::warn!(%error, "the end of a round could not be noted"),
            }
        }
        tracing::debug!(?round, "kept house");
        Some(round)
    }
}

/// One round.
struct Steps<'a> {
    of: &'a Housekeeping,
    housekeeper: Housekeeper,
    round: Round,
}

impl Steps<'_> {
    async fn run(&mut self) {
        let trimmed = self.trim().await;
        self.told("trim", trimmed);
        let removed = self.dead_letters().await;
        self.told("dead letters", removed);
        let retained = self.retain().await;
        self.told("retention", retained);
        let frozen = self.freeze().await;
        self.told("freeze", frozen);
    }

    fn told(&mut self, step: &'static str, done: Result<(), DatabaseError>) {
        if let Err(error) = done {
            self.round.whole = false;
            tracing::warn!(%error, step, "a step of housekeeping was not finished");
        }
    }

    async fn trim(&mut self) -> Result<(), DatabaseError> {
        self.housekeeper.trim_config_log().await?;
        self.housekeeper.forget_streams().await?;
        Ok(())
    }

    async fn dead_letters(&mut self) -> Result<(), DatabaseError> {
        loop {
            let days = self.of.retention.dead_letters;
            let (_, removed) = self.housekeeper.remove_dead_letters(days).await?;
            self.round.dead_letters += removed;
            if removed == 0 {
                return Ok(());
            }
        }
    }

    async fn retain(&mut self) -> Result<(), DatabaseError> {
        let days = self.of.retention.events;
        let before = self.housekeeper.floor().await?;
        let next = self.housekeeper.next_floor(days).await?;
        let mut floor = before;
        if next > before.floor {
            self.round.kept += self.housekeeper.keep(next).await?.copied;
            floor = self.housekeeper.raise_floor(days).await?;
        }
        let mut used = None;
        if floor.kept_to < floor.floor {
            let kept = self.housekeeper.keep(floor.floor).await?;
            self.round.kept += kept.copied;
            self.housekeeper.kept(floor.floor).await?;
            used = Some(kept.days);
        }
        let old: Vec<_> = self.housekeeper.leaves().await?;
        let old: Vec<_> = old
            .into_iter()
            .filter(|leaf| leaf.end().is_some_and(|end| end <= floor.floor.minted_at()))
            .collect();
        self.empty(&old).await?;
        self.drop_leaves(&old, used).await
    }

    async fn empty(&mut self, old: &[Leaf]) -> Result<(), DatabaseError> {
        for leaf in old.iter().filter(|leaf| leaf.filled) {
            let mut outcome = self.housekeeper.empty(leaf.day).await?;
            for _ in 1..limits::LEAF_TRIES {
                if outcome != LeafOutcome::InUse {
                    break;
                }
                self.of.clock.sleep(limits::LEAF_PAUSE).await;
                outcome = self.housekeeper.empty(leaf.day).await?;
            }
            match outcome {
                LeafOutcome::Done => self.round.emptied += 1,
                LeafOutcome::Nothing => {}
                LeafOutcome::InUse => self.round.in_use += 1,
            }
        }
        Ok(())
    }

    /// Drops what was empty before this round and is referred to by nothing. Kept events that go in this round still
    /// count: an attempt at one of them may not be on record yet.
    async fn drop_leaves(
        &mut self,
        old: &[Leaf],
        used: Option<HashSet<NaiveDate>>,
    ) -> Result<(), DatabaseError> {
        let released = self.housekeeper.remove_kept().await?;
        self.round.released = released.events;
        let empty: Vec<_> = old.iter().filter(|leaf| !leaf.filled).collect();
        if empty.iter().all(|leaf| released.days.contains(&leaf.day)) {
            return Ok(());
        }
        // Of a dead letter without a payload there is no kept event.
        let mut used = if let Some(days) = used {
            days
        } else {
            let floor = self.housekeeper.floor().await?;
            self.housekeeper.keep(floor.kept_to).await?.days
        };
        used.extend(released.days);
        for leaf in empty {
            if used.contains(&leaf.day) {
                continue;
            }
            match self.housekeeper.drop_leaves(leaf.day).await? {
                LeafOutcome::Done => self.round.dropped += 1,
                LeafOutcome::Nothing => {}
                LeafOutcome::InUse => self.round.in_use += 1,
            }
        }
        Ok(())
    }

    async fn freeze(&mut self) -> Result<(), DatabaseError> {
        let leaves = self.housekeeper.leaves().await?;
        let today = self.of.clock.now().date_naive();
        let cold = |leaf: &&Leaf| {
            !leaf.frozen && leaf.filled && today.signed_duration_since(leaf.day).num_days() >= 2
        };
        for leaf in leaves.iter().filter(cold) {
            match self.housekeeper.freeze(leaf.day).await? {
                LeafOutcome::Done => self.round.frozen += 1,
                LeafOutcome::Nothing => {}
                LeafOutcome::InUse => self.round.in_use += 1,
            }
        }
        Ok(())
    }
}

//! Results that cannot be recorded yet, for another transaction holds the rows that they are about.
//!
//! Most often that is a node that stands still in the middle of its own transaction, until the database ends that. Which results
//! it is, nobody says: a batch that met a lock is halved until only those are left. The halves hardly wait, and only so many of
//! them are tried before the next batch has its turn, so that neither those that share a batch with them nor those that come
//! after wait for them (INV-13). What stays locked keeps its place among the unrecorded, so that they are bounded (INV-11).

use std::collections::VecDeque;

use posthorn_domain::limits;
use posthorn_store::database::DatabaseError;
use posthorn_store::record::{LockWait, RecordError};

use super::{Desk, PAUSE, Unrecorded, facts_of};

/// What waits for locks, and whether that was told.
#[derive(Default)]
pub(super) struct Locked {
    results: VecDeque<Unrecorded>,
    told: bool,
}

impl Locked {
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The next that are tried together.
    fn take(&mut self) -> Vec<Unrecorded> {
        let count = self.results.len().min(limits::RECORD_ROWS);
        self.results.drain(..count).collect()
    }
}

impl Desk {
    /// Keeps results that met a lock until it is free.
    pub(super) fn lay_aside(&mut self, batch: Vec<Unrecorded>, error: &DatabaseError) {
        if !self.locked.told {
            tracing::warn!(%error, rows = batch.len(), "results wait for rows that another transaction holds");
            self.locked.told = true;
        }
        self.locked.results.extend(batch);
    }

    /// Records what is free by now of what was locked: all at once, else by halves. Those that are not reached are the first to be
    /// tried the next time.
    pub(super) async fn look_at_locked(&mut self) {
        if self.locked.is_empty() {
            return;
        }
        let mut parts = VecDeque::from([self.locked.take()]);
        let mut still = Vec::new();
        for _ in 0..limits::RECORD_LOCKED_LOOKS {
            let Some(mut part) = parts.pop_front() else {
                break;
            };
            match self.confirm(&facts_of(&part), LockWait::Hardly).await {
                Ok(()) => self.told(part),
                Err(RecordError::Locked(_)) if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([part, second]);
                }
                Err(RecordError::Locked(_)) => still.append(&mut part),
                Err(_) => {
                    for result in part {
                        self.alone(result).await;
                    }
                }
            }
        }
        for result in parts.into_iter().flatten().rev() {
            self.locked.results.push_front(result);
        }
        self.locked.results.extend(still);
        if self.locked.is_empty() {
            self.locked.told = false;
            tracing::info!("no result waits for another transaction any more");
        }
    }

    /// Nothing new comes any more.
    pub(super) async fn wait_for_locked(&mut self) {
        while !self.locked.is_empty() {
            self.look_at_locked().await;
            self.clock.sleep(PAUSE).await;
        }
    }
}

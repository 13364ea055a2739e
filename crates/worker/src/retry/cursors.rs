//! How far each shard was scanned. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::limits;
use posthorn_store::pending::Due;

/// How far behind its cursor a scan looks: rows that were due earlier may have committed later.
const OVERLAP: TimeDelta = TimeDelta::seconds(2);

/// A cursor for each shard, and with which shard the next scan begins.
pub(super) struct Cursors {
    at: BTreeMap<i16, DateTime<Utc>>,
    first: i16,
    restarted: Instant,
}

impl Cursors {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            at: BTreeMap::new(),
            first: 0,
            restarted: now,
        }
    }

    /// From where on each of these shards is scanned, in the order in which they are.
    pub(super) fn begin(&mut self, shards: &[i16], now: Instant) -> Vec<(i16, DateTime<Utc>)> {
        if now.saturating_duration_since(self.restarted) >= limits::DUE_RESTART {
            self.forget();
            self.restarted = now;
        }
        // One that comes back was somebody else's meanwhile.
        self.at.retain(|shard, _| shards.contains(shard));
        let mut from: Vec<_> = shards
            .iter()
            .map(|shard| (*shard, self.of(*shard)))
            .collect();
        from.sort_unstable_by_key(|(shard, _)| (*shard < self.first, *shard));
        from
    }

    fn of(&self, shard: i16) -> DateTime<Utc> {
        let at = self.at.get(&shard).copied();
        at.unwrap_or(DateTime::UNIX_EPOCH)
    }

    /// All go back to the beginning.
    pub(super) fn forget(&mut self) {
        self.at.clear();
    }

    /// Moves on to the last row seen of each shard: past it where all that was read has one and the same time (what
    /// that left is found when the scan begins anew), a little before it where everything was read. Answers whether there may
    /// be more.
    pub(super) fn advance(&mut self, due: &[Due]) -> bool {
        let cut = due.len() >= limits::DUE_ROWS;
        let mut more = cut;
        let mut last: BTreeMap<i16, (usize, DateTime<Utc>)> = BTreeMap::new();
        for row in due {
            let Some(at) = row.due else { continue };
            let seen = last.entry(shard(row)).or_insert((0, at));
            *seen = (seen.0 + 1, at);
        }
        for (shard, (rows, at)) in last {
            let full = rows >= limits::DUE_ROWS_PER_SHARD;
            more |= full;
            let next = if !full && !cut {
                at - OVERLAP
            } else if at > self.of(shard) {
                at
            } else {
                at + TimeDelta::microseconds(1)
            };
            self.at.insert(shard, next);
        }
        if let Some(row) = due.last().filter(|_| cut) {
            self.first = shard(row).saturating_add(1);
        }
        more
    }
}

fn shard(row: &Due) -> i16 {
    i16::from(row.key.endpoint.shard())
}

#[cfg(test)]
mod tests;

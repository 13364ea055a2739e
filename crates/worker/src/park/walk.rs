//! How far the sweep has come in each shard. Pure.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::limits;
use posthorn_store::pending::{ParkedEndpoint, SweptFrom};

/// The last endpoint seen of each shard that has more behind it, and with which shard the next sweep begins.
#[derive(Default)]
pub(super) struct Walk {
    seen: BTreeMap<i16, ParkedEndpoint>,
    first: i16,
}

impl Walk {
    /// From where on each of these shards is listed, in the order in which they are.
    pub(super) fn begin(&self, shards: &[i16]) -> Vec<SweptFrom> {
        let mut from: Vec<_> = shards
            .iter()
            .map(|shard| (*shard, self.seen.get(shard).copied()))
            .collect();
        from.sort_unstable_by_key(|(shard, _)| (*shard < self.first, *shard));
        from
    }

    /// Goes on behind what was listed from there. A shard that was listed to its end begins anew; one that the list did not come
    /// to stays as it is.
    pub(super) fn advance(&mut self, from: &[SweptFrom], listed: &[ParkedEndpoint]) {
        let last = listed
            .last()
            .map(shard)
            .filter(|_| at_least(listed.len(), limits::PARK_SWEEP_ENDPOINTS));
        let unvisited = from
            .iter()
            .skip_while(|(shard, _)| last.is_some_and(|last| *shard != last));
        let unvisited: BTreeSet<_> = match last {
            Some(_) => unvisited.skip(1).map(|(shard, _)| *shard).collect(),
            None => BTreeSet::new(),
        };
        self.seen.retain(|shard, _| unvisited.contains(shard));
        let mut counts: BTreeMap<i16, usize> = BTreeMap::new();
        for of in listed {
            let count = counts.entry(shard(of)).or_default();
            *count += 1;
            if at_least(*count, limits::PARK_SWEEP_PER_SHARD) {
                self.seen.insert(shard(of), *of);
            }
        }
        if let (Some(shard), Some(of)) = (last, listed.last()) {
            self.seen.insert(shard, *of);
            self.first = shard.saturating_add(1);
        }
    }
}

fn shard(of: &ParkedEndpoint) -> i16 {
    i16::from(of.endpoint.shard())
}

fn at_least(count: usize, limit: i64) -> bool {
    i64::try_from(count).is_ok_and(|count| count >= limit)
}

#[cfg(test)]
mod tests;

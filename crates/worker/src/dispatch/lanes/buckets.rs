//! The token buckets of this node. They outlive their lanes: a queue that was empty for a moment has no more tokens. And they begin
//! empty where another node had them until now: an endpoint that changes hands has no more tokens either.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthorn_domain::id::EndpointId;
use posthorn_domain::rate::{Bucket, RateLimit};

/// A bucket for each endpoint that has a rate and was sent to lately.
#[derive(Default)]
pub(super) struct Buckets {
    known: HashMap<EndpointId, (RateLimit, Bucket)>,
    /// Until when the tokens of a shard were another node's to take, of those that this one has taken up.
    taken: HashMap<u8, Duration>,
    /// The moment that their times are counted from.
    origin: Option<Instant>,
}

impl Buckets {
    /// When one more request may start, `others` having been let through that have not started: `now` or later.
    pub(super) fn next_at(
        &mut self,
        of: (EndpointId, RateLimit),
        others: usize,
        now: Instant,
    ) -> Instant {
        let (origin, since) = self.since(now);
        let at = self.bucket(of, since).next_at(since, others);
        origin.checked_add(at).unwrap_or(now).max(now)
    }

    /// Takes a token for a request that starts now; else answers how long there is none.
    pub(super) fn take(
        &mut self,
        of: (EndpointId, RateLimit),
        now: Instant,
    ) -> Result<(), Duration> {
        let (_, since) = self.since(now);
        let bucket = self.bucket(of, since);
        bucket.take(since).map_err(|at| at.saturating_sub(since))
    }

    /// These shards were another node's until then, which may have used up every token of theirs.
    pub(super) fn taken(&mut self, shards: &[i16], until: Instant) {
        let (_, since) = self.since(until);
        let shards = shards.iter().filter_map(|shard| u8::try_from(*shard).ok());
        self.taken.extend(shards.map(|shard| (shard, since)));
        for (endpoint, (_, bucket)) in &mut self.known {
            if let Some(at) = self.taken.get(&endpoint.shard()) {
                bucket.empty(*at);
            }
        }
    }

    /// Forgets those that are full: new ones are, too.
    pub(super) fn forget_full(&mut self, now: Instant) {
        let (_, since) = self.since(now);
        self.known.retain(|_, (_, bucket)| !bucket.is_full(since));
    }

    fn since(&mut self, now: Instant) -> (Instant, Duration) {
        let origin = *self.origin.get_or_insert(now);
        (origin, now.saturating_duration_since(origin))
    }

    /// The endpoint's bucket, with the limit that it has by now.
    fn bucket(
        &mut self,
        (endpoint, limit): (EndpointId, RateLimit),
        since: Duration,
    ) -> &mut Bucket {
        let taken = self.taken.get(&endpoint.shard());
        let new = || {
            let mut bucket = Bucket::full(limit);
            if let Some(at) = taken {
                bucket.empty(*at);
            }
            (limit, bucket)
        };
        let (known, bucket) = self.known.entry(endpoint).or_insert_with(new);
        if *known != limit {
            bucket.set_limit(limit, since);
            *known = limit;
        }
        bucket
    }
}

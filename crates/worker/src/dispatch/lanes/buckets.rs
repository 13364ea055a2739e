//! The token buckets of this node. They outlive their lanes: a queue that was empty for a moment has no more tokens.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use posthorn_domain::id::EndpointId;
use posthorn_domain::rate::{Bucket, RateLimit};

/// A bucket for each endpoint that has a rate and was sent to lately.
#[derive(Default)]
pub(super) struct Buckets {
    buckets: HashMap<EndpointId, (RateLimit, Bucket)>,
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

    /// Forgets those that are full: new ones are, too.
    pub(super) fn forget_full(&mut self, now: Instant) {
        let (_, since) = self.since(now);
        self.buckets.retain(|_, (_, bucket)| !bucket.is_full(since));
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
        let full = || (limit, Bucket::full(limit));
        let (known, bucket) = self.buckets.entry(endpoint).or_insert_with(full);
        if *known != limit {
            bucket.set_limit(limit, since);
            *known = limit;
        }
        bucket
    }
}

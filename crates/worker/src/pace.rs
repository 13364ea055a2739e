//! Pace: how many requests a second this node sends to endpoints that refuse some.
//!
//! Each node finds it out for itself, as senders on one line do: what a receiver takes is shared by the refusals that each of
//! them hears. An endpoint that refuses nothing costs a look at a counter. The rules are [`Pace`]'s.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posthorn_domain::id::{EndpointId, IdMap, TenantId};
use posthorn_domain::rate::{Answer, Pace, RateLimit};
use posthorn_store::configuration::Snapshot;

/// Which endpoint.
type Of = (TenantId, EndpointId);

/// The paces of this node.
pub(crate) struct Paces {
    /// The moment that their times are counted from.
    origin: Instant,
    known: Mutex<IdMap<Of, Paced>>,
    /// How many these are, to be read without the lock.
    count: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Paced {
    pace: Pace,
    /// The version of the endpoint that it is of: a changed endpoint begins afresh.
    config_seq: i64,
}

impl Paces {
    /// Nothing was refused yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            origin: now,
            known: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// Whether no endpoint has a pace.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// At what rate requests to an endpoint may start; `None`: it is not held back.
    pub(crate) fn limit(&self, of: Of, config_seq: i64) -> Option<RateLimit> {
        if self.is_empty() {
            return None;
        }
        let paces = self.paces();
        let known = paces.get(&of);
        known
            .filter(|known| known.config_seq == config_seq)
            .and_then(|known| known.pace.limit())
    }

    /// Takes in an answer to a request that began at `began`. Answers whether something else may be sent from now on.
    pub(crate) fn heard(
        &self,
        (of, config_seq): (Of, i64),
        answer: Answer,
        (began, now): (Instant, Instant),
    ) -> bool {
        if answer == Answer::Taken && self.is_empty() {
            return false;
        }
        let mut paces = self.paces();
        let before = paces
            .get(&of)
            .filter(|known| known.config_seq == config_seq)
            .map(|known| known.pace);
        let after = Pace::after(before, answer, self.since(began), self.since(now));
        match after {
            Some(pace) => drop(paces.insert(of, Paced { pace, config_seq })),
            None => drop(paces.remove(&of)),
        }
        self.count.store(paces.len(), Ordering::Relaxed);
        let limit = |pace: Option<Pace>| pace.and_then(|pace| pace.limit());
        limit(before) != limit(after)
    }

    /// An endpoint asked to be left alone, be it another node that it told: when that is over it is sent one request first.
    pub(crate) fn asked(&self, of: Of, config_seq: i64, now: Instant) {
        let mut paces = self.paces();
        let known = paces.get(&of);
        let limited = known
            .filter(|known| known.config_seq == config_seq)
            .and_then(|known| known.pace.limit());
        if limited.is_none() {
            let pace = Pace::first(self.since(now));
            paces.insert(of, Paced { pace, config_seq });
            self.count.store(paces.len(), Ordering::Relaxed);
        }
    }

    /// Forgets those that are over. Answers their endpoints: to these something else may be sent now.
    pub(crate) fn forget(&self, config: &Snapshot, now: Instant) -> Vec<Of> {
        if self.is_empty() {
            return Vec::new();
        }
        let now = self.since(now);
        let mut paces = self.paces();
        let over = |of: &Of, known: &Paced| {
            let entry = config.endpoint(of.0, of.1);
            known.pace.is_over(now)
                || entry.is_none_or(|entry| entry.config_seq != known.config_seq)
        };
        let gone = paces.extract_if(|of, known| over(of, known));
        let gone = gone.map(|(of, _)| of).collect();
        self.count.store(paces.len(), Ordering::Relaxed);
        gone
    }

    fn since(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.origin)
    }

    fn paces(&self) -> MutexGuard<'_, IdMap<Of, Paced>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

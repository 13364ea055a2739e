//! Backpressure: events wait before they are accepted, while endpoints of theirs are behind.
//!
//! More can be accepted than can be sent, and what waits too long in memory goes to `pending`, from where sending it costs
//! several times as much. So the dispatcher says which endpoints are behind for want of anything free on this node, and an
//! event for one of them waits: a caller that waits for its answers then submits as fast as is sent. It waits for
//! [`limits::HELD_BACK`] at most; then it is accepted all the same, since a burst is what a queue is for.
//!
//! Tenants are let in by turns, each tenant's events in the order in which they came, except that none waits for an endpoint
//! that it is not for (INV-13). How many may wait is bounded by the places of the accept queue, which they hold (INV-11).

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthorn_domain::id::{EndpointId, IdMap, TenantId};
use posthorn_domain::limits;
use tokio::sync::oneshot;

/// What passes from a node's dispatcher to its acceptor. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Backpressure {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Some endpoint is behind, or some event waits. Most of the time it is not, and that is all an event costs.
    on: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    behind: HashSet<EndpointId>,
    /// How many events wait for each endpoint.
    awaited: IdMap<EndpointId, usize>,
    tenants: IdMap<TenantId, VecDeque<Held>>,
    /// Tenants with events that wait, the next one in front.
    turns: VecDeque<TenantId>,
}

/// An event that waits.
#[derive(Debug)]
struct Held {
    endpoints: Arc<[EndpointId]>,
    let_in: oneshot::Sender<()>,
}

impl Backpressure {
    /// Returns when an event for these endpoints may be accepted.
    pub(super) async fn hold(&self, tenant: TenantId, endpoints: &[EndpointId]) {
        if !self.is_on() {
            return;
        }
        let Some(let_in) = self.lock().hold(tenant, endpoints) else {
            return;
        };
        metrics::counter!("posthorn_events_held_back_total").increment(1);
        // Let in or overdue: it is accepted either way.
        drop(tokio::time::timeout(limits::HELD_BACK, let_in).await);
    }

    /// These endpoints are behind now, and no others; so many fresh deliveries were started since the last call, which lets
    /// as many in. To be called again every [`limits::BEHIND_LOOK`] while [`Backpressure::is_on`].
    pub fn tell(&self, behind: HashSet<EndpointId>, started: usize) {
        let mut waiting = self.lock();
        waiting.behind = behind;
        waiting.let_in(started.max(limits::LET_IN_LEAST));
        let on = !waiting.behind.is_empty() || !waiting.tenants.is_empty();
        self.shared.on.store(on, Ordering::Release);
    }

    /// Whether anything is behind, or waits.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.shared.on.load(Ordering::Acquire)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        let waiting = &self.shared.waiting;
        waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Queues an event where one of its endpoints is behind, or others wait for it already.
    fn hold(
        &mut self,
        tenant: TenantId,
        endpoints: &[EndpointId],
    ) -> Option<oneshot::Receiver<()>> {
        let mut of = endpoints.iter();
        if !of.any(|endpoint| self.behind.contains(endpoint) || self.awaited.contains_key(endpoint))
        {
            return None;
        }
        for endpoint in endpoints {
            *self.awaited.entry(*endpoint).or_default() += 1;
        }
        let queue = self.tenants.entry(tenant).or_default();
        if queue.is_empty() {
            self.turns.push_back(tenant);
        }
        let (let_in, receiver) = oneshot::channel();
        queue.push_back(Held {
            endpoints: endpoints.into(),
            let_in,
        });
        Some(receiver)
    }

    /// Lets events in that bring so many deliveries, or the last of them a few more.
    fn let_in(&mut self, deliveries: usize) {
        let mut left = deliveries;
        while left > 0 && !self.turns.is_empty() {
            let before = left;
            let turn = (left / self.turns.len()).max(limits::LET_IN_TURN);
            for _ in 0..self.turns.len() {
                if left > 0
                    && let Some(tenant) = self.turns.pop_front()
                {
                    left = left.saturating_sub(self.turn(tenant, turn.min(left)));
                }
            }
            if left == before {
                return;
            }
        }
    }

    /// One turn of a tenant: lets in what is for no endpoint that is behind, up to so many deliveries and the last event a few
    /// more, and forgets whoever waits no longer. Answers how many deliveries that were.
    fn turn(&mut self, tenant: TenantId, deliveries: usize) -> usize {
        let Some(queue) = self.tenants.remove(&tenant) else {
            return 0;
        };
        let mut came = 0;
        let mut rest = VecDeque::with_capacity(queue.len());
        for held in queue {
            if held.let_in.is_closed() {
                self.forget(&held);
            } else if came < deliveries && !held.is_behind(&self.behind) {
                came += held.endpoints.len();
                self.forget(&held);
                // Nobody's loss if it went away just now.
                let _ = held.let_in.send(());
            } else {
                rest.push_back(held);
            }
        }
        if !rest.is_empty() {
            self.tenants.insert(tenant, rest);
            self.turns.push_back(tenant);
        }
        came
    }

    /// An event waits no longer.
    fn forget(&mut self, held: &Held) {
        for endpoint in &*held.endpoints {
            if let Some(count) = self.awaited.get_mut(endpoint) {
                *count -= 1;
                if *count == 0 {
                    self.awaited.remove(endpoint);
                }
            }
        }
    }
}

impl Held {
    fn is_behind(&self, behind: &HashSet<EndpointId>) -> bool {
        self.endpoints
            .iter()
            .any(|endpoint| behind.contains(endpoint))
    }
}

#[cfg(test)]
mod tests;

//! The connections that wait for their next request, by tenant and origin.
//!
//! Guarantees: an HTTP/1.1 connection is kept for no longer than [`limits::EGRESS_IDLE`], an HTTP/2 connection for no longer than
//! that after its last request, and no more than [`limits::EGRESS_IDLE_CONNECTIONS`] are kept over all of them. What was used last
//! is used next, so that what is too much grows old and goes.
//!
//! No connection carries requests of two tenants (INV-9). Over HTTP/1.1 an answer belongs to the request before it by order alone: one that
//! a receiver writes unasked, when the next request is on its way, is read as the answer to that. Over HTTP/2 it names its
//! request, but a connection is still one fate: a receiver that is put off by one request, or whoever filters before it, ends all that are
//! under way by GOAWAY or a reset, and a body that it does not read takes up the window of all. Endpoints of one tenant at one
//! origin do share: both are the same customer's to set up and to take down, and many go to one gateway.
//!
//! Time is counted in rounds of one sweep, which runs while there is something to close: what becomes idle need not ask what
//! time it is, and a connection that its receiver has closed is let go of although nothing is sent.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use posthorn_domain::{id::TenantId, limits};
use tokio::time::MissedTickBehavior;

use crate::{
    http1::Http1,
    http2::{Http2, Place},
};

/// What becomes idle in one round is closed at the end of the round so many later, [`limits::EGRESS_IDLE`] at most.
const ROUNDS: u32 = 3;

/// A way to send a request.
pub(crate) enum Way {
    /// A connection of one's own.
    Http1(Box<Http1>),
    /// A place on one that is shared.
    Http2(Place),
}

impl Way {
    /// Whom it goes to.
    pub(crate) fn remote(&self) -> SocketAddr {
        match self {
            Self::Http1(connection) => connection.remote(),
            Self::Http2(place) => place.remote(),
        }
    }
}

/// Whose requests may share a connection.
#[derive(Clone, Copy)]
pub(crate) struct Sharers<'a> {
    /// This tenant's.
    pub(crate) tenant: TenantId,
    /// To this scheme, host and port.
    pub(crate) origin: &'a str,
}

/// The connections that are kept.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    tenants: HashMap<TenantId, HashMap<Box<str>, Origin>>,
    /// How many origins of all tenants.
    origins: usize,
    /// How many connections of all origins.
    count: usize,
    round: u32,
    /// The sweep runs.
    swept: bool,
}

#[derive(Default)]
struct Origin {
    /// With the round in which each became idle; the last is the youngest.
    idle: Vec<(u32, Box<Http1>)>,
    /// With the round in which each was last used. The first that has room is used, so that those that are too many grow old.
    shared: Vec<(u32, Arc<Http2>)>,
}

impl Pool {
    /// Takes the way by which the last request of these went, if it is still there. Whether it still leads anywhere shows when
    /// it is used.
    pub(crate) fn take(&self, of: Sharers<'_>) -> Option<Way> {
        let mut guard = self.kept();
        let kept = &mut *guard;
        let origins = kept.tenants.get_mut(&of.tenant)?;
        let origin = origins.get_mut(of.origin)?;
        if !origin.shared.is_empty() {
            let before = origin.shared.len();
            origin.shared.retain(|(_, shared)| !shared.is_closed());
            kept.count -= before - origin.shared.len();
            for (used, shared) in &mut origin.shared {
                if let Some(place) = shared.place() {
                    *used = kept.round;
                    return Some(Way::Http2(place));
                }
            }
        }
        let (_, connection) = origin.idle.pop()?;
        kept.count -= 1;
        // An origin stays until the next sweep: most are back in a moment.
        if origin.len() == 0 && kept.origins > limits::EGRESS_IDLE_CONNECTIONS {
            origins.remove(of.origin);
            kept.origins -= 1;
            if origins.is_empty() {
                kept.tenants.remove(&of.tenant);
            }
        }
        Some(Way::Http1(connection))
    }

    /// Keeps a connection for the next request of these, or closes it where enough are kept.
    pub(crate) fn put(self: &Arc<Self>, of: Sharers<'_>, connection: Box<Http1>) {
        let mut kept = self.kept();
        if kept.count < limits::EGRESS_IDLE_CONNECTIONS {
            let idle = (kept.round, connection);
            kept.origin(of, |origin| origin.idle.push(idle));
            kept.count += 1;
            self.sweep_later(&mut kept);
        } else {
            drop(kept);
            connection.close();
        }
    }

    /// Shares a new connection with all requests of these, where not enough are kept. The first place on it is answered.
    pub(crate) fn share(self: &Arc<Self>, of: Sharers<'_>, connection: Http2) -> Place {
        let connection = Arc::new(connection);
        let place = connection.next_place();
        let mut kept = self.kept();
        if kept.count < limits::EGRESS_IDLE_CONNECTIONS {
            let shared = (kept.round, connection);
            kept.origin(of, |origin| origin.shared.push(shared));
            kept.count += 1;
            self.sweep_later(&mut kept);
        }
        place
    }

    /// Closes what lies idle for these. A request has just been lost on such a connection, and what broke it (a receiver that was
    /// restarted, a way that forgets what is quiet) has most likely broken the others, too: the next request takes none that has
    /// carried no answer since. HTTP/2 finds out by its pings.
    pub(crate) fn distrust(&self, of: Sharers<'_>) {
        let mut kept = self.kept();
        let origins = kept.tenants.get_mut(&of.tenant);
        let Some(origin) = origins.and_then(|origins| origins.get_mut(of.origin)) else {
            return;
        };
        let idle = std::mem::take(&mut origin.idle);
        kept.count -= idle.len();
        drop(kept);
        for (_, connection) in idle {
            connection.close();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sweep_later(self: &Arc<Self>, kept: &mut Kept) {
        if !kept.swept {
            kept.swept = true;
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Ends a round: closes what has been idle for too long. Answers whether anything is left.
    fn end_round(&self) -> bool {
        let mut kept = self.kept();
        let old = kept.end_round();
        let left = kept.count > 0;
        kept.swept = left;
        drop(kept);
        for (_, connection) in old {
            connection.close();
        }
        left
    }
}

impl Kept {
    fn origin<T>(&mut self, of: Sharers<'_>, change: impl FnOnce(&mut Origin) -> T) -> T {
        let origins = self.tenants.entry(of.tenant).or_default();
        if let Some(known) = origins.get_mut(of.origin) {
            return change(known);
        }
        self.origins += 1;
        change(origins.entry(of.origin.into()).or_default())
    }

    /// Takes out what has been idle for too long, and what nobody can use.
    fn end_round(&mut self) -> Vec<(u32, Box<Http1>)> {
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        let is_old = |since: u32| round.wrapping_sub(since) >= ROUNDS;
        let mut old = Vec::new();
        (self.origins, self.count) = (0, 0);
        self.tenants.retain(|_, origins| {
            origins.retain(|_, origin| {
                old.extend(origin.idle.extract_if(.., |(since, _)| is_old(*since)));
                origin.shared.retain_mut(|(used, shared)| {
                    if Arc::strong_count(shared) > 1 {
                        *used = round;
                    }
                    !is_old(*used) && !shared.is_closed()
                });
                self.count += origin.len();
                origin.len() > 0
            });
            self.origins += origins.len();
            !origins.is_empty()
        });
        old
    }
}

impl Origin {
    /// How many connections.
    fn len(&self) -> usize {
        self.idle.len() + self.shared.len()
    }
}

async fn sweep(pool: Weak<Pool>) {
    let mut rounds = tokio::time::interval(limits::EGRESS_IDLE / ROUNDS);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first is at once.
    rounds.tick().await;
    loop {
        rounds.tick().await;
        match pool.upgrade() {
            Some(pool) if pool.end_round() => {}
            Some(_) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::url::EndpointUrl;
    use posthorn_tests::receiver::Receiver;
    use tokio::net::TcpStream;
    use uuid::Uuid;

    use super::*;
    use crate::{connection::Connection, target::Target};

    /// The requests of one of some tenants.
    fn of(tenant: u128, origin: &str) -> Sharers<'_> {
        Sharers {
            tenant: TenantId::from_uuid(Uuid::from_u128(tenant)),
            origin,
        }
    }

    async fn connection(receiver: &Receiver) -> Box<Http1> {
        let stream = TcpStream::connect(receiver.address()).await.unwrap();
        let url = EndpointUrl::parse(&receiver.url("/")).unwrap();
        let connection = Connection::plain(stream, receiver.address());
        Box::new(
            Http1::begin(connection, Target::of(of(1, "").tenant, &url))
                .await
                .unwrap(),
        )
    }

    #[tokio::test]
    async fn no_more_than_the_bound_are_kept_over_all_tenants_and_origins() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        for n in 0..=limits::EGRESS_IDLE_CONNECTIONS {
            let (connection, tenant) = (connection(&receiver).await, n as u128 % 11);
            pool.put(of(tenant, &format!("http://origin-{}", n % 7)), connection);
        }
        assert_eq!(pool.kept().count, limits::EGRESS_IDLE_CONNECTIONS);
        while receiver.open_connections() > limits::EGRESS_IDLE_CONNECTIONS {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_was_idle_for_all_rounds_is_closed_and_nothing_else() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        pool.put(of(1, "http://a"), connection(&receiver).await);
        for _ in 1..ROUNDS {
            assert!(pool.end_round());
        }
        pool.put(of(1, "http://a"), connection(&receiver).await);
        assert!(pool.end_round());
        assert_eq!(pool.kept().count, 1);
        assert!(pool.take(of(1, "http://a")).is_some());
        assert!(pool.take(of(1, "http://a")).is_none());
    }

    #[tokio::test]
    async fn what_one_tenant_has_left_no_other_takes() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        pool.put(of(1, "http://a"), connection(&receiver).await);
        assert!(pool.take(of(2, "http://a")).is_none());
        assert!(pool.take(of(1, "http://b")).is_none());
        assert!(pool.take(of(1, "http://a")).is_some());
    }

    #[tokio::test]
    async fn origins_without_connections_are_forgotten() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        pool.put(of(1, "http://a"), connection(&receiver).await);
        drop(pool.take(of(1, "http://a")));
        assert!(!pool.end_round());
        let kept = pool.kept();
        assert!(kept.tenants.is_empty());
        assert_eq!(kept.origins, 0);
    }
}

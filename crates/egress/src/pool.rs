//! The connections that wait for their next request, by origin.
//!
//! Guarantees: an HTTP/1.1 connection is kept for no longer than [`limits::EGRESS_IDLE`], an HTTP/2 connection for no longer than
//! that after its last request, and no more than [`limits::EGRESS_IDLE_CONNECTIONS`] are kept over all origins. What was used last
//! is used next, so that what is too much grows old and goes.
//!
//! Time is counted in rounds of one sweep, which runs while there is something to close: what becomes idle need not ask what
//! time it is, and a connection that its receiver has closed is let go of although nothing is sent.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use posthorn_domain::limits;
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

/// The connections that are kept.
#[derive(Default)]
pub(crate) struct Pool {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    origins: HashMap<Box<str>, Origin>,
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
    /// Takes the way by which the last request to an origin went, if it is still there. Whether it still leads anywhere shows when
    /// it is used.
    pub(crate) fn take(&self, origin: &str) -> Option<Way> {
        let mut guard = self.kept();
        let kept = &mut *guard;
        let of = kept.origins.get_mut(origin)?;
        if !of.shared.is_empty() {
            let before = of.shared.len();
            of.shared.retain(|(_, shared)| !shared.is_closed());
            kept.count -= before - of.shared.len();
            for (used, shared) in &mut of.shared {
                if let Some(place) = shared.place() {
                    *used = kept.round;
                    return Some(Way::Http2(place));
                }
            }
        }
        let (_, connection) = of.idle.pop()?;
        kept.count -= 1;
        // An origin stays until the next sweep: most are back in a moment.
        if of.idle.is_empty() && kept.origins.len() > limits::EGRESS_IDLE_CONNECTIONS {
            kept.origins.remove(origin);
        }
        Some(Way::Http1(connection))
    }

    /// Keeps a connection for the next request to its origin, or closes it where enough are kept.
    pub(crate) fn put(self: &Arc<Self>, origin: &str, connection: Box<Http1>) {
        let mut kept = self.kept();
        if kept.count < limits::EGRESS_IDLE_CONNECTIONS {
            let idle = (kept.round, connection);
            kept.origin(origin, |of| of.idle.push(idle));
            kept.count += 1;
            self.sweep_later(&mut kept);
        } else {
            drop(kept);
            connection.close();
        }
    }

    /// Shares a new connection with all requests to its origin, where not enough are kept. The first place on it is answered.
    pub(crate) fn share(self: &Arc<Self>, origin: &str, connection: Http2) -> Place {
        let connection = Arc::new(connection);
        let place = connection.next_place();
        let mut kept = self.kept();
        if kept.count < limits::EGRESS_IDLE_CONNECTIONS {
            let shared = (kept.round, connection);
            kept.origin(origin, |of| of.shared.push(shared));
            kept.count += 1;
            self.sweep_later(&mut kept);
        }
        place
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
    fn origin<T>(&mut self, origin: &str, change: impl FnOnce(&mut Origin) -> T) -> T {
        match self.origins.get_mut(origin) {
            Some(known) => change(known),
            None => change(self.origins.entry(origin.into()).or_default()),
        }
    }

    /// Takes out what has been idle for too long, and what nobody can use.
    fn end_round(&mut self) -> Vec<(u32, Box<Http1>)> {
        self.round = self.round.wrapping_add(1);
        let round = self.round;
        let is_old = |since: u32| round.wrapping_sub(since) >= ROUNDS;
        let mut old = Vec::new();
        self.count = 0;
        self.origins.retain(|_, of| {
            old.extend(of.idle.extract_if(.., |(since, _)| is_old(*since)));
            of.shared.retain_mut(|(used, shared)| {
                if Arc::strong_count(shared) > 1 {
                    *used = round;
                }
                !is_old(*used) && !shared.is_closed()
            });
            let left = of.idle.len() + of.shared.len();
            self.count += left;
            left > 0
        });
        old
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

    use super::*;
    use crate::{connection::Connection, target::Target};

    async fn connection(receiver: &Receiver) -> Box<Http1> {
        let stream = TcpStream::connect(receiver.address()).await.unwrap();
        let url = EndpointUrl::parse(&receiver.url("/")).unwrap();
        let connection = Connection::plain(stream, receiver.address());
        Box::new(Http1::begin(connection, Target::of(&url)).await.unwrap())
    }

    #[tokio::test]
    async fn no_more_than_the_bound_are_kept_over_all_origins() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        for n in 0..=limits::EGRESS_IDLE_CONNECTIONS {
            let connection = connection(&receiver).await;
            pool.put(&format!("http://origin-{}", n % 7), connection);
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
        pool.put("http://a", connection(&receiver).await);
        for _ in 1..ROUNDS {
            assert!(pool.end_round());
        }
        pool.put("http://a", connection(&receiver).await);
        assert!(pool.end_round());
        assert_eq!(pool.kept().count, 1);
        assert!(pool.take("http://a").is_some());
        assert!(pool.take("http://a").is_none());
    }

    #[tokio::test]
    async fn origins_without_connections_are_forgotten() {
        let receiver = Receiver::start().await.unwrap();
        let pool = Arc::new(Pool::default());
        pool.put("http://a", connection(&receiver).await);
        drop(pool.take("http://a"));
        assert!(!pool.end_round());
        assert!(pool.kept().origins.is_empty());
    }
}

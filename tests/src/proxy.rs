//! A proxy between the server and PostgreSQL, over loopback, which can lose what is said on the way.
//!
//! Guarantees: bytes pass as they are while nothing else is asked for; what is to be lost is told by bytes that are in it, so
//! that a test need not guess the moment, or by the number of its connection, for tests that do not care which; everything
//! ends when this is dropped. Does not: understand TLS, or the protocol beyond the message that ends every answer.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::wait::pause;

/// `ReadyForQuery` without its last byte, the state of the transaction: the last message of every answer, when all is done
/// and what was committed is durable.
const READY: &[u8] = b"Z\0\0\0\x05";

/// What becomes of a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They pass.
    Open,
    /// They wait, both ways, until the way is open again. New connections are taken, and wait too.
    Stalled,
    /// Every connection is closed, and each new one at once.
    Cut,
}

/// What becomes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its bytes pass.
    Pass,
    /// It is closed.
    Cut,
    /// The next answer on it does not arrive; then it is closed.
    Deaf,
    /// Nothing on it arrives any more, either way, and it is not closed.
    Silent,
}

/// What is lost, once.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Bytes that tell the connection: the first of them to be written after the loss was asked for.
    pub marker: Bytes,
    /// Bytes that tell the request on it, looked for after the marker. Empty: the request with the marker itself.
    pub request: Bytes,
    /// Which of the two does not arrive. Then the connection is closed, unless everything is lost.
    pub lost: Lost,
}

/// Which part of an exchange is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The request never reaches the database.
    Request,
    /// The database has done it all, and nobody hears.
    Answer,
    /// The request does not arrive, and the connection is not closed either: nobody answers on it any more.
    Everything,
}

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    way: watch::Sender<Way>,
    /// Microseconds that everything takes longer, each way.
    delay: AtomicU64,
    /// What becomes of connections that come.
    newcomers: Mutex<Fate>,
    /// The connections that are open, in the order in which they came.
    lines: Mutex<BTreeMap<u64, watch::Sender<Fate>>>,
    loss: Mutex<Option<Loss>>,
    losses: watch::Sender<usize>,
}

impl Shared {
    fn lines(&self) -> MutexGuard<'_, BTreeMap<u64, watch::Sender<Fate>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the loss if these bytes hold its marker.
    fn marked(&self, window: &[u8]) -> Option<Loss> {
        let mut loss = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        loss.take_if(|loss| find(window, &loss.marker).is_some())
    }
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, before `to`, such as `127.0.0.1:5432`.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(to: String) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            way: watch::Sender::new(Way::Open),
            delay: AtomicU64::new(0),
            newcomers: Mutex::new(Fate::Pass),
            lines: Mutex::default(),
            loss: Mutex::new(None),
            losses: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, to, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what becomes of all connections from now on.
    pub fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// Everything takes so much longer from now on, each way.
    pub fn delay(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.shared.delay.store(micros, Ordering::Relaxed);
    }

    /// Decides about one of the connections whose bytes pass: the `drawn`-th, counted round and round.
    pub fn decide(&self, drawn: usize, fate: Fate) {
        let lines = self.shared.lines();
        let passing: Vec<_> = lines
            .values()
            .filter(|line| *line.borrow() == Fate::Pass)
            .collect();
        let one = drawn.checked_rem(passing.len());
        if let Some(line) = one.and_then(|number| passing.get(number)) {
            line.send_replace(fate);
        }
    }

    /// Decides about the connections that come from now on.
    pub fn decide_newcomers(&self, fate: Fate) {
        let newcomers = &self.shared.newcomers;
        *newcomers.lock().unwrap_or_else(PoisonError::into_inner) = fate;
    }

    /// Decides about all connections that there are. Those that come later pass.
    pub fn decide_all(&self, fate: Fate) {
        for line in self.shared.lines().values() {
            line.send_replace(fate);
        }
    }

    /// Loses this when it comes; once.
    pub fn lose(&self, loss: Loss) {
        *self
            .shared
            .loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(loss);
    }

    /// Waits until as many things were lost in all.
    pub async fn lost(&self, count: usize) {
        let mut losses = self.shared.losses.subscribe();
        // The sender lives as long as this does.
        let _ = losses.wait_for(|lost| *lost >= count).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, to: String, shared: Arc<Shared>) {
    // Held here, so that they end with this.
    let mut connections = JoinSet::new();
    let mut number = 0;
    while let Ok((client, _)) = listener.accept().await {
        number += 1;
        let newcomers = shared.newcomers.lock().map(|fate| *fate);
        let fate = watch::Sender::new(newcomers.unwrap_or(Fate::Pass));
        shared.lines().insert(number, fate.clone());
        let (to, shared) = (to.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            pass(client, to, &shared, &fate).await;
            shared.lines().remove(&number);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Both directions of one connection, until one side closes it, it is cut, or a loss ends it.
async fn pass(client: TcpStream, to: String, shared: &Shared, fate: &watch::Sender<Fate>) {
    let (mut way, mut own) = (shared.way.subscribe(), fate.subscribe());
    let all_cut = async { way.wait_for(|way| *way == Way::Cut).await.map(drop) };
    let cut = async { own.wait_for(|fate| *fate == Fate::Cut).await.map(drop) };
    let exchange = async {
        let server = TcpStream::connect(&to).await?;
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            ended = requests(from_client, to_server, shared, fate) => ended,
            ended = answers(from_server, to_client, shared, fate) => ended,
        }
    };
    // What goes wrong on a connection is for its two sides to notice.
    tokio::select! {
        _ = all_cut => {}
        _ = cut => {}
        _ = exchange => {}
    }
}

/// Client to server. Looks for what is to be lost.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    fate: &watch::Sender<Fate>,
) -> io::Result<()> {
    let mut seen = BytesMut::new();
    let mut loss: Option<Loss> = None;
    let mut bytes = BytesMut::with_capacity(64 * 1024);
    while from.read_buf(&mut bytes).await? > 0 {
        open(shared, fate).await;
        seen.extend_from_slice(&bytes);
        loss = loss.or_else(|| shared.marked(&seen));
        let due = loss
            .as_ref()
            .is_some_and(|loss| loss.request.is_empty() || find(&seen, &loss.request).is_some());
        match loss.as_ref().map(|loss| loss.lost) {
            Some(Lost::Request) if due => {
                shared.losses.send_modify(|count| *count += 1);
                return Ok(());
            }
            Some(Lost::Answer) if due => {
                fate.send_replace(Fate::Deaf);
            }
            Some(Lost::Everything) if due => {
                fate.send_replace(Fate::Silent);
                shared.losses.send_modify(|count| *count += 1);
                std::future::pending::<()>().await;
            }
            _ => {}
        }
        to.write_all(&bytes).await?;
        bytes.clear();
        // Enough for a marker that is cut in two.
        let keep = seen.len().saturating_sub(256);
        drop(seen.split_to(keep));
    }
    Ok(())
}

/// Server to client; once deaf, only until the answer is whole. That the server closes is something that it says, too.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    fate: &watch::Sender<Fate>,
) -> io::Result<()> {
    let mut tail = BytesMut::new();
    let mut bytes = BytesMut::with_capacity(64 * 1024);
    loop {
        let read = from.read_buf(&mut bytes).await;
        if *fate.borrow() != Fate::Deaf {
            open(shared, fate).await;
        }
        if read? == 0 {
            return Ok(());
        }
        if *fate.borrow() == Fate::Deaf {
            tail.extend_from_slice(&bytes);
            if is_whole(&tail) {
                shared.losses.send_modify(|count| *count += 1);
                return Ok(());
            }
        } else {
            to.write_all(&bytes).await?;
        }
        bytes.clear();
    }
}

/// Waits while the way is stalled, for as long as everything is delayed, and for ever where nothing is to arrive.
async fn open(shared: &Shared, fate: &watch::Sender<Fate>) {
    let delay = Duration::from_micros(shared.delay.load(Ordering::Relaxed));
    if !delay.is_zero() {
        pause(delay).await;
    }
    let mut way = shared.way.subscribe();
    let _ = way.wait_for(|way| *way != Way::Stalled).await;
    if *fate.borrow() == Fate::Silent {
        std::future::pending::<()>().await;
    }
}

/// Whether an answer ends with these bytes.
fn is_whole(answer: &[u8]) -> bool {
    answer
        .split_last()
        .is_some_and(|(_, before)| before.ends_with(READY))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len().max(1))
        .position(|window| window == wanted)
}

//! A proxy between the server and PostgreSQL, over loopback, which can lose what is said on the way.
//!
//! Guarantees: bytes pass as they are while nothing else is asked for; what is to be lost is told by bytes that are in it, so
//! that a test need not guess the moment; everything ends when this is dropped. Does not: understand TLS, or the protocol
//! beyond the message that ends every answer.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// `ReadyForQuery`, idle: the last message of an answer outside a transaction, when all is done and durable.
const READY: &[u8] = b"Z\0\0\0\x05I";

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
    loss: Mutex<Option<Loss>>,
    losses: watch::Sender<usize>,
}

impl Shared {
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
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, to.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// Both directions of one connection, until one side closes it, it is cut, or a loss ends it.
async fn pass(client: TcpStream, to: String, shared: Arc<Shared>) {
    let mut way = shared.way.subscribe();
    let cut = async { way.wait_for(|way| *way == Way::Cut).await.map(drop) };
    let exchange = async {
        let server = TcpStream::connect(&to).await?;
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let deaf = watch::Sender::new(false);
        tokio::select! {
            ended = requests(from_client, to_server, &shared, &deaf) => ended,
            ended = answers(from_server, to_client, &shared, deaf.subscribe()) => ended,
        }
    };
    // What goes wrong on a connection is for its two sides to notice.
    tokio::select! {
        _ = cut => {}
        _ = exchange => {}
    }
}

/// Client to server. Looks for what is to be lost.
async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    deaf: &watch::Sender<bool>,
) -> io::Result<()> {
    let mut way = shared.way.subscribe();
    let mut seen = BytesMut::new();
    let mut loss: Option<Loss> = None;
    let mut bytes = BytesMut::with_capacity(64 * 1024);
    while from.read_buf(&mut bytes).await? > 0 {
        open(&mut way).await;
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
                deaf.send_replace(true);
            }
            Some(Lost::Everything) if due => {
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

/// Server to client; once deaf, only until the answer is whole.
async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    deaf: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut way = shared.way.subscribe();
    let mut tail = BytesMut::new();
    let mut bytes = BytesMut::with_capacity(64 * 1024);
    while from.read_buf(&mut bytes).await? > 0 {
        if *deaf.borrow() {
            tail.extend_from_slice(&bytes);
            if tail.ends_with(READY) {
                shared.losses.send_modify(|count| *count += 1);
                return Ok(());
            }
        } else {
            open(&mut way).await;
            to.write_all(&bytes).await?;
        }
        bytes.clear();
    }
    Ok(())
}

/// Waits while the way is stalled.
async fn open(way: &mut watch::Receiver<Way>) {
    let _ = way.wait_for(|way| *way != Way::Stalled).await;
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len().max(1))
        .position(|window| window == wanted)
}

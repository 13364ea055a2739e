//! A scriptable HTTP/1.1 endpoint on a raw socket. It records every request byte for byte and answers as told, rightly or
//! wrongly.
//!
//! ```no_run
//! # async fn example() -> std::io::Result<()> {
//! use std::time::Duration;
//! use posthorn_tests::receiver::{Receiver, Reply, Script};
//!
//! let receiver = Receiver::start().await?;
//! receiver.script("/flaky", Script::first(2, Reply::status(500)).then(Reply::status(200)));
//! // … have something sent to receiver.url("/flaky") …
//! let requests = receiver.wait_for("/flaky", 3, Duration::from_secs(10)).await;
//! assert_eq!(requests[0].header("webhook-id"), requests[2].header("webhook-id"));
//! # Ok(())
//! # }
//! ```
//!
//! A path without a script is answered 200 without a body.

mod connection;
pub mod http2;
mod received;
mod reply;

pub use received::Received;
pub use reply::{Reply, Script};

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use crate::environment;

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAccept {
    /// Requests are read and answered.
    #[default]
    Serve,
    /// It is reset at once.
    Reset,
    /// It is closed at once.
    Close,
    /// It is held open, unread.
    Hang,
    /// It is reset when this many bytes have been read.
    ResetAfter(usize),
    /// Whatever comes first is answered with these bytes, and the connection is closed.
    Say(&'static [u8]),
}

/// A running endpoint. Dropping it closes its port and its connections.
pub struct Receiver {
    address: SocketAddr,
    secure: bool,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Shared {
    scripts: Mutex<HashMap<String, Script>>,
    on_accept: Mutex<OnAccept>,
    requests: Mutex<Vec<Received>>,
    /// How many requests there are; what waiters watch.
    arrived: watch::Sender<usize>,
    connections: AtomicUsize,
    open: AtomicUsize,
    server_names: Mutex<Vec<Option<String>>>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Listens on an address, such as that of a receiver that was dropped, or `[::1]:0`.
    ///
    /// # Errors
    ///
    /// When the address cannot be had.
    pub async fn start_at(address: SocketAddr) -> io::Result<Self> {
        Self::listen(address, None).await
    }

    /// Listens on a free port of 127.0.0.1 and speaks TLS.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start_tls(config: Arc<ServerConfig>) -> io::Result<Self> {
        Self::listen(
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            Some(TlsAcceptor::from(config)),
        )
        .await
    }

    async fn listen(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        environment::raise_open_files();
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let secure = tls.is_some();
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            secure,
            shared,
            accepting,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path; the path begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// Sets how a path (without query) is answered from now on.
    pub fn script(&self, path: &str, script: impl Into<Script>) {
        lock(&self.shared.scripts).insert(path.to_owned(), script.into());
    }

    /// Sets what happens to new connections.
    pub fn on_accept(&self, what: OnAccept) {
        *lock(&self.shared.on_accept) = what;
    }

    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Received> {
        lock(&self.shared.requests).clone()
    }

    /// Every request so far to a path, in the order of arrival.
    #[must_use]
    pub fn requests_to(&self, path: &str) -> Vec<Received> {
        lock(&self.shared.requests)
            .iter()
            .filter(|request| request.path() == path)
            .cloned()
            .collect()
    }

    /// What `look` makes of every request so far, in the order of arrival, without keeping a copy of each.
    #[must_use]
    pub fn map<T>(&self, look: impl FnMut(&Received) -> T) -> Vec<T> {
        lock(&self.shared.requests).iter().map(look).collect()
    }

    /// How many connections were ever accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The name that each handshake asked for (SNI), in order.
    #[must_use]
    pub fn server_names(&self) -> Vec<Option<String>> {
        lock(&self.shared.server_names).clone()
    }

    /// Waits until at least `count` requests have arrived at a path, and returns those there are.
    ///
    /// # Panics
    ///
    /// When they have not arrived `within` the time; the text says what did.
    #[expect(clippy::panic, reason = "an assertion of the test that waits")]
    pub async fn wait_for(&self, path: &str, count: usize, within: Duration) -> Vec<Received> {
        let mut arrived = self.shared.arrived.subscribe();
        let waiting = async {
            loop {
                arrived.borrow_and_update();
                let here = self.map(|request| request.path() == path);
                if here.iter().filter(|here| **here).count() >= count
                    || arrived.changed().await.is_err()
                {
                    return self.requests_to(path);
                }
            }
        };
        if let Ok(requests) = tokio::time::timeout(within, waiting).await {
            return requests;
        }
        let mut seen = BTreeMap::<_, usize>::new();
        for line in self.map(|request| request.request_line.clone()) {
            *seen.entry(line).or_default() += 1;
        }
        panic!("wanted {count} requests to {path} within {within:?}; seen so far: {seen:?}");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Held here, so that they end with this.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        connections.spawn(serve(stream, number, tls.clone(), Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, number: usize, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let _open = Open::new(&shared);
    // Without it a reply written in two parts waits for an acknowledgement; a failure costs only that.
    let _ = stream.set_nodelay(true);
    let on_accept = *lock(&shared.on_accept);
    // What goes wrong on a connection is the other side's to notice.
    let _ = match (on_accept, tls) {
        (OnAccept::Reset, _) => stream.set_zero_linger(),
        (OnAccept::Close, _) => Ok(()),
        (OnAccept::Hang, _) => std::future::pending().await,
        (OnAccept::ResetAfter(bytes), _) => reset_after(stream, bytes).await,
        (OnAccept::Say(bytes), _) => say(stream, bytes).await,
        (OnAccept::Serve, None) => {
            // Kept beside the stream for the one thing that only a socket can do.
            let reset = |stream: TcpStream| stream.set_zero_linger();
            connection::serve(stream, number, &shared, reset).await
        }
        (OnAccept::Serve, Some(tls)) => match tls.accept(stream).await {
            Ok(stream) => {
                let name = stream.get_ref().1.server_name().map(str::to_owned);
                lock(&shared.server_names).push(name);
                connection::serve(stream, number, &shared, |stream| {
                    stream.into_inner().0.set_zero_linger()
                })
                .await
            }
            Err(error) => Err(error),
        },
    };
}

async fn reset_after(mut stream: TcpStream, bytes: usize) -> io::Result<()> {
    stream.read_exact(&mut vec![0; bytes]).await?;
    stream.set_zero_linger()
}

async fn say(mut stream: TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut came = vec![0; 16 * 1024];
    if stream.read(&mut came).await? > 0 {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        // Closed with something unread, it would be reset, and what was said be lost.
        while stream.read(&mut came).await? > 0 {}
    }
    Ok(())
}

/// An open connection, counted until dropped.
struct Open<'a>(&'a Shared);

impl<'a> Open<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.open.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn record(&self, request: Received) -> Reply {
        let reply = lock(&self.scripts)
            .get_mut(request.path())
            .map_or_else(|| Reply::status(200), |script| script.next(request.arrived));
        let count = {
            let mut requests = lock(&self.requests);
            requests.push(request);
            requests.len()
        };
        self.arrived.send_replace(count);
        reply
    }
}

/// A test that failed while it held the lock has said so already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

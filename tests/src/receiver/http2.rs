//! A scriptable HTTP/2 endpoint whose frames are written by hand, rightly or wrongly. What a request's head says is not read: its
//! body tells requests apart.

mod connection;
mod reply;

pub use reply::{Http2Reply, code, frame, head};

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use super::lock;
use crate::environment;

/// A request, as much of it as had come when it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http2Request {
    /// Which connection it came on: 1 for the first.
    pub connection: usize,
    /// Its stream.
    pub stream: u32,
    /// Its body so far.
    pub body: Bytes,
}

/// A running endpoint. Dropping it closes its port and its connections.
pub struct Http2Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Http2Reply>>,
    /// The last reply stands for all that follow.
    last: Mutex<Http2Reply>,
    /// Frames that a new connection begins with.
    greeting: Mutex<Vec<u8>>,
    requests: Mutex<Vec<Http2Request>>,
    arrived: watch::Sender<usize>,
    connections: AtomicUsize,
    open: AtomicUsize,
}

impl Http2Receiver {
    /// Listens on a free port of 127.0.0.1 and speaks nothing but HTTP/2 over TLS.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(config: &ServerConfig) -> io::Result<Self> {
        environment::raise_open_files();
        let mut config = config.clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        shared.greet(&[]);
        let tls = TlsAcceptor::from(Arc::new(config));
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&shared))).abort_handle();
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

    /// The URL of a path; the path begins with a slash.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Sets how requests are answered from now on: each reply serves for one, the last for all that follow.
    pub fn script(&self, replies: impl IntoIterator<Item = Http2Reply>) {
        let mut replies: VecDeque<_> = replies.into_iter().collect();
        *lock(&self.shared.last) = replies.pop_back().unwrap_or_default();
        *lock(&self.shared.replies) = replies;
    }

    /// Sets the settings (RFC 9113, 6.5.2) that a new connection begins with.
    pub fn settings(&self, settings: &[(u16, u32)]) {
        self.shared.greet(settings);
    }

    /// Adds frames to what a new connection begins with.
    pub fn greet_with(&self, frames: &[u8]) {
        lock(&self.shared.greeting).extend_from_slice(frames);
    }

    /// Every request so far that was answered or refused, in this order.
    #[must_use]
    pub fn requests(&self) -> Vec<Http2Request> {
        lock(&self.shared.requests).clone()
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

    /// Waits until at least `count` requests have come.
    ///
    /// # Panics
    ///
    /// When they have not come `within` the time.
    #[expect(clippy::panic, reason = "an assertion of the test that waits")]
    pub async fn wait_for(&self, count: usize, within: Duration) -> Vec<Http2Request> {
        let mut arrived = self.shared.arrived.subscribe();
        let came = arrived.wait_for(|arrived| *arrived >= count);
        let Ok(Ok(_)) = tokio::time::timeout(within, came).await else {
            panic!("wanted {count} requests; there were {:?}", self.requests())
        };
        self.requests()
    }
}

impl Drop for Http2Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn greet(&self, settings: &[(u16, u32)]) {
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()[..]].concat())
            .collect();
        *lock(&self.greeting) = frame(code::SETTINGS, 0, 0, &payload);
    }

    fn next(&self) -> Http2Reply {
        let next = lock(&self.replies).pop_front();
        next.unwrap_or_else(|| lock(&self.last).clone())
    }

    fn record(&self, request: Http2Request) {
        let count = {
            let mut requests = lock(&self.requests);
            requests.push(request);
            requests.len()
        };
        self.arrived.send_replace(count);
    }
}

async fn accept(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        connections.spawn(async move {
            let _open = Open::new(&shared.open);
            let _ = stream.set_nodelay(true);
            if let Ok(stream) = tls.accept(stream).await {
                // What goes wrong on a connection is the other side's to notice.
                let _ = connection::serve(stream, number, &shared).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An open connection, counted until dropped.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    fn new(open: &'a AtomicUsize) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

//! The listeners and their connections: HTTP/1.1, bounded in number, in the size of a request's head and
//! in the time that a head may take, so that slow or idle clients cost the others nothing (INV-11).
//!
//! HTTP/2 without TLS is not spoken: what stands in front of Posthorn ends TLS and speaks HTTP/1.1 to it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use posthorn_store::clock::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::peer;

/// A request's head must be complete in this time; a connection without a request is closed after it.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// Bytes of a request's head.
const HEAD_BYTES: usize = 64 * 1024;

/// Header fields of a request.
const HEAD_FIELDS: usize = 100;

/// Connections at the same time, over all listeners; more wait in the kernel's queue.
const CONNECTIONS: usize = 8192;

/// How long requests under way may take once the node is stopping.
const DRAIN: Duration = Duration::from_secs(15);

/// Pause after the kernel could not give a connection: it is out of descriptors or memory.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(100);

/// A socket that is bound.
pub(super) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Binds `address`; an error names `setting`.
    ///
    /// # Errors
    /// When the address is taken or is not ours.
    pub(super) async fn bind(address: SocketAddr, setting: &'static str) -> anyhow::Result<Self> {
        let socket = TcpListener::bind(address).await.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow::anyhow!("{setting}: {address} is in use by another program: stop it, or set {setting} to another address")
            }
            _ => anyhow::anyhow!("{setting}: cannot listen on {address}: {error}"),
        })?;
        let address = socket.local_addr().context(setting)?;
        Ok(Self { socket, address })
    }

    /// Where it is bound, with the port that was found when none was asked for.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// All connections of the node.
#[derive(Clone)]
pub(super) struct Connections {
    clock: Clock,
    /// Whose word about who they speak for is taken.
    trusted: Arc<[IpNet]>,
    open: Arc<Semaphore>,
    running: TaskTracker,
    /// Stop accepting; end each connection after the request under way.
    stopping: CancellationToken,
    /// End everything now.
    ending: CancellationToken,
}

impl Connections {
    pub(super) fn new(clock: Clock, trusted_proxies: Vec<IpNet>) -> Self {
        Self {
            clock,
            trusted: trusted_proxies.into(),
            open: Arc::new(Semaphore::new(CONNECTIONS)),
            running: TaskTracker::new(),
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Serves `router` to whoever connects, until [`Connections::drain`].
    pub(super) fn serve(&self, listener: Listener, router: Router) {
        let accepting = self.clone();
        self.running.spawn(async move {
            tokio::select! {
                () = accepting.accept(&listener, &router) => {}
                () = accepting.stopping.cancelled() => {}
            }
        });
    }

    /// Stops accepting, lets requests under way end, and cuts what has not ended in time.
    pub(super) async fn drain(&self) {
        self.stopping.cancel();
        self.running.close();
        if tokio::time::timeout(DRAIN, self.running.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                connections = self.running.len(),
                "requests did not end in time: cutting them off"
            );
            self.ending.cancel();
            self.running.wait().await;
        }
    }

    async fn accept(&self, listener: &Listener, router: &Router) {
        loop {
            // Never closed, so that a permit always comes.
            let Ok(permit) = self.open.clone().acquire_owned().await else {
                return;
            };
            match listener.socket.accept().await {
                Ok((stream, peer)) => {
                    let (connection, router) = (self.clone(), router.clone());
                    self.running.spawn(async move {
                        connection.speak(stream, peer, router).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.clock.sleep(AFTER_A_REFUSAL).await;
                }
            }
        }
    }

    async fn speak(&self, stream: TcpStream, peer: SocketAddr, router: Router) {
        // Answers are small and whole: waiting for more to send only delays them.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let trusted = Arc::clone(&self.trusted);
        let service = service_fn(move |mut request: Request<Incoming>| {
            let caller = peer::caller(peer, request.headers(), &trusted);
            request.extensions_mut().insert(ConnectInfo(caller));
            router.clone().oneshot(request.map(Body::new))
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_headers(HEAD_FIELDS)
            .max_buf_size(HEAD_BYTES);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = connection => ended,
                    () = self.ending.cancelled() => Ok(()),
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }
}

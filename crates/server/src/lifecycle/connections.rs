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
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::peer;

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
    head_within: Duration,
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
            head_within: limits::REQUEST_HEAD_WAIT,
            open: Arc::new(Semaphore::new(limits::CONNECTIONS)),
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
        if tokio::time::timeout(limits::SHUTDOWN_CALLERS_WAIT, self.running.wait())
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
            .header_read_timeout(self.head_within)
            .max_headers(limits::REQUEST_HEADERS)
            .max_buf_size(limits::REQUEST_HEAD_BYTES);
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

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    use super::*;

    /// A server of `router` that wants a head within 300 ms, and its address.
    async fn serve(router: Router) -> (Connections, SocketAddr) {
        let mut connections = Connections::new(Clock::start(), Vec::new());
        connections.head_within = Duration::from_millis(300);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), "POSTHORN_LISTEN")
            .await
            .unwrap();
        let address = listener.address();
        connections.serve(listener, router);
        (connections, address)
    }

    async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream
    }

    /// Everything that comes until the other side closes.
    async fn rest(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // A reset is an end, too.
        let _ = stream.read_to_string(&mut text).await;
        text
    }

    #[tokio::test]
    async fn a_taken_address_is_refused_with_its_setting() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = Listener::bind(address, "POSTHORN_LISTEN")
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("POSTHORN_LISTEN") && error.contains(&address.to_string()),
            "{error}"
        );
    }

    #[tokio::test]
    async fn slow_heads_are_cut_at_the_deadline_while_others_are_served() {
        let (_connections, address) = serve(Router::new().route("/", get(async || "served"))).await;
        let mut slow = Vec::new();
        for bytes in ["", "P", "GET / HT"].iter().cycle().take(60) {
            slow.push(send(address, bytes.as_bytes()).await);
        }
        let quick = send(
            address,
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        )
        .await;
        assert!(rest(quick).await.ends_with("served"));
        for stream in slow {
            assert!(!rest(stream).await.contains("served"));
        }
    }

    #[tokio::test]
    async fn a_head_over_the_limit_is_refused() {
        let (_connections, address) = serve(Router::new()).await;
        let long = format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "a".repeat(2 * limits::REQUEST_HEAD_BYTES)
        );
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(long.as_bytes()).await;
        let mut first = [0; 12];
        let _ = stream.read_exact(&mut first).await;
        assert_eq!(&first, b"HTTP/1.1 431");
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_while_the_node_stops() {
        let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, waits) = (Arc::clone(&began), Arc::clone(&go));
        let slow = async move || {
            told.notify_one();
            waits.notified().await;
            "finished"
        };
        let (connections, address) = serve(Router::new().route("/", get(slow))).await;
        let stream = send(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        began.notified().await;
        let draining = tokio::spawn(async move { connections.drain().await });
        // The listener is gone as soon as draining has begun.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        assert!(rest(stream).await.ends_with("finished"));
        draining.await.unwrap();
    }
}

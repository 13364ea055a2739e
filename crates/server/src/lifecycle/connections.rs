//! The listeners and their connections: HTTP/1.1, bounded in number, in the size of a request's head and
//! in the time that a head may take, so that slow or idle clients cost the others nothing (INV-11).
//!
//! When the node stops nobody is reset who could not know: those who have connected are heard, a request that was on its way is
//! answered with `Connection: close`, and only then is a connection closed on which nothing is asked.
//!
//! HTTP/2 without TLS is not spoken: what stands in front of Posthorn ends TLS and speaks HTTP/1.1 to it.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{self, HeaderValue, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use posthorn_domain::limits;
use posthorn_domain::shutdown::Deadline;
use posthorn_store::clock::Clock;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::peer;

/// Pause after the kernel could not give a connection: it is out of descriptors or memory.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(100);

/// What a listener serves. Cheap to clone: each request has its own.
pub(super) trait Site: Clone + Send + Sync + 'static {
    /// The answer to a request of `caller`.
    fn answer(self, request: Request, caller: SocketAddr) -> impl Future<Output = Response> + Send;
}

impl Site for Router {
    async fn answer(self, mut request: Request, caller: SocketAddr) -> Response {
        request.extensions_mut().insert(ConnectInfo(caller));
        match self.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

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
    pub(super) fn bind(address: SocketAddr, setting: &'static str) -> anyhow::Result<Self> {
        let socket = listen(address).map_err(|error| match error.kind() {
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

/// Listens as [`TcpListener::bind`] does, but with room for more than its 128 who come at once: the next one's connection would be
/// made a second later, when its kernel tries again.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Connections of the node before this one may linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(limits::LISTEN_BACKLOG)
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
    /// Each answer is the last on its connection.
    leaving: Arc<AtomicBool>,
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
            leaving: Arc::default(),
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
        }
    }

    /// Serves `site` to whoever connects, until [`Connections::drain`].
    pub(super) fn serve(&self, listener: Listener, site: impl Site) {
        let accepting = self.clone();
        self.running.spawn(async move {
            tokio::select! {
                biased;
                () = accepting.stopping.cancelled() => {}
                () = accepting.accept(&listener, &site) => {}
            }
            accepting.accept_last(listener, &site);
        });
    }

    /// From here on every answer asks its caller to come by another connection the next time.
    pub(super) fn send_away(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Stops accepting, lets requests under way end, and cuts what has not ended in time.
    pub(super) async fn drain(&self, deadline: Deadline) {
        self.send_away();
        self.stopping.cancel();
        self.running.close();
        let left = deadline.left(limits::SHUTDOWN_CALLERS, self.clock.monotonic());
        if tokio::time::timeout(left, self.running.wait())
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

    async fn accept(&self, listener: &Listener, site: &impl Site) {
        loop {
            // Never closed, so that a permit always comes.
            let Ok(permit) = self.open.clone().acquire_owned().await else {
                return;
            };
            match listener.socket.accept().await {
                Ok((stream, peer)) => self.heard(stream, peer, site, permit),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.clock.sleep(AFTER_A_REFUSAL).await;
                }
            }
        }
    }

    /// Those who have connected and were not heard yet: closing the listener would reset them. Not more than there can have been
    /// when the node began to stop, however fast others keep coming (INV-11).
    fn accept_last(&self, listener: Listener, site: &impl Site) {
        // Asked directly: what the runtime knows of it may be a moment old.
        let Ok(socket) = listener.socket.into_std() else {
            return;
        };
        for _ in 0..limits::LISTEN_BACKLOG {
            let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() else {
                return;
            };
            let Ok((stream, peer)) = socket.accept() else {
                return;
            };
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.heard(stream, peer, site, permit);
            }
        }
    }

    fn heard(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        site: &impl Site,
        permit: OwnedSemaphorePermit,
    ) {
        let (connection, site) = (self.clone(), site.clone());
        self.running.spawn(async move {
            connection.speak(stream, peer, site).await;
            drop(permit);
        });
    }

    async fn speak(&self, stream: TcpStream, peer: SocketAddr, site: impl Site) {
        // Answers are small and whole: waiting for more to send only delays them.
        if stream.set_nodelay(true).is_err() {
            return;
        }
        let service = service_fn(|request: http::Request<Incoming>| {
            let caller = peer::caller(peer, request.headers(), &self.trusted);
            let site = site.clone();
            // Such a request may have named a length, too, which others on its way may have gone by: what follows it on the
            // connection may be no request of its sender (RFC 9112, section 6.3). The length was dropped before it could be seen
            // here, so each of these is the last.
            let chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
            async move {
                let mut answer = site.answer(request.map(Body::new), caller).await;
                if chunked || self.leaving.load(Ordering::Relaxed) {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(answer)
            }
        });
        // Its own bound on headers is `limits::REQUEST_HEADERS`, too. Told so it would keep those of each request on the heap.
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.head_within)
            .max_buf_size(limits::REQUEST_HEAD_BYTES);
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stopping.cancelled() => {
                let last = async {
                    // A request may be on its way that was sent before its sender could know. It is looked for once more when the
                    // time is over: a busy machine may see both at the same moment.
                    tokio::select! {
                        biased;
                        ended = connection.as_mut() => return ended,
                        () = self.clock.sleep(limits::SHUTDOWN_LAST_REQUESTS) => {}
                    }
                    connection.as_mut().graceful_shutdown();
                    connection.await
                };
                tokio::select! {
                    ended = last => ended,
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
    fn serve(router: Router) -> (Connections, SocketAddr) {
        let mut connections = Connections::new(Clock::start(), Vec::new());
        connections.head_within = Duration::from_millis(300);
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), "POSTHORN_LISTEN").unwrap();
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
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("POSTHORN_LISTEN") && error.contains(&address.to_string()),
            "{error}"
        );
    }

    /// INV-11: nobody's connection waits for the kernel's next try, which comes after a second.
    #[tokio::test]
    async fn hundreds_who_come_at_once_are_all_connected() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), "POSTHORN_LISTEN").unwrap();
        let mut callers = Vec::new();
        for _ in 0..300 {
            let within = Duration::from_millis(500);
            callers
                .push(std::net::TcpStream::connect_timeout(&listener.address(), within).unwrap());
        }
    }

    #[tokio::test]
    async fn slow_heads_are_cut_at_the_deadline_while_others_are_served() {
        let (_connections, address) = serve(Router::new().route("/", get(async || "served")));
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
        let (_connections, address) = serve(Router::new());
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

    /// INV-11: the bound is hyper's own, so that another version could move it.
    #[tokio::test]
    async fn a_head_with_more_fields_than_the_limit_is_refused() {
        let (_connections, address) = serve(Router::new().route("/", get(async || "served")));
        // Host and Connection are fields, too.
        for (more, said) in [(0, "200"), (1, "431")] {
            let fields = "x: 1\r\n".repeat(limits::REQUEST_HEADERS - 2 + more);
            let head = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{fields}\r\n");
            let answer = rest(send(address, head.as_bytes()).await).await;
            assert_eq!(answer.get(9..12), Some(said));
        }
    }

    #[tokio::test]
    async fn whoever_has_connected_and_was_not_heard_yet_is_answered_as_the_node_stops() {
        let (connections, address) = serve(Router::new().route("/", get(async || "served")));
        // The kernel takes them; nothing has run here meanwhile.
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                    .unwrap();
                stream.set_nonblocking(true).unwrap();
                TcpStream::from_std(stream).unwrap()
            })
            .collect();
        connections
            .drain(Deadline::begun(connections.clock.monotonic()))
            .await;
        for stream in waiting {
            let answer = rest(stream).await;
            assert!(
                answer.contains("connection: close") && answer.ends_with("served"),
                "{answer}"
            );
        }
    }

    /// INV-1: the thread has no time for anything until the request has come and the time for the last ones is over.
    #[tokio::test]
    async fn a_request_that_came_in_time_is_answered_though_nobody_looked_in_time() {
        let (connections, address) = serve(Router::new().route("/", get(async || "served")));
        let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut kept = Vec::new();
        for _ in 0..12 {
            let mut stream = send(address, request).await;
            let mut answer = Vec::new();
            while !answer.ends_with(b"served") {
                assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
            }
            kept.push(stream);
        }
        let deadline = Deadline::begun(connections.clock.monotonic());
        let draining = tokio::spawn(async move { connections.drain(deadline).await });
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        for stream in &mut kept {
            stream.write_all(request).await.unwrap();
        }
        #[expect(clippy::disallowed_methods, reason = "a thread that gets no time")]
        std::thread::sleep(limits::SHUTDOWN_LAST_REQUESTS + Duration::from_millis(50));
        for stream in kept {
            assert!(rest(stream).await.ends_with("served"));
        }
        draining.await.unwrap();
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
        let (connections, address) = serve(Router::new().route("/", get(slow)));
        let stream = send(address, b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        began.notified().await;
        let deadline = Deadline::begun(connections.clock.monotonic());
        let draining = tokio::spawn(async move { connections.drain(deadline).await });
        // The listener is gone as soon as draining has begun.
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        assert!(rest(stream).await.ends_with("finished"));
        draining.await.unwrap();
    }
}

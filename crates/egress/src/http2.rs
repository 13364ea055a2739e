//! HTTP/2, where the handshake chose it: the requests to an origin share connections, which tasks of their own drive, since pings,
//! windows and the end of a connection belong to no single request.
//!
//! Guarantees: a request never waits for another's place, since it takes a connection only while that has fewer under way than its
//! other side takes at once; what is read and not yet asked for is bounded by the windows; and no task of a connection outlives it
//! for more than [`limits::EGRESS_HTTP2_FAREWELL`], whatever the other side does or leaves undone.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::{Request, Response, Uri, header::HOST};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
    rt::Executor,
};
use hyper_util::rt::TokioTimer;
use posthorn_domain::limits;
use tokio::sync::watch;

use crate::{connection::Connection, failure::SendFailure, lost::Lost};

type Running = hyper::client::conn::http2::Connection<Connection, Full<Bytes>, Tasks>;

/// An HTTP/2 connection to an origin. It ends when this is dropped, for then no request is on it.
pub(crate) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    /// None once it takes no more requests. Shared with the task that drives it, which alone waits for it.
    running: Arc<Mutex<Option<Running>>>,
    /// Requests that have a place.
    under_way: AtomicUsize,
    remote: SocketAddr,
    /// What the tasks of the connection watch: dropped, they have a moment.
    _needed: watch::Sender<()>,
}

/// The place of one request on a connection, until dropped.
pub(crate) struct Place(Arc<Http2>);

impl Http2 {
    /// Speaks HTTP/2 on a new connection.
    pub(crate) async fn begin(connection: Connection) -> Result<Self, SendFailure> {
        let remote = connection.remote();
        let (needed, watched) = watch::channel(());
        let tasks = Tasks(watched);
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one client for tenants' addresses"
        )]
        let (sender, running) = Builder::new(tasks.clone())
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(limits::RESPONSE_HEADER_BYTES).unwrap_or(u32::MAX))
            .initial_stream_window_size(limits::EGRESS_HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(limits::EGRESS_HTTP2_WINDOW)
            // Until the other side has said how many requests it takes at once, one: it would refuse the rest.
            .initial_max_send_streams(1)
            // A connection whose other side is gone without a word would fail every later request by its deadline.
            .keep_alive_interval(limits::EGRESS_HTTP2_PING)
            .keep_alive_timeout(limits::EGRESS_HTTP2_PING)
            .handshake(connection)
            .await
            .map_err(|error| SendFailure::of_exchange(&error).at(Some(remote)))?;
        let running = Arc::new(Mutex::new(Some(running)));
        tasks.execute(drive(Arc::clone(&running), remote));
        Ok(Self {
            sender,
            running,
            under_way: AtomicUsize::new(0),
            remote,
            _needed: needed,
        })
    }

    /// It takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// A place for one more request, if the other side takes one more. Two who ask at the same time may get the same last one: ask
    /// in turn.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let most = lock(&self.running)
            .as_ref()
            .map_or(0, Running::current_max_send_streams);
        (self.under_way.load(Ordering::Acquire) < most).then(|| self.next_place())
    }

    /// A place, of whoever opened the connection.
    pub(crate) fn next_place(self: &Arc<Self>) -> Place {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Place(Arc::clone(self))
    }
}

impl Place {
    /// Whom the connection goes to.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.0.remote
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn request(
        &self,
        url: Uri,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Box<Lost>> {
        *request.uri_mut() = url;
        // The URL says it.
        request.headers_mut().remove(HOST);
        // For the case that the other side refuses it; the body is not copied.
        let again = request.clone();
        let answer = self.0.sender.clone().try_send_request(request);
        answer
            .await
            .map_err(|error| Box::new(Lost::on_http2(error, again)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Hands requests to the connection until it takes no more. What is under way then goes on.
async fn drive(running: Arc<Mutex<Option<Running>>>, remote: SocketAddr) {
    poll_fn(|cx| {
        let mut running = lock(&running);
        let Some(connection) = running.as_mut() else {
            return Poll::Ready(());
        };
        let Poll::Ready(ended) = Pin::new(connection).poll(cx) else {
            return Poll::Pending;
        };
        // Dropping it tells whoever still waits for it.
        *running = None;
        if let Err(error) = ended {
            tracing::debug!(%remote, %error, "an HTTP/2 connection broke");
        }
        Poll::Ready(())
    })
    .await;
}

fn lock(running: &Mutex<Option<Running>>) -> MutexGuard<'_, Option<Running>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the tasks of one connection, for a moment longer than it is needed.
#[derive(Clone)]
struct Tasks(watch::Receiver<()>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut needed = self.0.clone();
        tokio::spawn(async move {
            let mut task = pin!(task);
            let unneeded = pin!(async { while needed.changed().await.is_ok() {} });
            if let Either::Right(_) = select(task.as_mut(), unneeded).await {
                // One that does not end in time is dropped, and what it holds with it.
                let _ = tokio::time::timeout(limits::EGRESS_HTTP2_FAREWELL, task).await;
            }
        });
    }
}

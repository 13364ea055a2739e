//! One request and what came of it.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header::CONTENT_LENGTH};
use http_body_util::Full;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use posthorn_domain::{delivery::ErrorKind, limits, url::EndpointUrl};

use crate::{
    Egress,
    answer::{Answer, Body},
    connection::RemoteAddress,
    failure::SendFailure,
};

/// A POST to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Where to. Its path and query are sent byte for byte.
    pub url: &'a EndpointUrl,
    /// Sent as they are; `content-length` is set here and `host` comes from the URL.
    pub headers: HeaderMap,
    /// Sent as it is.
    pub body: Bytes,
    /// The one deadline over finding the address, connecting, and the answer's head and body.
    pub timeout: Duration,
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Sent {
    /// There was a head of an answer, of whatever status.
    Answered(Answer),
    /// There was none, or it said 2xx and its body broke off.
    Failed(SendFailure),
}

/// What is known of an exchange so far; it outlives the future that the deadline drops.
#[derive(Default)]
struct Progress {
    answer: Option<Answer>,
    body: Body,
}

impl Egress {
    /// Sends one request, once. Returns within the deadline; dropping the future closes the connection in use.
    ///
    /// A head decides: when the deadline comes during the body, the answer stands and its body is cut. A connection that
    /// breaks during the body of a 2xx answer is a failure, since the endpoint did not finish what it said; after any
    /// other status the status stands.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Sent {
        let limit = outgoing.timeout;
        let mut request = match into_request(outgoing) {
            Ok(request) => request,
            Err(failure) => return Sent::Failed(failure),
        };
        let connection = capture_connection(&mut request);
        let mut progress = Progress::default();
        let _in_flight = InFlight::begin(&self.in_flight);
        let outcome = tokio::time::timeout(limit, self.exchange(request, &mut progress)).await;
        self.close_if_too_many(&connection);
        match (progress.answer, outcome) {
            (_, Ok(Err(failure))) => Sent::Failed(failure),
            (Some(answer), _) => Sent::Answered(progress.body.finish(answer)),
            (None, _) => Sent::Failed(SendFailure::timeout(limit, remote_address(&connection))),
        }
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Result<(), SendFailure> {
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| SendFailure::of_request(&error))?;
        let (head, body) = response.into_parts();
        let answer = progress.answer.insert(Answer::begin(&head));
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for another protocol, and what follows is not a body.
            return Ok(());
        }
        match progress.body.read(body).await {
            Err(error) if answer.is_success() => {
                let read = progress.body.bytes_read();
                Err(SendFailure::of_body(
                    &error,
                    answer.status,
                    read,
                    answer.remote_address,
                ))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The pool keeps every connection that is whole; too many idle ones over all hosts are prevented here, by not giving
    /// this one back.
    fn close_if_too_many(&self, connection: &CaptureConnection) {
        let idle = self
            .open
            .count()
            .saturating_sub(self.in_flight.load(Ordering::Relaxed));
        if idle >= limits::EGRESS_IDLE_CONNECTIONS
            && let Some(connected) = connection.connection_metadata().as_ref()
        {
            connected.poison();
        }
    }
}

/// A request under way, counted until dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn into_request(outgoing: Outgoing<'_>) -> Result<Request<Full<Bytes>>, SendFailure> {
    let uri: Uri = outgoing.url.as_str().parse().map_err(|_| {
        SendFailure::new(ErrorKind::Config, "the URL cannot be sent to as it stands")
    })?;
    let length = HeaderValue::from(outgoing.body.len());
    let mut request = Request::new(Full::new(outgoing.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.headers_mut() = outgoing.headers;
    // An empty body would go without it.
    request.headers_mut().insert(CONTENT_LENGTH, length);
    Ok(request)
}

fn remote_address(connection: &CaptureConnection) -> Option<SocketAddr> {
    let mut extensions = http::Extensions::new();
    connection
        .connection_metadata()
        .as_ref()?
        .get_extras(&mut extensions);
    extensions.get::<RemoteAddress>().map(|remote| remote.0)
}

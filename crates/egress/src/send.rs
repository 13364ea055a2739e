//! One request and what came of it.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header::CONTENT_LENGTH,
    response::Parts,
};
use http_body_util::Full;
use hyper::body::Body as HttpBody;
use posthorn_domain::{id::TenantId, limits, url::EndpointUrl};

use crate::{
    Egress,
    answer::{Answer, Body},
    failure::SendFailure,
    http1::Http1,
    http2::{Http2, Place},
    lost::{Fate, Lost},
    pool::Way,
    target::Target,
};

/// A POST to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing<'a> {
    /// Whose it is: a kept connection carries the requests of one tenant alone.
    pub tenant: TenantId,
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
    /// It goes by an HTTP/1.1 connection that was kept.
    by_kept: bool,
    /// The endpoint's name is being resolved.
    resolving: bool,
    /// Whom a connection was made to, while TLS is being agreed on.
    dialled: Option<SocketAddr>,
    remote_address: Option<SocketAddr>,
    answer: Option<Answer>,
    body: Body,
}

/// The ways that a request has taken without anybody acting on it.
#[derive(Default)]
struct Ways {
    /// Kept connections that were closed.
    closed: usize,
    /// The receiver has refused it once.
    refused: bool,
}

impl Egress {
    /// Sends one request, once. Returns within the deadline; dropping the future closes the connection in use.
    ///
    /// A head decides: when the deadline comes during the body, the answer stands and its body is cut. A connection that
    /// breaks during the body of a 2xx answer is a failure, since the endpoint did not finish what it said; after any
    /// other status the status stands.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Sent {
        let limit = outgoing.timeout;
        let target = Target::of(outgoing.tenant, outgoing.url);
        let mut progress = Progress::default();
        let outcome = tokio::time::timeout(limit, self.exchange(outgoing, &mut progress)).await;
        let failure = match (progress.answer, outcome) {
            (_, Ok(Err(failure))) => failure,
            (Some(answer), _) => return Sent::Answered(progress.body.finish(answer)),
            (None, _) if progress.resolving => SendFailure::unresolved(limit),
            (None, _) if progress.dialled.is_some() => {
                SendFailure::unagreed(limit, progress.dialled)
            }
            (None, _) => SendFailure::timeout(limit, progress.remote_address),
        };
        if progress.by_kept {
            self.pool.distrust(target.sharers());
        }
        Sent::Failed(failure)
    }

    async fn exchange(
        &self,
        outgoing: Outgoing<'_>,
        progress: &mut Progress,
    ) -> Result<(), SendFailure> {
        let target = Target::of(outgoing.tenant, outgoing.url);
        let mut request = into_request(outgoing);
        let mut ways = Ways::default();
        loop {
            let kept = ways.may_be_kept().then(|| self.pool.take(target.sharers()));
            let (way, is_new) = match kept.flatten() {
                Some(way) => (way, false),
                // Boxed here and below: what seldom happens would be carried along, and moved, with every request.
                None => (Box::pin(self.open(target, progress)).await?, true),
            };
            progress.remote_address = Some(way.remote());
            progress.by_kept = !is_new && matches!(way, Way::Http1(_));
            let sent = match way {
                Way::Http1(connection) => {
                    self.over_http1(connection, target, request, progress).await
                }
                Way::Http2(place) => Box::pin(over_http2(&place, target, request, progress)).await,
            };
            let lost = match sent {
                Ok(outcome) => return outcome,
                Err(lost) => *lost,
            };
            request = match ways.after(lost, is_new) {
                Ok(request) => request,
                Err(failure) => return Err(failure.at(progress.remote_address)),
            };
            (progress.remote_address, progress.by_kept) = (None, false);
        }
    }

    async fn over_http1(
        &self,
        mut connection: Box<Http1>,
        target: Target<'_>,
        request: Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Result<Result<(), SendFailure>, Box<Lost>> {
        let Ok(path) = Uri::try_from(target.path) else {
            return Ok(Err(SendFailure::unusable()));
        };
        let (head, body) = connection.request(path, request).await?.into_parts();
        let outcome = progress.read(head, connection.body(body)).await;
        if progress.body.has_ended() && connection.is_reusable() {
            self.pool.put(target.sharers(), connection);
        }
        Ok(outcome)
    }

    async fn open(&self, target: Target<'_>, progress: &mut Progress) -> Result<Way, SendFailure> {
        let failed = |error| SendFailure::of_connect(&error);
        progress.resolving = true;
        let vetted = self.connector.vet(target.url).await;
        progress.resolving = false;
        let vetted = vetted.map_err(failed)?;
        let connection = self.connector.connect(vetted, &mut progress.dialled).await;
        progress.dialled = None;
        let connection = connection.map_err(failed)?;
        if connection.is_http2() {
            let connection = Http2::begin(connection).await?;
            Ok(Way::Http2(self.pool.share(target.sharers(), connection)))
        } else {
            let connection = Http1::begin(connection, target).await?;
            Ok(Way::Http1(Box::new(connection)))
        }
    }
}

impl Ways {
    /// The next one may be a connection that was kept. After a refusal it is a new one: what refuses it may well be the
    /// connection, which takes no more.
    fn may_be_kept(&self) -> bool {
        !self.refused && self.closed < limits::EGRESS_STALE_CONNECTIONS
    }

    /// The request, if it may take another way, or why there is no answer.
    fn after(&mut self, lost: Lost, is_new: bool) -> Result<Request<Full<Bytes>>, SendFailure> {
        match lost.fate {
            // It was closed while nobody used it, and the other side saw nothing of this.
            Fate::Unwritten(request) if !is_new => {
                self.closed += 1;
                Ok(request)
            }
            Fate::Refused(request) if !self.refused => {
                self.refused = true;
                metrics::counter!("posthorn_requests_refused_total").increment(1);
                Ok(request)
            }
            _ => Err(SendFailure::of_exchange(&lost.error)),
        }
    }
}

impl Progress {
    /// Takes the head of an answer, and of its body what is kept.
    async fn read(
        &mut self,
        head: Parts,
        body: impl HttpBody<Data = Bytes, Error = hyper::Error> + Unpin,
    ) -> Result<(), SendFailure> {
        let status = head.status;
        let answer = self.answer.insert(Answer::begin(head, self.remote_address));
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for another protocol, and what follows is not a body.
            return Ok(());
        }
        match self.body.read(body).await {
            Err(error) if answer.is_success() => {
                let read = self.body.bytes_read();
                Err(SendFailure::of_body(&error, answer.status, read).at(self.remote_address))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

async fn over_http2(
    place: &Place,
    target: Target<'_>,
    request: Request<Full<Bytes>>,
    progress: &mut Progress,
) -> Result<Result<(), SendFailure>, Box<Lost>> {
    let Ok(uri) = Uri::try_from(target.url.as_str()) else {
        return Ok(Err(SendFailure::unusable()));
    };
    let (head, body) = place.request(uri, request).await?.into_parts();
    Ok(progress.read(head, body).await)
}

/// The request but for its URL, which is told in another way by each version.
fn into_request(outgoing: Outgoing<'_>) -> Request<Full<Bytes>> {
    let length = HeaderValue::from(outgoing.body.len());
    let mut request = Request::new(Full::new(outgoing.body));
    *request.method_mut() = Method::POST;
    *request.headers_mut() = outgoing.headers;
    // An empty body would go without it.
    request.headers_mut().insert(CONTENT_LENGTH, length);
    request
}

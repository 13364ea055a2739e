//! The receiver of a measured run: answers 200 to every POST and counts, by `webhook-id` and path, what came once, twice or
//! never.

use std::{
    collections::HashSet,
    convert::Infallible,
    hash::{DefaultHasher, Hash, Hasher},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::{
    latency::{Histogram, Latency},
    payload,
};

/// Locks of the set of ids: enough that two cores rarely meet.
const SHARDS: u64 = 64;

/// What `GET /count` answers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Count {
    /// Requests.
    pub(crate) received: u64,
    /// Different pairs of `webhook-id` and path.
    pub(crate) unique: u64,
    /// Requests whose pair had come before.
    pub(crate) duplicates: u64,
    /// When the last one came, in microseconds since 1970; 0 for none.
    pub(crate) last_at_us: u64,
    /// From the intended moment to the arrival.
    pub(crate) end_to_end: Latency,
}

struct Tally {
    received: AtomicU64,
    unique: AtomicU64,
    last_at_us: AtomicU64,
    end_to_end: Histogram,
    /// Hashes of 64 bits: a million of them meet by chance once in 30,000 runs.
    seen: Box<[Mutex<HashSet<u64>>]>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            received: AtomicU64::default(),
            unique: AtomicU64::default(),
            last_at_us: AtomicU64::default(),
            end_to_end: Histogram::default(),
            seen: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }
}

impl Tally {
    fn webhook(&self, request: &Request<Incoming>, body: &[u8]) {
        let now = payload::now_us();
        self.received.fetch_add(1, Ordering::Relaxed);
        self.last_at_us.fetch_max(now, Ordering::Relaxed);
        if let Some(at) = payload::moment(body) {
            self.end_to_end.record(now.saturating_sub(at));
        }
        let mut hasher = DefaultHasher::new();
        request
            .headers()
            .get("webhook-id")
            .map(http::HeaderValue::as_bytes)
            .hash(&mut hasher);
        request.uri().path().hash(&mut hasher);
        let id = hasher.finish();
        let shard = usize::try_from(id % SHARDS).unwrap_or(0);
        let new = self
            .seen
            .get(shard)
            .is_some_and(|seen| lock(seen).insert(id));
        if new {
            self.unique.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self) -> Count {
        let received = self.received.load(Ordering::Relaxed);
        let unique = self.unique.load(Ordering::Relaxed);
        Count {
            received,
            unique,
            duplicates: received.saturating_sub(unique),
            last_at_us: self.last_at_us.load(Ordering::Relaxed),
            end_to_end: self.end_to_end.summary(),
        }
    }

    fn reset(&self) {
        for seen in &*self.seen {
            lock(seen).clear();
        }
        for counter in [&self.received, &self.unique, &self.last_at_us] {
            counter.store(0, Ordering::Relaxed);
        }
        self.end_to_end.reset();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until it is killed. Prints the address on a line of its own.
pub(crate) async fn run(listen: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    serve(listener).await
}

async fn serve(listener: TcpListener) -> anyhow::Result<()> {
    let tally = Arc::new(Tally::default());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let tally = Arc::clone(&tally);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let tally = Arc::clone(&tally);
                async move { Ok::<_, Infallible>(answer(&tally, request).await) }
            });
            // A connection that breaks is the load's to notice.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(tally: &Tally, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let body = match request.body_mut().collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return status(StatusCode::BAD_REQUEST),
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/count") => {
            let text = serde_json::to_vec(&tally.count()).unwrap_or_default();
            Response::new(Full::new(text.into()))
        }
        (&Method::POST, "/reset") => {
            tally.reset();
            status(StatusCode::OK)
        }
        (&Method::POST, _) => {
            tally.webhook(&request, &body);
            status(StatusCode::OK)
        }
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

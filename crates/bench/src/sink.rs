//! The receiver of a measured run: counts, by `webhook-id` and path, what came once, twice or never.
//!
//! | path | answer |
//! | --- | --- |
//! | `/hook/…` | 200, and it is measured |
//! | `/aside/…` | 200, and it is counted apart |
//! | `/fail/N/MS/…` | 500 to the first N requests of an event, then as `/aside/…`; how much later than MS milliseconds after the one before each came is measured |
//! | `/hang/…` | none, ever |
//!
//! `GET /count` tells [`Count`], `POST /reset` begins anew, `POST /missing` takes a JSON list of event ids and answers how many of
//! them never came to `/hook/0`.

use std::{
    collections::{HashMap, HashSet},
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
use tokio::net::{TcpListener, TcpSocket};

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
    /// Different pairs that were answered 200 apart from what is measured.
    pub(crate) aside: u64,
    /// How late requests were that followed a failed one.
    pub(crate) late: Latency,
}

/// An event at a path that fails: how many requests have come, and when the last.
#[derive(Clone, Copy)]
struct Failing {
    requests: u32,
    last_us: u64,
}

struct Tally {
    received: AtomicU64,
    unique: AtomicU64,
    last_at_us: AtomicU64,
    end_to_end: Histogram,
    aside: AtomicU64,
    late: Histogram,
    failing: Mutex<HashMap<u64, Failing>>,
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
            aside: AtomicU64::default(),
            late: Histogram::default(),
            failing: Mutex::default(),
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
        if self.is_new(pair_of(request)) {
            self.unique.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_new(&self, pair: u64) -> bool {
        self.shard(pair).is_some_and(|seen| lock(seen).insert(pair))
    }

    fn shard(&self, pair: u64) -> Option<&Mutex<HashSet<u64>>> {
        self.seen.get(usize::try_from(pair % SHARDS).unwrap_or(0))
    }

    fn aside(&self, request: &Request<Incoming>) {
        if self.is_new(pair_of(request)) {
            self.aside.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether this request of an event at a failing path fails. `path` is what follows `/fail/`.
    fn fails(&self, request: &Request<Incoming>, path: &str) -> bool {
        let mut numbers = path.split('/').map(|part| part.parse::<u64>().unwrap_or(0));
        let (times, delay_ms) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let now = payload::now_us();
        let mut failing = lock(&self.failing);
        let seen = failing.entry(pair_of(request)).or_insert(Failing {
            requests: 0,
            last_us: now,
        });
        if seen.requests > 0 {
            let due = seen.last_us + 1000 * delay_ms;
            self.late.record(now.saturating_sub(due));
        }
        *seen = Failing {
            requests: seen.requests + 1,
            last_us: now,
        };
        u64::from(seen.requests) <= times
    }

    /// How many of these events never came to `/hook/0`.
    fn missing(&self, ids: &[String]) -> u64 {
        let came = |id: &String| {
            let pair = pair(Some(id.as_bytes()), "/hook/0");
            self.shard(pair)
                .is_some_and(|seen| lock(seen).contains(&pair))
        };
        ids.iter().filter(|id| !came(id)).count() as u64
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
            aside: self.aside.load(Ordering::Relaxed),
            late: self.late.summary(),
        }
    }

    fn reset(&self) {
        for seen in &*self.seen {
            lock(seen).clear();
        }
        for counter in [&self.received, &self.unique, &self.last_at_us, &self.aside] {
            counter.store(0, Ordering::Relaxed);
        }
        lock(&self.failing).clear();
        self.end_to_end.reset();
        self.late.reset();
    }
}

/// Stands for an event at a path.
fn pair_of(request: &Request<Incoming>) -> u64 {
    let id = request.headers().get("webhook-id");
    pair(id.map(http::HeaderValue::as_bytes), request.uri().path())
}

fn pair(id: Option<&[u8]>, path: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    path.hash(&mut hasher);
    hasher.finish()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until it is killed. Prints the address on a line of its own.
pub(crate) async fn run(listen: SocketAddr) -> anyhow::Result<()> {
    let listener = listening(listen)?;
    println!("{}", listener.local_addr()?);
    serve(listener).await
}

/// With room for everybody who connects at once: what does not find any connects a second later.
pub(crate) fn listening(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.bind(address)?;
    socket.listen(4096)
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
        (&Method::POST, "/missing") => {
            let ids: Vec<String> = serde_json::from_slice(&body).unwrap_or_default();
            let text = tally.missing(&ids).to_string();
            Response::new(Full::new(text.into()))
        }
        (&Method::POST, path) => webhook(tally, &request, &body, path).await,
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

async fn webhook(
    tally: &Tally,
    request: &Request<Incoming>,
    body: &[u8],
    path: &str,
) -> Response<Full<Bytes>> {
    if path.starts_with("/hang/") {
        return std::future::pending().await;
    }
    let failing = path.strip_prefix("/fail/");
    if failing.is_some_and(|path| tally.fails(request, path)) {
        return status(StatusCode::INTERNAL_SERVER_ERROR);
    }
    if failing.is_some() || path.starts_with("/aside/") {
        tally.aside(request);
    } else {
        tally.webhook(request, body);
    }
    status(StatusCode::OK)
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

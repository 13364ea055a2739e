//! Load over keep-alive connections.
//!
//! Closed: each connection sends as soon as it has its answer, which finds out what a server can do. Open: requests are meant
//! for fixed moments whatever the server does, and latency counts from the moment meant, so that a stall is seen by all that
//! should have been sent during it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use bytes::Bytes;
use clap::Args;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;
use serde::Serialize;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use crate::{
    client::Client,
    latency::{Histogram, Latency},
    payload,
};

/// `posthorn-bench load`.
#[derive(Args)]
pub(crate) struct LoadArgs {
    /// Where the server listens.
    #[arg(long, default_value = "127.0.0.1:8400")]
    server: SocketAddr,
    /// An API key; more of them take turns.
    #[arg(long = "key", required = true)]
    keys: Vec<String>,
    /// How long to send.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connections.
    #[arg(long, default_value_t = 128)]
    connections: usize,
    /// Events per second, open loop; without it each connection sends as fast as it is answered.
    #[arg(long)]
    rate: Option<f64>,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As soon as the one before is answered.
    Closed,
    /// So many each second.
    Open {
        /// Requests per second.
        rate: f64,
    },
}

/// Who the requests are for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The API of a server, with keys that take turns.
    Server {
        address: SocketAddr,
        keys: Arc<[String]>,
    },
    /// The sink itself, as if the server had sent them.
    Sink { address: SocketAddr },
}

/// What is sent.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// To whom.
    pub(crate) target: Target,
    /// For how long.
    pub(crate) duration: Duration,
    /// Over how many connections.
    pub(crate) connections: usize,
    /// When.
    pub(crate) pace: Pace,
    /// Where the ids of accepted events are kept, if anybody wants them.
    pub(crate) accepted: Option<Ids>,
}

/// Ids of accepted events.
pub(crate) type Ids = Arc<Mutex<Vec<String>>>;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Loaded {
    /// Answered 2xx.
    pub(crate) accepted: u64,
    /// Answered 429 or 503.
    pub(crate) refused: u64,
    /// Answered otherwise, or not at all.
    pub(crate) failed: u64,
    /// From the first request to the last answer.
    pub(crate) seconds: f64,
    /// Of the accepted ones, from the moment meant (open) or sent (closed).
    pub(crate) accept: Latency,
}

impl Loaded {
    /// Accepted in each second.
    pub(crate) fn per_second(&self) -> f64 {
        rate(self.accepted, self.seconds)
    }
}

/// So many in so many seconds.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
pub(crate) fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

#[derive(Default)]
struct Tally {
    accepted: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    accept: Histogram,
}

/// Runs the command.
pub(crate) async fn run(args: LoadArgs) -> anyhow::Result<()> {
    let pace = args.rate.map_or(Pace::Closed, |rate| Pace::Open { rate });
    let target = Target::Server {
        address: args.server,
        keys: args.keys.into(),
    };
    let load = Load {
        target,
        duration: Duration::from_secs(args.seconds),
        connections: args.connections,
        pace,
        accepted: None,
    };
    println!("{}", serde_json::to_string_pretty(&send(&load).await?)?);
    Ok(())
}

/// Sends, and waits for every answer.
pub(crate) async fn send(load: &Load) -> anyhow::Result<Loaded> {
    ensure!(load.connections > 0, "load needs a connection");
    let tally = Arc::new(Tally::default());
    let begin = Instant::now();
    let mut senders = JoinSet::new();
    for place in 0..load.connections {
        senders.spawn(send_over_one(
            load.clone(),
            place,
            begin,
            Arc::clone(&tally),
        ));
    }
    while senders.join_next().await.transpose()?.is_some() {}
    Ok(Loaded {
        accepted: tally.accepted.load(Ordering::Relaxed),
        refused: tally.refused.load(Ordering::Relaxed),
        failed: tally.failed.load(Ordering::Relaxed),
        seconds: begin.elapsed().as_secs_f64(),
        accept: tally.accept.summary(),
    })
}

async fn send_over_one(load: Load, place: usize, begin: Instant, tally: Arc<Tally>) {
    let mut client = Client::new(load.target.address());
    let began_us = payload::now_us();
    for turn in 0_u64.. {
        let after = match load.pace {
            Pace::Closed => begin.elapsed(),
            Pace::Open { rate } => moment(turn, place, load.connections, rate),
        };
        if after >= load.duration {
            return;
        }
        sleep_until(begin + after).await;
        let meant_us = began_us + u64::try_from(after.as_micros()).unwrap_or(u64::MAX);
        let Ok(request) = load.target.request(place, turn, meant_us) else {
            return;
        };
        match client.send(request).await {
            Ok((status, answer)) if status.is_success() => {
                load.keep(&answer);
                tally
                    .accept
                    .record(payload::now_us().saturating_sub(meant_us));
                tally.accepted.fetch_add(1, Ordering::Relaxed)
            }
            Ok((StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _)) => {
                tally.refused.fetch_add(1, Ordering::Relaxed)
            }
            Ok(_) | Err(_) => tally.failed.fetch_add(1, Ordering::Relaxed),
        };
    }
}

/// When a connection's next request is meant to be sent: the connections take turns.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
fn moment(turn: u64, place: usize, connections: usize, rate: f64) -> Duration {
    Duration::from_secs_f64((turn as f64 * connections as f64 + place as f64) / rate.max(0.001))
}

impl Load {
    fn keep(&self, answer: &[u8]) {
        let Some(ids) = &self.accepted else { return };
        let answer: Option<serde_json::Value> = serde_json::from_slice(answer).ok();
        let id = answer.and_then(|answer| answer.get("id")?.as_str().map(str::to_owned));
        ids.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(id);
    }
}

impl Target {
    fn address(&self) -> SocketAddr {
        match self {
            Self::Server { address, .. } | Self::Sink { address } => *address,
        }
    }

    fn request(
        &self,
        place: usize,
        turn: u64,
        meant_us: u64,
    ) -> http::Result<Request<Full<Bytes>>> {
        let request = Request::builder()
            .method(Method::POST)
            .header(header::HOST, self.address().to_string())
            .header(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
        match self {
            Self::Server { keys, .. } => {
                let turn = usize::try_from(turn).unwrap_or(0);
                let key = keys
                    .get(place.wrapping_add(turn) % keys.len().max(1))
                    .map_or("", String::as_str);
                request
                    .uri("/v1/events")
                    .header(header::AUTHORIZATION, format!("Bearer {key}"))
                    .body(Full::new(payload::submission(meant_us).into()))
            }
            Self::Sink { .. } => request
                .uri("/hook/0")
                // As many bytes as the server's, and as many headers.
                .header("accept", "*/*")
                .header("user-agent", "Posthorn/0.1")
                .header("webhook-id", format!("evt_{place:013}{turn:013}"))
                .header("webhook-timestamp", "1700000000")
                .header(
                    "webhook-signature",
                    "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
                )
                .body(Full::new(payload::payload(meant_us).into())),
        }
    }
}

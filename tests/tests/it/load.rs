//! A steady load, what it was promised, and whether that was kept.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthorn_tests::program::{At, Client, submission};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::{pause, until};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::stage::Stage;

/// Endpoints that every event is for.
pub(crate) const ENDPOINTS: usize = 20;

/// Endpoints that refuse at first.
const FAILING: usize = 5;

/// Requests that each of those refuses.
const REFUSED: usize = 100;

/// Those who submit at the same time.
const WRITERS: usize = 6;

/// Between two events of a writer.
const PACE: Duration = Duration::from_millis(80);

/// After the last start everything that was promised arrives in this time: a lease lapses in 8 s, is seen lapsed
/// twice, and then a backlog is sent.
pub(crate) const ARRIVAL: Duration = Duration::from_mins(1);

/// Requests that may be repeated because of one kill, or because another node took a stream over: those under way to each
/// endpoint, and the results of one batch that was not recorded yet.
pub(crate) const REPEATED_PER_KILL: usize = ENDPOINTS * 16 + 1024;

/// A milliseconds' span, drawn.
pub(crate) fn drawn(dice: &mut StdRng, from: u64, to: u64) -> Duration {
    Duration::from_millis(dice.random_range(from..to))
}

/// Writers at work.
pub(crate) struct Load {
    promised: Arc<Mutex<Vec<String>>>,
    enough: CancellationToken,
    writers: JoinSet<()>,
}

/// An event of the load.
pub(crate) fn event() -> Vec<u8> {
    submission("load.event", br#"{"amount": 12.50, "note": "as it was"}"#)
}

fn path(endpoint: usize) -> String {
    format!("/to/{endpoint}")
}

impl Load {
    /// Makes the endpoints and lets the writers begin.
    pub(crate) async fn start(stage: &Stage) -> Self {
        Self::through(stage, std::slice::from_ref(&stage.api)).await
    }

    /// The same with writers who are spread over several nodes.
    pub(crate) async fn through(stage: &Stage, nodes: &[Client]) -> Self {
        for endpoint in 0..ENDPOINTS {
            if endpoint < FAILING {
                let failing = Script::first(REFUSED, Reply::status(500));
                let failing = failing.then(Reply::status(200));
                stage.receiver.script(&path(endpoint), failing);
            }
            stage.endpoint(&path(endpoint), 500, 50).await;
        }
        let promised = Arc::new(Mutex::new(Vec::new()));
        let enough = CancellationToken::new();
        let mut writers = JoinSet::new();
        for api in nodes.iter().cycle().take(WRITERS) {
            let (api, promised, enough) = (api.clone(), Arc::clone(&promised), enough.clone());
            writers.spawn(async move {
                while !enough.is_cancelled() {
                    if let Some(answer) = api.try_post("/v1/events", event()).await {
                        match answer.status {
                            202 => promised.lock().unwrap().push(answer.json().text("/id")),
                            503 => assert!(!answer.header("retry-after").is_empty()),
                            other => panic!("{other}: {}", String::from_utf8_lossy(&answer.body)),
                        }
                    }
                    pause(PACE).await;
                }
            });
        }
        Self {
            promised,
            enough,
            writers,
        }
    }

    /// Ends the load; the ids of all events that were answered 202.
    pub(crate) async fn end(mut self) -> Vec<String> {
        self.enough.cancel();
        while let Some(ended) = self.writers.join_next().await {
            ended.unwrap();
        }
        let promised = std::mem::take(&mut *self.promised.lock().unwrap());
        assert!(
            promised.len() > 50,
            "a load of {} events is none",
            promised.len()
        );
        promised
    }
}

/// An event that is submitted now arrives within 15 s.
pub(crate) async fn delivers_again(stage: &Stage) {
    let mut submitted = None;
    until(
        "deliveries after the database is back",
        Duration::from_secs(15),
        async || {
            if submitted.is_none() {
                let answer = stage.api.try_post("/v1/events", event()).await?;
                submitted = (answer.status == 202).then(|| answer.json().text("/id"));
            }
            let arrived = stage
                .receiver
                .map(|request| request.header("webhook-id") == submitted.as_deref());
            (submitted.is_some() && arrived.contains(&true)).then_some(())
        },
    )
    .await;
}

/// Every promised event arrives at every endpoint, and is told to be delivered.
pub(crate) async fn assert_kept(stage: &Stage, promised: &[String], within: Duration) {
    until(
        "everything that was promised to arrive",
        within,
        async || {
            let arrived: HashSet<(String, String)> = arrivals(stage).into_keys().collect();
            let missing = |id: &String| {
                (0..ENDPOINTS).any(|endpoint| !arrived.contains(&(path(endpoint), id.clone())))
            };
            (!promised.iter().any(missing)).then_some(())
        },
    )
    .await;
    until("every delivery to be on record", within, async || {
        let open = "SELECT count(*)::text FROM events AS e CROSS JOIN LATERAL unnest(e.endpoints) AS x (endpoint)
                    WHERE NOT EXISTS (SELECT 1 FROM attempts AS a
                                      WHERE a.tenant_id = e.tenant_id AND a.endpoint_id = x.endpoint
                                        AND a.event_id = e.id AND a.outcome = 'success')";
        let waiting = "SELECT count(*)::text FROM pending";
        let (open, waiting) = (stage.installation.query(open).await, stage.installation.query(waiting).await);
        (open == ["0"] && waiting == ["0"]).then_some(())
    })
    .await;
    let dead = stage
        .installation
        .query("SELECT count(*)::text FROM dead_letters")
        .await;
    assert_eq!(dead, ["0"]);
}

/// Requests that were made although one for the same event and endpoint had been answered well.
pub(crate) fn repeated(stage: &Stage) -> usize {
    let arrivals = arrivals(stage);
    let requests: usize = arrivals.values().sum();
    requests - arrivals.len() - refused(stage)
}

/// Refusals that the failing endpoints have given: each is followed by another request, rightly.
fn refused(stage: &Stage) -> usize {
    let mut by_path: HashMap<String, usize> = HashMap::new();
    for path in stage.receiver.map(|request| request.path().to_owned()) {
        *by_path.entry(path).or_default() += 1;
    }
    (0..FAILING)
        .map(|endpoint| {
            by_path
                .get(&path(endpoint))
                .copied()
                .unwrap_or_default()
                .min(REFUSED)
        })
        .sum()
}

/// Path and event of all requests to endpoints of the load → how many there were.
fn arrivals(stage: &Stage) -> HashMap<(String, String), usize> {
    let mut arrivals = HashMap::new();
    let requests = stage.receiver.map(|request| {
        let id = request.header("webhook-id").unwrap_or_default();
        (request.path().to_owned(), id.to_owned())
    });
    for arrival in requests {
        if arrival.0.starts_with("/to/") {
            *arrivals.entry(arrival).or_default() += 1;
        }
    }
    arrivals
}

//! The wall clock of a node's machine is set, and nothing follows from it: a node goes by the database's time, carried
//! forward by its monotonic clock (docs/adr/0003).

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::id::EventId;
use posthorn_store::clock::Clock;
use posthorn_tests::program::Installation;
use posthorn_tests::receiver::{Received, Reply, Script};
use posthorn_tests::wall_clock::WallClock;
use serde_json::json;

use crate::load::ARRIVAL;
use crate::stage::Stage;

/// Between two attempts, by the endpoint's policy.
const DELAY: Duration = Duration::from_secs(3);

/// What its jitter, and the way to the receiver, may take from that.
const EARLY: Duration = Duration::from_millis(700);

/// Seconds that the clock is ahead, one after the other.
const JUMPS: [i64; 3] = [3600, -3600, 0];

/// The time that a request says it was sent, and the time of its event.
fn times(request: &Received) -> [DateTime<Utc>; 2] {
    let sent = request.header("webhook-timestamp").unwrap();
    let sent = DateTime::from_timestamp(sent.parse().unwrap(), 0).unwrap();
    [sent, event(request).minted_at()]
}

fn event(request: &Received) -> EventId {
    request.header("webhook-id").unwrap().parse().unwrap()
}

impl Stage {
    /// An endpoint that wants one type and does this with its first request.
    async fn failing_once(&self, path: &str, event_type: &str, first: Reply) {
        let script = Script::first(1, first).then(Reply::status(200));
        self.receiver.script(path, script);
        let delay = u64::try_from(DELAY.as_millis()).unwrap();
        let policy = json!({"kind": "fixed", "delay_ms": delay, "max_attempts": 3});
        let fields = json!({"url": self.receiver.url(path), "event_types": [event_type], "retry_policy": policy});
        self.api.endpoint(&fields).await;
    }
}

/// INV-2, INV-4: no retry comes early or late, no signature and no id tells another time, no id goes back, and what was out
/// when the node died is found again.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_jumps_an_hour_on_and_back_changes_nothing() {
    let wall = WallClock::make();
    let installation = Installation::new().await;
    let (name, library) = wall.variable();
    let node = installation.serve_with(name, library).await;
    let mut stage = Stage::around(installation, node).await;
    let began = Clock::start().now();
    for (number, ahead) in JUMPS.into_iter().enumerate() {
        let (path, event_type) = (format!("/{number}"), format!("jump.n{number}"));
        stage
            .failing_once(&path, &event_type, Reply::status(500))
            .await;
        stage.api.submit(&event_type, b"{}").await;
        stage.arrived(&path, 1).await;
        wall.set(ahead);
        let requests = stage.arrived(&path, 2).await;
        let waited = requests[1].arrived.duration_since(requests[0].arrived);
        assert!(waited + EARLY > DELAY && waited < DELAY * 3, "{waited:?}");
    }

    wall.set(3600);
    stage
        .failing_once("/killed", "jump.killed", Reply::hang())
        .await;
    stage.api.submit("jump.killed", b"{}").await;
    stage.arrived("/killed", 1).await;
    stage.node.kill().await;
    stage.node.start_again();
    stage.node.ready().await;
    stage.receiver.wait_for("/killed", 2, ARRIVAL).await;

    let rough = TimeDelta::seconds(2);
    let ended = Clock::start().now();
    let requests = stage.receiver.requests();
    for time in requests.iter().flat_map(times) {
        assert!(time > began - rough && time < ended + rough, "{time}");
    }
    let events: Vec<_> = requests.iter().map(event).collect();
    assert!(events.is_sorted(), "{events:?}");
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
    let ready = stage.api.get("/readyz").await;
    assert_eq!(ready.status, 200);
}

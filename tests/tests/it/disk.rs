//! The database's disk is full: nothing is promised that cannot be kept, and little is said about it.

use std::collections::HashSet;
use std::time::Duration;

use posthorn_domain::id::EventId;
use posthorn_tests::cluster::Cluster;
use posthorn_tests::program::Installation;
use posthorn_tests::wait::{pause, until};
use serde_json::json;

use crate::load::{self, ARRIVAL, Load, delivers_again};
use crate::stage::{AMPLE, Stage};

/// How long it stays full.
const FULL: Duration = Duration::from_secs(6);

/// Lines that a node may log about it: some loops, accept and record, when it begins and when it ends, and once more where the
/// database itself went down for it.
const LINES: usize = 40;

impl Stage {
    fn lines(&self) -> usize {
        self.node.log().lines().count()
    }
}

/// INV-1, INV-2; G04: 503 and no 2xx without a commit; well again when there is room; and the logs do not help to fill it.
/// Only root can mount a disk that is small, so that for others there is nothing to ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_as_such_and_costs_no_event() {
    let Some(mut cluster) = Cluster::start_on_a_small_disk().await else {
        return;
    };
    let stage = Stage::of(Installation::on(&cluster.url("postgres")).await).await;
    let made = stage.endpoint("/changed", 500, 3).await;
    let load = Load::start(&stage).await;
    pause(Duration::from_secs(1)).await;

    let before = stage.lines();
    cluster.fill_disk();
    until("a caller to be turned away", AMPLE, async || {
        let answer = stage.api.try_post("/v1/events", load::event()).await?;
        (answer.status == 503).then_some(())
    })
    .await;
    pause(FULL).await;
    let path = format!("/v1/endpoints/{}", made["id"].as_str().unwrap());
    let description = json!({ "description": "x".repeat(400) });
    let changed = stage.api.patch(&path, &description).await;
    assert!([200, 503].contains(&changed.status), "{changed:?}");
    cluster.free_disk().await;
    delivers_again(&stage).await;
    let said = stage.lines() - before;
    assert!(said <= LINES, "{said} lines:\n{}", stage.node.log());

    let promised = load.end().await;
    let stored = stage.installation.query("SELECT id::text FROM events");
    let stored: HashSet<String> = stored.await.into_iter().collect();
    for id in &promised {
        let id: EventId = id.parse().unwrap();
        assert!(stored.contains(&id.uuid().to_string()), "{id} is not there");
    }
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

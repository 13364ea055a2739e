//! A database that is away.

use std::time::Duration;

use posthorn_tests::cluster::Cluster;
use posthorn_tests::program::{At, Installation, submission};
use posthorn_tests::wait::until;

use super::assert_problem;
use crate::stage::{AMPLE, Stage};

/// E23, G24: a database that is away is 503 and Retry-After, never 401 or 403, and passes by itself.
#[tokio::test]
async fn a_database_that_is_away_is_told_as_such_and_comes_back() {
    let mut cluster = Cluster::start().await;
    let stage = Stage::of(Installation::on(&cluster.url("postgres")).await).await;
    stage.endpoint("/ok", 100, 3).await;
    let before = stage.api.submit("a.b", b"1").await;
    stage.delivery(&before, "delivered").await;

    cluster.stop_immediately().await;
    for _ in 0..2 {
        let answer = stage.api.post("/v1/events", submission("a.b", b"2")).await;
        assert_problem(&answer, 503, "unavailable");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
        let answer = stage.api.get("/v1/events").await;
        assert_problem(&answer, 503, "unavailable");
        assert!(answer.header("retry-after").parse::<u32>().unwrap() >= 1);
    }
    // Told once, not for each request.
    let log = stage.node.log();
    assert_eq!(log.matches("requests are refused from now on").count(), 1);
    assert_eq!(log.matches("request refused").count(), 0);
    let stranger = stage.node.client("ph_live_nobody").get("/v1/events").await;
    assert_problem(&stranger, 401, "unauthenticated");
    let alive = stage.node.client("").get("/livez").await;
    assert_eq!(alive.status, 200);
    let reason = until("readiness to tell", AMPLE, async || {
        let answer = stage.node.client("").get("/readyz").await;
        (answer.status == 503).then(|| answer.json().text("/reasons/0/code"))
    })
    .await;
    assert_eq!(reason, "database_unreachable");
    // Nor for each step of the engine's loops, several times a second.
    until("the engine to tell", AMPLE, async || {
        let log = stage.node.log();
        (log.matches("steps of the engine fail").count() == 1).then_some(())
    })
    .await;

    cluster.start_again().await;
    let after = until(
        "events to be accepted again",
        Duration::from_secs(10),
        async || {
            let answer = stage.api.post("/v1/events", submission("a.b", b"3")).await;
            (answer.status == 202).then(|| answer.json().text("/id"))
        },
    )
    .await;
    stage.delivery(&after, "delivered").await;
    until("the engine to tell that it goes on", AMPLE, async || {
        stage
            .node
            .log()
            .contains("steps of the engine are done again")
            .then_some(())
    })
    .await;
    let log = stage.node.log();
    assert_eq!(log.matches("steps of the engine fail").count(), 1);
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// A node that may not accept is not ready, though the database answers; and is again once its lease is renewed.
#[tokio::test]
async fn a_node_whose_lease_lapsed_is_not_ready_and_says_so() {
    let mut stage = Stage::set().await;
    let held = stage
        .installation
        .hold("LOCK TABLE nodes IN SHARE ROW EXCLUSIVE MODE")
        .await;
    let reason = until("readiness to tell", AMPLE, async || {
        let answer = stage.node.client("").get("/readyz").await;
        (answer.status == 503).then(|| answer.json().text("/reasons/0/code"))
    })
    .await;
    assert_eq!(reason, "lease_lapsed");
    drop(held);
    stage.node.ready().await;
}

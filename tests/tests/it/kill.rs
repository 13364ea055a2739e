//! The program and its database are killed at any moment, and what was promised is kept.
//!
//! INV-1, INV-2, INV-6: whatever was answered 202 arrives at every endpoint that it was for; the oracle finds nothing
//! lost; what arrives twice was under way when something was killed.

use std::collections::HashSet;
use std::time::Duration;

use posthorn_tests::cluster::Cluster;
use posthorn_tests::environment;
use posthorn_tests::program::{At, Installation};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::{pause, until};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::engine_homes::most_in_a_second;
use crate::load::{self, ARRIVAL, Load, REPEATED_PER_KILL, delivers_again, drawn};
use crate::stage::{AMPLE, Stage};

/// How long a node may take to end when it is asked to.
const ORDERLY_END: Duration = Duration::from_secs(40);

/// INV-1, INV-2, INV-4; D15, D16.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_accepted_is_lost_when_the_server_is_killed() {
    let mut stage = Stage::set().await;
    let load = Load::start(&stage).await;
    let kills = environment::number("POSTHORN_KILLS", 5);
    let mut dice = StdRng::seed_from_u64(20_260_101);
    for _ in 0..kills {
        pause(drawn(&mut dice, 1_000, 6_000)).await;
        stage.node.kill().await;
        stage.node.start_again();
        // Now and then the next kill comes while it is still starting.
        if dice.random_bool(0.7) {
            stage.node.ready().await;
        }
    }
    stage.node.ready().await;
    pause(Duration::from_secs(1)).await;
    let promised = load.end().await;
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    let repeated = load::repeated(&stage);
    assert!(
        repeated <= REPEATED_PER_KILL * kills,
        "{repeated} requests too many"
    );
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-1, INV-2; G01, E23.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_accepted_is_lost_when_the_database_is_killed() {
    let mut cluster = Cluster::start().await;
    let stage = Stage::of(Installation::on(&cluster.url("postgres")).await).await;
    let load = Load::start(&stage).await;
    let mut dice = StdRng::seed_from_u64(20_260_102);
    let deaths = 3;
    for death in 0..deaths {
        pause(drawn(&mut dice, 1_000, 4_000)).await;
        if death % 2 == 0 {
            cluster.stop_immediately().await;
        } else {
            cluster.kill().await;
        }
        pause(drawn(&mut dice, 100, 3_000)).await;
        cluster.start_again().await;
        delivers_again(&stage).await;
    }
    let promised = load.end().await;
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    let repeated = load::repeated(&stage);
    assert!(
        repeated <= REPEATED_PER_KILL * deaths,
        "{repeated} requests too many"
    );
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-2, INV-6; G13: an orderly end hands over everything, and nothing is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_to_end_under_load_ends_in_order_and_loses_nothing() {
    let mut stage = Stage::set().await;
    let load = Load::start(&stage).await;
    let slow = Reply::status(200).after(Duration::from_secs(3));
    stage.receiver.script("/slow", slow);
    stage.endpoint("/slow", 500, 5).await;
    pause(Duration::from_secs(3)).await;
    stage.node.ask_to_end();
    let status = stage.node.ended(ORDERLY_END).await;
    assert_eq!(status.code(), Some(0), "{status}");
    let states = stage.installation.query("SELECT state FROM nodes").await;
    assert_eq!(states, ["recovered"]);
    stage.node.start_again();
    stage.node.ready().await;
    let promised = load.end().await;
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    assert_eq!(load::repeated(&stage), 0, "an orderly end repeats nothing");
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-2, INV-6; G15: nodes are replaced one after the other while events come in through both, and less than a
/// thousandth is sent twice.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_replaced_one_by_one_under_load_and_nothing_is_lost() {
    let mut stage = Stage::set().await;
    let mut other = stage.installation.serve().await;
    let through_the_other = stage.api.through(other.address());
    let load = Load::through(&stage, &[stage.api.clone(), through_the_other]).await;
    for _ in 0..2 {
        for node in [&mut stage.node, &mut other] {
            pause(Duration::from_secs(1)).await;
            node.ask_to_end();
            let status = node.ended(ORDERLY_END).await;
            assert_eq!(status.code(), Some(0), "{status}");
            node.start_again();
            node.ready().await;
        }
    }
    let promised = load.end().await;
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    let (repeated, requests) = (load::repeated(&stage), stage.receiver.map(|_| ()).len());
    assert!(
        repeated * 1000 < requests,
        "{repeated} of {requests} repeated"
    );
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-2; G13.
#[tokio::test]
async fn a_second_signal_ends_at_once_and_loses_nothing() {
    let mut stage = Stage::set().await;
    stage.receiver.script(
        "/",
        Script::first(1, Reply::hang()).then(Reply::status(200)),
    );
    stage.endpoint("/", 100, 3).await;
    let id = stage.api.submit("a.b", b"1").await;
    stage.arrived("/", 1).await;
    stage.node.ask_to_end();
    until("the node to be stopping", AMPLE, async || {
        stage.node.log().contains("stopping").then_some(())
    })
    .await;
    stage.node.ask_to_end();
    let status = stage.node.ended(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(128 + 15), "{status}");
    stage.node.start_again();
    stage.node.ready().await;
    stage.receiver.wait_for("/", 2, ARRIVAL).await;
    stage.delivery(&id, "delivered").await;
}

/// INV-2, INV-4; D15.
#[tokio::test]
async fn a_success_that_was_not_recorded_is_delivered_again_with_the_same_id() {
    let mut stage = Stage::set().await;
    stage.endpoint("/", 100, 3).await;
    // Results cannot be recorded while this is held.
    let held = stage
        .installation
        .hold("LOCK TABLE attempts IN SHARE MODE")
        .await;
    let id = stage.api.submit("a.b", br#"{"once":1}"#).await;
    stage.arrived("/", 1).await;
    stage.node.kill().await;
    drop(held);
    stage.node.start_again();
    stage.node.ready().await;
    let requests = stage.receiver.wait_for("/", 2, ARRIVAL).await;
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(id.as_str()));
        assert_eq!(request.body.as_ref(), br#"{"once":1}"#);
    }
    let delivery = stage.delivery(&id, "delivered").await;
    assert_eq!(delivery.pointer("/attempt_count"), Some(&json!(1)));
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-2, INV-5, INV-6; D16.
#[tokio::test]
async fn a_node_that_slept_past_its_lease_overwrites_nothing_and_goes_on_in_a_new_stream() {
    let stage = Stage::set().await;
    // The sleeper's own request is answered with a failure that it reads when all is over.
    let failing = Script::first(1, Reply::status(500).after(Duration::from_secs(1)));
    stage.receiver.script("/", failing.then(Reply::status(200)));
    stage.endpoint("/", 100, 1).await;
    let other = stage.installation.serve().await;
    let id = stage.api.submit("a.b", b"1").await;
    stage.arrived("/", 1).await;
    stage.node.freeze();
    stage.receiver.wait_for("/", 2, ARRIVAL).await;
    let through_the_other = stage.api.through(other.address());
    until("the other node's success", AMPLE, async || {
        let event = through_the_other
            .get(&format!("/v1/events/{id}"))
            .await
            .expect(200);
        (event.text("/deliveries/0/state") == "delivered").then_some(())
    })
    .await;

    stage.node.thaw();
    until("a new stream of the sleeper", AMPLE, async || {
        stage
            .node
            .log()
            .contains("another node closed this stream")
            .then_some(())
    })
    .await;
    let next = until("the sleeper to accept again", AMPLE, async || {
        let answer = stage.api.try_post("/v1/events", load::event()).await?;
        (answer.status == 202).then(|| answer.json().text("/id"))
    })
    .await;
    stage.delivery(&next, "delivered").await;
    stage.delivery(&id, "delivered").await;
    let letters = stage.api.get("/v1/dead-letters").await.expect(200);
    assert!(letters.list("/data").is_empty(), "{letters}");
    let streams = stage
        .installation
        .query("SELECT state FROM nodes ORDER BY state")
        .await;
    assert_eq!(streams, ["open", "open", "recovered"]);
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// D27, D16, INV-6: the home of an endpoint with a rate is killed; another takes its place, nothing is lost, and the rate holds
/// but for what was out already.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_holds_though_the_node_that_keeps_it_is_killed() {
    const EVENTS: usize = 60;
    let stage = Stage::set().await;
    let url = stage.receiver.url("/limited");
    let limit = json!({ "per_second": 10, "burst": 1 });
    let fields = json!({ "url": url, "rate_limit": limit });
    stage.api.endpoint(&fields).await;
    let mut nodes = vec![
        stage.installation.serve().await,
        stage.installation.serve().await,
    ];
    let settled = "SELECT count(*)::text FROM shards WHERE owner IS NOT NULL GROUP BY owner";
    until("the shards to be shared", AMPLE, async || {
        (stage.installation.query(settled).await.len() == 3).then_some(())
    })
    .await;
    let callers: Vec<_> = nodes
        .iter()
        .map(|node| stage.api.through(node.address()))
        .chain([stage.api.clone()])
        .collect();
    for (_, caller) in (0..EVENTS).zip(callers.iter().cycle()) {
        caller.submit("a.b", b"1").await;
    }
    stage.arrived("/limited", 10).await;
    let home = "SELECT name FROM nodes JOIN shards ON owner = stream
                WHERE shard = (SELECT get_byte(uuid_send(id), 15) FROM endpoints)";
    let home = stage.installation.query(home).await;
    nodes.push(stage.node);
    let is_home = |port: u16| home.iter().any(|name| name.ends_with(&port.to_string()));
    for node in nodes
        .iter_mut()
        .filter(|node| is_home(node.address().port()))
    {
        node.kill().await;
    }
    until("every event to arrive", ARRIVAL, async || {
        let ids = stage
            .receiver
            .map(|request| request.header("webhook-id").map(str::to_owned));
        let ids: HashSet<_> = ids.into_iter().collect();
        (ids.len() == EVENTS).then_some(())
    })
    .await;
    let requests = stage.receiver.requests();
    // What was out when it was killed, and what its successor's bucket holds, are one each.
    assert!(
        most_in_a_second(&requests) <= 12,
        "{}",
        most_in_a_second(&requests)
    );
    assert!(requests.len() <= EVENTS + 16, "{}", requests.len());
}

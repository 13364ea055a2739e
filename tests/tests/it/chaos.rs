//! The way to the database is bad: connections break, answers are late or lost, nobody answers any more, and what was
//! promised is kept.
//!
//! INV-1, INV-2, INV-6, INV-11: whatever was answered 202 arrives; the oracle finds nothing lost; nothing is sent twice
//! but what changed hands; the node is well again by itself, and its memory stays what it was. The database itself is never harmed here: that is
//! what the kill tests do.

mod storm;

use std::time::Duration;

use futures_util::future::join_all;
use posthorn_tests::environment;
use posthorn_tests::program::Installation;
use posthorn_tests::proxy::{Fate, Way};
use posthorn_tests::wait::pause;

use crate::load::{self, ARRIVAL, Load, REPEATED_PER_KILL, delivers_again};
use crate::stage::Stage;
use storm::Storm;

/// Longer than any step at the database may take.
const STILL: usize = 14;

/// How long a node may take to give up the connections on which nobody answers: a step, and the place in its pool.
const GIVEN_UP: Duration = Duration::from_secs(15);

/// What a node may hold more after the storm than before it.
const MORE_MEMORY: u64 = 128 * 1024 * 1024;

/// How often another node has taken this installation's streams over: each that was closed is followed by another.
async fn takeovers(stage: &Stage, nodes: usize) -> usize {
    let streams = "SELECT count(*)::text FROM nodes";
    let streams: usize = stage.installation.query(streams).await[0].parse().unwrap();
    streams - nodes
}

/// Ends the load and asks for everything that was promised.
async fn assert_nothing_lost(stage: &Stage, load: Load, nodes: usize) {
    let promised = load.end().await;
    load::assert_kept(stage, &promised, ARRIVAL).await;
    let (repeated, taken_over) = (load::repeated(stage), takeovers(stage, nodes).await);
    assert!(
        repeated <= REPEATED_PER_KILL * taken_over,
        "{repeated} requests too many, with {taken_over} streams taken over"
    );
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

/// INV-1, INV-2, INV-6, INV-11; G03: one of two nodes has a bad way to the database. `POSTHORN_STORM_SECONDS` makes it longer,
/// `POSTHORN_STORM_SEED` another.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_was_accepted_is_lost_when_the_way_to_the_database_is_bad() {
    let seconds = environment::number("POSTHORN_STORM_SECONDS", 20);
    let seed = environment::number("POSTHORN_STORM_SEED", 20_260_103);
    let installation = Installation::new().await;
    let proxy = installation.proxy().await;
    let node = installation.serve_through(&proxy).await;
    let calm = installation.serve().await;
    let stage = Stage::around(installation, node).await;
    let through_the_calm = stage.api.through(calm.address());
    let load = Load::through(&stage, &[stage.api.clone(), through_the_calm]).await;
    pause(Duration::from_secs(1)).await;
    let before = stage.node.memory();

    let mut storm = Storm::new(&proxy, seed as u64);
    storm.blow(Duration::from_secs(seconds as u64)).await;

    delivers_again(&stage).await;
    assert_nothing_lost(&stage, load, 2).await;
    let after = stage.node.memory();
    assert!(after < before + MORE_MEMORY, "{before} → {after} bytes");
}

/// INV-2, INV-6, INV-11; G03: nobody answers any more on any of a node's connections, and nobody closes them. It keeps its
/// stream, gives up those connections, and is well with new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_connections_all_fell_silent_is_well_again_by_itself() {
    let installation = Installation::new().await;
    let proxy = installation.proxy().await;
    let node = installation.serve_through(&proxy).await;
    // Whoever loses its lease loses its stream to this one.
    let other = installation.serve().await;
    let stage = Stage::around(installation, node).await;
    let load = Load::start(&stage).await;
    pause(Duration::from_secs(2)).await;

    proxy.decide_all(Fate::Silent);
    // More than its pool has connections.
    let calls = (0..24).map(|_| stage.api.try_get("/v1/events?limit=1"));
    let (answers, ()) = tokio::join!(join_all(calls), delivers_again(&stage));
    for answer in answers {
        let status = answer.unwrap().status;
        assert!([200, 503].contains(&status), "{status}");
    }
    let listing = stage.api.get("/v1/events?limit=1");
    let listed = tokio::time::timeout(GIVEN_UP, listing).await.unwrap();
    assert_eq!(listed.status, 200);
    assert_eq!(takeovers(&stage, 2).await, 0);
    assert_nothing_lost(&stage, load, 2).await;
    drop(other);
}

/// INV-1, INV-2, INV-6, INV-11; G03: the database stands still for longer than anything waits, `POSTHORN_STILL_SECONDS` long.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_stood_still_costs_no_event_and_no_restart() {
    let seconds = environment::number("POSTHORN_STILL_SECONDS", STILL);
    let installation = Installation::new().await;
    let proxy = installation.proxy().await;
    let node = installation.serve_through(&proxy).await;
    let stage = Stage::around(installation, node).await;
    let load = Load::start(&stage).await;
    pause(Duration::from_secs(3)).await;

    proxy.set(Way::Stalled);
    let not_ready = async {
        pause(Duration::from_secs(seconds as u64)).await;
        stage.api.get("/readyz").await.status
    };
    let (status, reading) = tokio::join!(not_ready, stage.api.get("/v1/events"));
    assert_eq!((status, reading.status), (503, 503));
    proxy.set(Way::Open);

    delivers_again(&stage).await;
    pause(Duration::from_secs(3)).await;
    assert_nothing_lost(&stage, load, 1).await;
}

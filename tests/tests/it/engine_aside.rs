//! What is set aside, and what took too long to be read, stands in nobody's way and is not sent after all.

use std::time::Duration;

use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_tests::engine::{AMPLE, Runs};
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::until;
use sqlx::PgConnection;

use crate::engine_nodes::{WAITING, submit_all};
use crate::engine_scene::Scene;

/// Long enough for a busy machine, and far below what the lock is held for.
const PROMPT: Duration = Duration::from_secs(5);

impl Scene {
    /// Takes a lock that lasts until COMMIT, or the connection's end.
    async fn locked(&self, lock: &'static str) -> PgConnection {
        let mut connection = self.database.superuser().await;
        for statement in ["BEGIN", lock] {
            sqlx::query(statement)
                .execute(&mut connection)
                .await
                .unwrap();
        }
        connection
    }
}

/// Whoever writes `pending` waits; whoever reads it does not.
const NOTHING_BECOMES_PENDING: &str = "LOCK TABLE pending IN EXCLUSIVE MODE";

/// INV-13: what of one tenant is set aside, more than any queue holds and not to be written now, keeps nobody from being sent to.
#[tokio::test]
async fn engine_aside_of_one_tenant_is_in_nobodys_way() {
    let scene = Scene::begin().await;
    for _ in 0..24 {
        let endpoint = scene.endpoint("/paused").await;
        scene.tenants.set(&endpoint, EndpointState::Paused).await;
    }
    let other = scene.tenants.tenant().await;
    scene
        .tenants
        .endpoint(other, &scene.receiver.url("/good"))
        .await;
    let node = scene.node(Runs::All).await;
    let _lock = scene.locked(NOTHING_BECOMES_PENDING).await;
    submit_all(&node, scene.tenant, 400).await;
    node.accept(other, "{}").await;
    assert_eq!(scene.receiver.wait_for("/good", 1, PROMPT).await.len(), 1);
}

/// INV-13: single retries are found and sent while the piles that were found before them cannot be parked.
#[tokio::test]
async fn engine_aside_of_piles_does_not_end_the_search_for_what_is_due() {
    let scene = Scene::begin().await;
    scene.receiver.script("/pile", Reply::hang());
    // More piles than one scan reads, so that not all of the singles are in the first.
    for (path, endpoints, rows) in [("/pile", 40, 150), ("/single", 8, 1)] {
        for _ in 0..endpoints {
            let endpoint = scene.endpoint(path).await;
            let (tenant, id) = (endpoint.tenant, endpoint.id);
            scene.rows.fill_pending(tenant, id, rows).await;
        }
    }
    let node = scene.node(Runs::All).await;
    let _lock = scene.locked(NOTHING_BECOMES_PENDING).await;
    tokio::select! {
        _ = node.due.run_once() => unreachable!("the piles cannot be parked"),
        requests = scene.receiver.wait_for("/single", 8, PROMPT) => assert_eq!(requests.len(), 8),
    }
}

/// INV-6: what left its lane under a live lease, and was read when the lease had lapsed, is not sent: by then it may be
/// another node's.
#[tokio::test]
async fn engine_aside_is_what_was_read_after_the_lease_had_lapsed() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let node = scene.node(Runs::WithoutLease).await;
    scene
        .rows
        .fill_pending(endpoint.tenant, endpoint.id, 1)
        .await;
    let lock = scene
        .locked("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        .await;
    node.due.run_once().await;
    until("the row to be read", AMPLE, || async {
        (scene.rows.number(WAITING).await == 1).then_some(())
    })
    .await;
    let stream = node.keeper.present().unwrap();
    let long_ago = Clock::start().monotonic().checked_sub(limits::LEASE_TTL);
    stream.renewed(long_ago.unwrap());
    drop(lock);
    node.settled().await;
    assert_eq!(scene.receiver.requests().len(), 0);
}

//! Deadlines: a peer that falls silent costs its own step, and nothing after it (INV-11).
//!
//! The waits are the engine's own, so that some of these tests take as long as a step may.

use std::time::Duration;

use bytes::Bytes;
use posthorn_store::accept::Acceptor;
use posthorn_store::database::Database;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::engine::{AMPLE, Node, Parts, Runs, event, in_order};
use posthorn_tests::proxy::{Loss, Lost, Proxy};
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::{pause, until};
use posthorn_worker::Worker;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::engine_scene::Scene;

/// Everything on the connection on which these bytes come next is lost, and it stays open.
fn silence(bytes: &'static str) -> Loss {
    Loss {
        marker: Bytes::from_static(bytes.as_bytes()),
        request: Bytes::new(),
        lost: Lost::Everything,
    }
}

impl Scene {
    /// A failure, then successes.
    async fn fails_once(&self) {
        let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
        self.receiver.script("/hook", script);
        self.endpoint("/hook").await;
    }
}

/// INV-11, INV-13: the slot comes back, and so does the only connection's place in its pool.
#[tokio::test]
async fn engine_deadlines_end_a_load_that_nobody_answers() {
    let scene = Scene::begin().await;
    scene.fails_once().await;
    let proxy = scene.database.proxy().await;
    let database = scene.database.few_pools_through(&proxy, 1);
    let node = Node::start(database, Runs::All).await;
    node.accept(scene.tenant, "{}").await;
    scene.attempted(&node, "/hook", 1).await;
    proxy.lose(silence("AS \"payload?\""));
    scene.rows.travel_to_due().await;
    node.due.run_once().await;
    proxy.lost(1).await;
    until("the delivery to be sent again", AMPLE, || async {
        node.due.run_once().await;
        (scene.receiver.requests().len() == 2).then_some(())
    })
    .await;
}

/// INV-11: a loop whose step falls silent goes on with the next.
#[tokio::test]
async fn engine_deadlines_end_a_scan_that_nobody_answers() {
    let scene = Scene::begin().await;
    scene.fails_once().await;
    let proxy = scene.database.proxy().await;
    let parts = Parts::open(scene.database.pools_through(&proxy)).await;
    let acceptor = parts.acceptor.clone();
    proxy.lose(silence("due >= s.after"));
    let worker = Worker::start(parts.whole());
    proxy.lost(1).await;
    acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    until("the delivery to be sent again", AMPLE, || async {
        scene.rows.travel_to_due().await;
        (scene.receiver.requests().len() == 2).then_some(())
    })
    .await;
    acceptor.stop();
    worker.shutdown(in_order()).await;
}

/// The statement with which the sweep lists what is parked falls silent in a whole node that has a parked row to send.
async fn silent_sweep(scene: &Scene) -> (Proxy, Database, Acceptor, Worker) {
    let endpoint = scene.endpoint("/hook").await;
    scene.rows.fill_pending(scene.tenant, endpoint.id, 1).await;
    scene.rows.run("UPDATE pending SET due = NULL").await;
    let proxy = scene.database.proxy().await;
    let database = scene.database.pools_through(&proxy);
    let parts = Parts::open(database.clone()).await;
    let acceptor = parts.acceptor.clone();
    proxy.lose(silence("found.ends_at <= now()"));
    let worker = Worker::start(parts.whole());
    proxy.lost(1).await;
    (proxy, database, acceptor, worker)
}

/// INV-11, INV-2: what is parked is sent all the same.
#[tokio::test]
async fn engine_deadlines_end_a_sweep_that_nobody_answers() {
    let scene = Scene::begin().await;
    let (_proxy, _, acceptor, worker) = silent_sweep(&scene).await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    acceptor.stop();
    worker.shutdown(in_order()).await;
}

/// INV-11: a node that is told to stop ends before the statement would have been given up.
#[tokio::test]
async fn engine_deadlines_keep_no_node_from_stopping() {
    let scene = Scene::begin().await;
    let (_proxy, database, acceptor, worker) = silent_sweep(&scene).await;
    acceptor.stop();
    let stopping = async {
        worker.shutdown(in_order()).await;
        database.close().await;
    };
    let stopped = tokio::time::timeout(Duration::from_secs(10), stopping).await;
    assert!(stopped.is_ok());
}

/// INV-11: a connection that is never given back, for nobody answers whoever has it.
#[tokio::test]
async fn engine_deadlines_end_the_closing_of_a_pool() {
    let scene = Scene::begin().await;
    let database = scene.database.pools(1, 1);
    let scope = TenantScope::new_authenticated(scene.tenant, Actor::COMMAND_LINE);
    let held = database.tenant_tx(&scope).await.unwrap();
    let closed = tokio::time::timeout(AMPLE, database.close()).await;
    assert!(closed.is_ok());
    drop(held);
}

/// INV-11, INV-2: what a node left that died is sent, though the first who took it up heard nothing any more.
#[tokio::test]
async fn engine_deadlines_end_a_recovery_that_nobody_answers() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let dead = scene.node(Runs::AcceptOnly).await;
    dead.accept(scene.tenant, "{}").await;
    let stream = dead.keeper.present().unwrap().id();
    drop(dead);
    scene.close_as_another(stream).await;
    let proxy = scene.database.proxy().await;
    let parts = Parts::open(scene.database.pools_through(&proxy)).await;
    let acceptor = parts.acceptor.clone();
    proxy.lose(silence("GREATEST(watermark, $3) WHERE stream"));
    let worker = Worker::start(parts.whole());
    proxy.lost(1).await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    acceptor.stop();
    worker.shutdown(in_order()).await;
}

/// INV-11: whichever comes first, the end of a body or the end of its second, the head has been said.
#[tokio::test]
async fn engine_deadlines_take_an_answer_that_is_closed_as_its_second_ends() {
    let scene = Scene::begin().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let endpoint = scene
        .tenants
        .endpoint_with(scene.tenant, &url, |new| new.timeout_ms = 1_000)
        .await;
    let node = scene.node(Runs::All).await;
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut request = [0; 4096];
    let read = connection.read(&mut request).await.unwrap();
    assert!(request[..read].starts_with(b"POST / HTTP/1.1\r\n"));
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nbegun";
    connection.write_all(head).await.unwrap();
    pause(Duration::from_secs(1)).await;
    drop(connection);
    node.settled().await;
    assert_eq!(scene.rows.outcomes(key).await, ["success"]);
}

//! SIGTERM, as callers, load balancers and orchestrators meet it: who has asked is answered, readiness goes first, and the end
//! comes in time, whatever the database does.

use std::net::SocketAddr;
use std::time::Duration;

use posthorn_tests::program::{At, Installation, submission};
use posthorn_tests::proxy::Way;
use posthorn_tests::receiver::{Reply, Script};
use posthorn_tests::wait::{pause, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::load::{self, ARRIVAL, Load};
use crate::stage::{AMPLE, Stage, known};

/// The whole budget of a node that stops, and what a busy machine may take besides.
const BUDGET: Duration = Duration::from_secs(33);

/// Callers who keep their connections.
const CALLERS: usize = 16;

/// A caller who keeps its connection, and sees whatever becomes of it.
struct Kept {
    stream: TcpStream,
    request: Vec<u8>,
}

impl Kept {
    async fn to(address: SocketAddr, key: &str) -> Self {
        let body = submission("load.event", b"1");
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: posthorn\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            request: [head.as_bytes(), &body].concat(),
        }
    }

    /// Submits an event; the answer, whole.
    async fn submit(&mut self) -> String {
        self.stream.write_all(&self.request).await.unwrap();
        let mut answer = Vec::new();
        let mut bytes = [0; 4096];
        while !answer.ends_with(b"}") {
            let read = self.stream.read(&mut bytes).await.unwrap();
            assert_ne!(read, 0, "closed before the answer");
            answer.extend_from_slice(&bytes[..read]);
        }
        String::from_utf8(answer).unwrap()
    }
}

fn is_last(answer: &str) -> bool {
    answer.to_lowercase().contains("\r\nconnection: close\r\n")
}

/// The id in an answer that must be 202.
fn accepted(answer: &str) -> String {
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<serde_json::Value>(body)
        .unwrap()
        .text("/id")
}

/// INV-1; G13: no request on a connection that was open goes without its answer; the last one says that it is the last.
#[tokio::test(flavor = "multi_thread")]
async fn every_caller_on_a_kept_connection_is_answered_until_it_is_told_to_go() {
    let mut stage = Stage::set().await;
    let key = stage.installation.tenant("Kept").await.key;
    known(&stage.node.client(&key)).await;
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let mut caller = Kept::to(stage.node.address(), &key).await;
        callers.spawn(async move {
            let mut ids = Vec::new();
            loop {
                let answer = caller.submit().await;
                ids.push(accepted(&answer));
                if is_last(&answer) {
                    return ids;
                }
                // Most often nothing is under way, and the next request just about to come.
                pause(Duration::from_millis(100)).await;
            }
        });
    }
    pause(Duration::from_secs(1)).await;
    stage.node.ask_to_end();
    let promised = callers.join_all().await.concat();
    let status = stage.node.ended(AMPLE).await;
    assert_eq!(status.code(), Some(0), "{status}");
    let written = stage
        .installation
        .query("SELECT count(*)::text FROM events");
    assert_eq!(written.await, [promised.len().to_string()]);
}

/// G13: a request that was sent on a kept connection before anybody could know that the node stops.
#[tokio::test]
async fn a_request_that_was_on_its_way_as_the_node_stopped_is_answered() {
    let stage = Stage::set().await;
    let key = stage.installation.tenant("Kept").await.key;
    known(&stage.node.client(&key)).await;
    let mut caller = Kept::to(stage.node.address(), &key).await;
    assert!(!is_last(&caller.submit().await));
    stage.node.ask_to_end();
    // Whoever comes now finds nobody; whoever is there is heard. Not asked without a pause: more connections than a busy node
    // takes fill the kernel's queue, and the next one waits a second for its place.
    while TcpStream::connect(stage.node.address()).await.is_ok() {
        pause(Duration::from_millis(10)).await;
    }
    let answer = caller.submit().await;
    accepted(&answer);
    assert!(is_last(&answer), "{answer}");
}

/// G13: not ready at once, and everything else as before until the pause is over.
#[tokio::test]
async fn a_node_with_a_pause_is_not_ready_and_still_serves_before_it_stops() {
    let installation = Installation::new().await;
    let node = installation
        .serve_with("POSTHORN_SHUTDOWN_PAUSE_SECONDS", "6")
        .await;
    let mut stage = Stage::around(installation, node).await;
    stage.endpoint("/", 100, 3).await;
    stage.node.ask_to_end();
    let probe = until("the node not to be ready", AMPLE, async || {
        let answer = stage.node.client("").get("/readyz").await;
        (answer.status == 503).then_some(answer)
    })
    .await;
    assert_eq!(probe.json().text("/reasons/0/code"), "stopping");
    assert_eq!(probe.header("connection"), "close");
    let id = stage.api.submit("a.b", b"1").await;
    stage.delivery(&id, "delivered").await;
    let status = stage.node.ended(AMPLE).await;
    assert_eq!(status.code(), Some(0), "{status}");
}

/// INV-1, INV-2, INV-11; G13: every connection to the database is open and nobody answers on it. The node ends in time, and
/// nobody was promised what is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_database_fell_silent_ends_in_time_and_loses_nothing() {
    let installation = Installation::new().await;
    let proxy = installation.proxy().await;
    let node = installation.serve_through(&proxy).await;
    let mut stage = Stage::around(installation, node).await;
    let load = Load::start(&stage).await;
    let slow = Script::first(48, Reply::status(200).after(Duration::from_secs(5)));
    stage
        .receiver
        .script("/slow", slow.then(Reply::status(200)));
    stage.endpoint("/slow", 500, 5).await;
    pause(Duration::from_secs(3)).await;

    proxy.set(Way::Stalled);
    pause(Duration::from_secs(1)).await;
    stage.node.ask_to_end();
    let status = stage.node.ended(BUDGET).await;
    assert_eq!(status.code(), Some(0), "{status}");

    proxy.set(Way::Open);
    stage.node.start_again();
    stage.node.ready().await;
    let promised = load.end().await;
    load::assert_kept(&stage, &promised, ARRIVAL).await;
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

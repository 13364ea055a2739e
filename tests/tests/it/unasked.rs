//! Answers that nobody asked for, on connections that are kept.

use std::sync::Arc;

use posthorn_tests::program::At;
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::until;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::{AMPLE, Stage};

const UNASKED: &str = "HTTP/1.1 299 Unasked\r\ncontent-length: 0\r\n\r\n";

/// INV-9; C23: the receiver writes when the next request comes, before it can have read it, which is when a client cannot tell.
#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_never_another_tenants_attempt() {
    let stage = Stage::set().await;
    let stranger = stage.stranger().await;
    let answer = Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
    stage.receiver.script("/a", answer.then_unasked(UNASKED));
    stage.receiver.script("/b", Reply::status(204));
    stage.endpoint("/a", 100, 1).await;
    let other = stranger
        .endpoint(&json!({"url": stage.receiver.url("/b")}))
        .await;
    for round in 1..=10 {
        let event = stage.api.submit("a.b", b"1").await;
        stage.delivery(&event, "delivered").await;
        stranger.submit("a.b", b"1").await;
        stage.arrived("/b", round).await;
    }
    let connections = |path| {
        let requests = stage.receiver.requests_to(path);
        requests.iter().map(|it| it.connection).collect::<Vec<_>>()
    };
    let (own, others) = (connections("/a"), connections("/b"));
    assert!(
        !others.iter().any(|other| own.contains(other)),
        "{own:?} {others:?}"
    );
    until("the attempts", AMPLE, async || {
        let path = format!("/v1/attempts?endpoint_id={}", other.text("/id"));
        let attempts = stranger.get(&path).await.expect(200);
        let attempts = attempts.list("/data");
        for attempt in attempts {
            assert_eq!(attempt["status"], 204, "{attempt}");
        }
        (attempts.len() == 10).then_some(())
    })
    .await;
}

/// C23: within a tenant, what came before the next request closes the connection.
#[tokio::test]
async fn a_kept_connection_on_which_an_answer_came_unasked_is_closed_before_the_next_request() {
    let stage = Stage::set().await;
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let url = format!("http://{}/", listener.local_addr().unwrap());
    stage.api.endpoint(&json!({"url": url})).await;
    let answered = async |status| {
        let taking = tokio::spawn(answer(Arc::clone(&listener), status));
        let event = stage.api.submit("a.b", b"1").await;
        let delivery = stage.delivery(&event, "delivered").await;
        assert_eq!(delivery["last_attempt"]["status"], status, "{delivery}");
        let stream = tokio::time::timeout(AMPLE, taking).await;
        stream.expect("a connection of its own").unwrap()
    };
    let mut idle = answered(200).await;
    idle.write_all(UNASKED.as_bytes()).await.unwrap();
    let _other = answered(204).await;
    let mut rest = Vec::new();
    // Closed with something unread, it is reset.
    let _ = idle.read_to_end(&mut rest).await;
    assert_eq!(rest, b"", "nothing of the second request was written to it");
}

/// Answers one request on a new connection, which stays open.
async fn answer(listener: Arc<TcpListener>, status: u16) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n1") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
    let answer = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream
}

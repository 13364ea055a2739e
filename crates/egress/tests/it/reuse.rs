//! A connection is used again where both sides meant it to be, and only where nothing happened on it meanwhile.

use std::{future::Future, io::Write, net::Shutdown, time::Duration};

use bytes::Bytes;
use http::HeaderMap;
use posthorn_domain::{delivery::ErrorKind, url::EndpointUrl};
use posthorn_egress::{Outgoing, Sent};
use posthorn_tests::receiver::{Receiver, Reply, Script};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::fixture::{AMPLE, answered, failed, open, post, post_of, post_within, tenant};

const UNASKED: &[u8] = b"HTTP/1.1 500 Unasked\r\ncontent-length: 0\r\n\r\n";

/// How many connections two requests need when the first is answered like this.
async fn connections_of_two(first: Reply) -> usize {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", first);
    let egress = open();
    assert_eq!(
        answered(post(&egress, &receiver.url("/")).await).status,
        200
    );
    receiver.script("/", Reply::status(204));
    assert_eq!(
        answered(post(&egress, &receiver.url("/")).await).status,
        204
    );
    receiver.connections()
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_body_that_ended() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    for reply in [
        Reply::status(200),
        Reply::status(200).body("ok"),
        Reply::status(200).body(vec![b'x'; 16 * 1024]),
        Reply::raw(chunked),
        Reply::raw("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n"),
    ] {
        assert_eq!(connections_of_two(reply.clone()).await, 1, "{reply:?}");
    }
}

#[tokio::test]
async fn a_connection_that_its_receiver_gives_up_is_not_used_again() {
    for reply in [
        Reply::status(200).header("connection", "close"),
        Reply::status(200).header("connection", "close").body("ok"),
        Reply::raw("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\n\r\nuntil the end").then_close(),
    ] {
        assert_eq!(connections_of_two(reply.clone()).await, 2, "{reply:?}");
    }
}

#[tokio::test]
async fn a_connection_on_which_more_than_the_answer_came_is_not_used_again() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for more in ["HTTP/1.1 500 Unasked\r\ncontent-length: 0\r\n\r\n", "x"] {
        let reply = Reply::raw(format!("{answer}{more}"));
        assert_eq!(connections_of_two(reply).await, 2, "{more:?}");
    }
}

/// A receiver of which every step is the test's own.
struct ByHand {
    listener: TcpListener,
    url: String,
}

impl ByHand {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// Answers one request on a new connection, which stays open.
    async fn answer(&self, status: u16) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\n{}") {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        }
        let answer = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    }
}

/// The runtime has seen what happened on the sockets of this test.
async fn noticed() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Both, in time.
async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    tokio::time::timeout(AMPLE, async { tokio::join!(one, other) })
        .await
        .expect("a request on a new connection")
}

#[tokio::test]
async fn what_comes_unasked_on_an_idle_connection_answers_no_request() {
    let (receiver, egress) = (ByHand::start().await, open());
    let (sent, mut idle) = both(post(&egress, &receiver.url), receiver.answer(200)).await;
    assert_eq!(answered(sent).status, 200);
    idle.write_all(UNASKED).await.unwrap();
    noticed().await;
    let (sent, _open) = both(post(&egress, &receiver.url), receiver.answer(204)).await;
    assert_eq!(answered(sent).status, 204);
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "nothing of the second request was written to it");
}

/// What the kernel has, though the runtime has not heard of it: nothing is awaited between what comes and the request.
#[tokio::test]
async fn what_came_unasked_or_was_closed_a_moment_ago_answers_no_request() {
    for closing in [false, true] {
        let (receiver, egress) = (ByHand::start().await, open());
        let (sent, idle) = both(post(&egress, &receiver.url), receiver.answer(200)).await;
        answered(sent);
        let mut idle = idle.into_std().unwrap();
        if closing {
            idle.shutdown(Shutdown::Write).unwrap();
        } else {
            idle.write_all(UNASKED).unwrap();
        }
        let (sent, _open) = both(post(&egress, &receiver.url), receiver.answer(204)).await;
        assert_eq!(answered(sent).status, 204);
        let (mut idle, mut rest) = (TcpStream::from_std(idle).unwrap(), Vec::new());
        // Closed with something unread, it is reset.
        let _ = idle.read_to_end(&mut rest).await;
        assert_eq!(rest, b"", "nothing of the second request was written to it");
    }
}

/// INV-9: what comes unasked after a request was written cannot be told from its answer.
#[tokio::test]
async fn no_request_goes_by_a_connection_that_another_tenant_has_left() {
    let (receiver, egress) = (ByHand::start().await, open());
    let url = &receiver.url;
    let of = |which| post_of(tenant(which), &egress, url, AMPLE);
    let (sent, mut idle) = both(of(1), receiver.answer(200)).await;
    answered(sent);
    let answering = async {
        tokio::select! {
            stream = receiver.answer(204) => Some(stream),
            _ = idle.read_u8() => {
                idle.write_all(UNASKED).await.unwrap();
                None
            }
        }
    };
    let (sent, own) = both(of(2), answering).await;
    assert_eq!(answered(sent).status, 204);
    assert!(own.is_some());
}

#[tokio::test]
async fn a_request_that_finds_its_connections_closed_takes_a_new_one() {
    let (receiver, egress) = (ByHand::start().await, open());
    let url = &receiver.url;
    let sending =
        async { tokio::join!(post(&egress, url), post(&egress, url), post(&egress, url)) };
    let serving = async {
        let mut idle = Vec::new();
        for _ in 0..3 {
            idle.push(receiver.answer(200).await);
        }
        idle
    };
    let ((first, second, third), idle) = both(Box::pin(sending), serving).await;
    for sent in [first, second, third] {
        answered(sent);
    }
    drop(idle);
    noticed().await;
    let (sent, _open) = both(post(&egress, url), receiver.answer(204)).await;
    assert_eq!(answered(sent).status, 204);
}

/// C23: what broke one that was kept has most likely broken the others, and a retry has no attempt to spare for each.
#[tokio::test]
async fn after_a_request_was_lost_on_a_kept_connection_the_next_takes_a_new_one() {
    for (lost, kind) in [
        (Reply::close(), ErrorKind::Connect),
        (Reply::reset(), ErrorKind::Connect),
        (Reply::hang(), ErrorKind::Timeout),
    ] {
        let (receiver, egress) = (Receiver::start().await.unwrap(), open());
        let url = receiver.url("/");
        // None is answered before all have come, so that each has a connection.
        let waiting = Reply::status(200).after(Duration::from_millis(300));
        receiver.script("/", waiting);
        let all = tokio::join!(
            post(&egress, &url),
            post(&egress, &url),
            post(&egress, &url)
        );
        for sent in [all.0, all.1, all.2] {
            answered(sent);
        }
        assert_eq!(receiver.connections(), 3);
        receiver.script("/", Script::first(1, lost).then(Reply::status(204)));
        failed(post_within(&egress, &url, AMPLE / 20).await, kind);
        answered(post(&egress, &url).await);
        assert_eq!(receiver.requests().pop().unwrap().connection, 4);
    }
}

#[tokio::test]
async fn a_connection_that_its_receiver_closed_while_idle_is_let_go_of_though_nothing_is_sent() {
    let (receiver, egress) = (ByHand::start().await, open());
    let (sent, mut idle) = both(post(&egress, &receiver.url), receiver.answer(200)).await;
    answered(sent);
    // Half of it: the other half is ours to close.
    idle.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(AMPLE / 5, idle.read_to_end(&mut rest)).await;
    closed.expect("it is closed in time").unwrap();
}

#[tokio::test]
async fn an_answer_counts_though_the_request_is_still_being_written() {
    let receiver = ByHand::start().await;
    let refusing = async {
        let (mut stream, _) = receiver.listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 1024]).await.unwrap();
        let answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
        stream
    };
    let url = EndpointUrl::parse(&receiver.url).unwrap();
    let (egress, outgoing) = (
        open(),
        Outgoing {
            tenant: tenant(1),
            url: &url,
            headers: HeaderMap::new(),
            body: Bytes::from(vec![b'x'; 32 * 1024 * 1024]),
            timeout: AMPLE,
        },
    );
    let (sent, _open): (Sent, _) = both(egress.send(outgoing), refusing).await;
    assert_eq!(answered(sent).status, 413);
}

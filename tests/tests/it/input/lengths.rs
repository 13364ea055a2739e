//! How long a body is, and what its sender says about that: told apart on the wire itself (A15, INV-11).

use std::net::SocketAddr;

use http::Method;
use posthorn_tests::program::{At, Client, submission};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{assert_problem, nothing_listed};
use crate::stage::{AMPLE, Stage, known};

/// Bytes of a payload, at most.
const LIMIT: usize = 1_048_576;

/// Memory of the program that comes and goes without a leak, in bytes: less than 200 bodies take.
const SLACK: u64 = 96 * 1024 * 1024;

/// What a caller does when it has said all.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Wait,
    Leave,
}

/// A caller who writes what no client would.
struct Wire {
    address: SocketAddr,
    key: String,
    api: Client,
}

impl Wire {
    async fn to(stage: &Stage) -> Self {
        let key = stage.installation.tenant("Wire").await.key;
        let api = stage.node.client(&key);
        known(&api).await;
        Self {
            address: stage.node.address(),
            key,
            api,
        }
    }

    /// Submits with these header lines besides, and answers all that came back until the connection ended.
    async fn says(&self, lines: &str, body: &[u8], then: Then) -> String {
        let (mut from, mut to) = TcpStream::connect(self.address).await.unwrap().into_split();
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: posthorn\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n{lines}\r\n",
            self.key
        );
        let writing = async {
            // The server may close before it has read everything.
            let _ = to.write_all(head.as_bytes()).await;
            let _ = to.write_all(body).await;
            if then == Then::Leave {
                let _ = to.shutdown().await;
            }
            to
        };
        let mut answer = Vec::new();
        let reading = async {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes).await {
                answer.extend_from_slice(&bytes[..read]);
            }
        };
        let spoken = async { tokio::join!(writing, reading) };
        let spoken = tokio::time::timeout(AMPLE, spoken).await;
        drop(spoken.expect("the connection ends"));
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn events(&self) -> Vec<Value> {
        let page = self.api.get("/v1/events").await.expect(200);
        page.list("/data").to_vec()
    }
}

/// A JSON string of so many bytes.
fn string(bytes: usize) -> Vec<u8> {
    [b"\"".as_slice(), &vec![b'a'; bytes - 2], b"\""].concat()
}

/// The body in chunks of 64 KiB, and the end.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(body.len() + 1024);
    for chunk in body.chunks(64 * 1024) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

/// A15: the limit is the same where no length is announced.
#[tokio::test]
async fn a_body_in_chunks_has_the_same_limit() {
    let stage = Stage::set().await;
    let wire = Wire::to(&stage).await;
    let lines = "transfer-encoding: chunked\r\nconnection: close\r\n";
    for (bytes, status) in [
        (LIMIT - 1, 202),
        (LIMIT, 202),
        (LIMIT + 1, 413),
        (8_000_000, 413),
    ] {
        let body = chunked(&submission("a.b", &string(bytes)));
        let answer = wire.says(lines, &body, Then::Wait).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{bytes}: {answer}"
        );
    }
    assert_eq!(wire.events().await.len(), 2);
}

/// A15: 10 MB behind a body of 100 bytes belong to no event, and end the connection.
#[tokio::test]
async fn what_follows_the_announced_length_is_no_part_of_the_event() {
    let stage = Stage::set().await;
    let wire = Wire::to(&stage).await;
    let mut body = submission("a.b", &string(50));
    body.resize(100, b' ');
    body.resize(10_000_100, b'x');
    let answer = wire
        .says("content-length: 100\r\n", &body, Then::Wait)
        .await;
    assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
    let events = wire.events().await;
    assert_eq!(events.len(), 1);
    let path = format!("/v1/events/{}/payload", events[0].text("/id"));
    assert_eq!(wire.api.get(&path).await.body, string(50));
}

/// A15: a body that ends before its announced length, and lengths that contradict one another.
#[tokio::test]
async fn a_length_that_is_not_the_bodys_makes_no_event() {
    let stage = Stage::set().await;
    let wire = Wire::to(&stage).await;
    let body = submission("a.b", b"1");
    let length = body.len();
    let short = wire
        .says(
            &format!("content-length: {}\r\n", length + 1),
            &body,
            Then::Leave,
        )
        .await;
    assert!(!short.contains(" 202 "), "{short}");
    for lines in [
        format!(
            "content-length: {length}\r\ncontent-length: {}\r\n",
            length - 1
        ),
        format!("content-length: +{length}\r\n"),
        format!("content-length: {length}, {}\r\n", length - 1),
        "content-length: 99999999999999999999999\r\n".to_owned(),
    ] {
        let answer = wire.says(&lines, &body, Then::Wait).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lines}: {answer}");
    }
    nothing_listed(&wire.api, "/v1/events").await;
}

/// E16: what was coded for its way in another form than chunks is not taken for what it is.
#[tokio::test]
async fn a_transfer_encoding_that_is_not_chunked_alone_is_refused_and_ends_the_connection() {
    let stage = Stage::set().await;
    let wire = Wire::to(&stage).await;
    let body = chunked(&submission("a.b", b"1"));
    for lines in [
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: chunked, identity\r\n",
    ] {
        // That the connection ends is asserted, too.
        let answer = wire.says(lines, &body, Then::Wait).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lines}: {answer}");
        if lines.ends_with("chunked\r\n") {
            assert!(
                answer.contains("transfer_encoding_unsupported"),
                "{lines}: {answer}"
            );
            assert!(
                answer.contains("application/problem+json"),
                "{lines}: {answer}"
            );
        }
    }
    nothing_listed(&wire.api, "/v1/events").await;
}

/// RFC 9112, section 6.3: where a length is named beside chunks, somebody on the way may have gone by it. What follows the chunks is
/// then another's, and answered to nobody.
#[tokio::test]
async fn a_body_in_chunks_is_the_last_on_its_connection_whatever_length_is_named() {
    let stage = Stage::set().await;
    let wire = Wire::to(&stage).await;
    let body = chunked(&submission("a.b", b"1"));
    let smuggled = format!(
        "POST /v1/events HTTP/1.1\r\nhost: posthorn\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        wire.key,
        submission("smuggled", b"1").len()
    );
    let sent = [
        &body[..],
        smuggled.as_bytes(),
        &submission("smuggled", b"1"),
    ]
    .concat();
    for lines in [
        format!(
            "content-length: {}\r\ntransfer-encoding: chunked\r\n",
            sent.len()
        ),
        format!(
            "transfer-encoding: chunked\r\ncontent-length: {}\r\n",
            body.len()
        ),
        "transfer-encoding: chunked\r\n".to_owned(),
    ] {
        let answer = wire.says(&lines, &sent, Then::Wait).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lines}: {answer}");
        assert!(answer.contains("connection: close"), "{lines}: {answer}");
    }
    for event in wire.events().await {
        assert_eq!(event.text("/type"), "a.b");
    }
}

/// A15, INV-11: what is refused is kept nowhere.
#[tokio::test]
async fn two_hundred_bodies_over_the_limit_leave_the_memory_as_it_was() {
    let stage = Stage::set().await;
    let over = submission("a.b", &string(2 * LIMIT));
    let mut before = 0;
    for n in 0..220 {
        if n == 20 {
            before = stage.node.memory();
        }
        let answer = stage.api.post("/v1/events", over.clone()).await;
        assert_problem(&answer, 413, "payload_too_large");
    }
    let after = stage.node.memory();
    assert!(after < before + SLACK, "{before} bytes, then {after}");
}

/// A16, INV-11: a bomb is not unpacked for anybody, with a key or without one.
#[tokio::test]
async fn a_compressed_bomb_is_refused_without_unpacking_it() {
    let stage = Stage::set().await;
    // 130 kB of gzip's longest runs of one byte, which would be 128 MiB.
    let bomb: Vec<u8> = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]
        .into_iter()
        .chain(std::iter::repeat_n(0, 130_000))
        .collect();
    let unknown = stage.node.client("");
    let mut before = 0;
    for n in 0..60 {
        if n == 20 {
            before = stage.node.memory();
        }
        for (api, status) in [(&stage.api, 415), (&unknown, 401)] {
            let request = api
                .request(Method::POST, "/v1/events")
                .header("content-type", "application/json")
                .header("content-encoding", "gzip")
                .body(bomb.clone());
            assert_eq!(Client::sent(request).await.status, status);
        }
    }
    let after = stage.node.memory();
    assert!(
        after < before + 5 * 1024 * 1024,
        "{before} bytes, then {after}"
    );
}

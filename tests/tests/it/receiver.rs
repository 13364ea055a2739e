//! The scriptable receiver does as it is told, seen over a raw socket.

use std::time::Duration;

use posthorn_tests::receiver::{Receiver, Reply, Script};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const AMPLE: Duration = Duration::from_secs(10);

async fn exchange(receiver: &Receiver, request: &str) -> String {
    let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_request_is_recorded_byte_for_byte() {
    let receiver = Receiver::start().await.unwrap();
    let head = "POST /a%2Fb?x=1 HTTP/1.1\r\nX-Odd:  value \r\ncontent-length: 3\r\n\r\n";
    exchange(&receiver, &format!("{head}{{ }}")).await;
    let request = receiver.wait_for("/a%2Fb", 1, AMPLE).await.pop().unwrap();
    assert_eq!(request.request_line, "POST /a%2Fb?x=1 HTTP/1.1");
    assert_eq!(
        request.headers,
        [
            ("X-Odd".to_owned(), "value".to_owned()),
            ("content-length".to_owned(), "3".to_owned()),
        ]
    );
    assert_eq!(request.body.as_ref(), b"{ }");
}

#[tokio::test]
async fn a_chunked_body_is_put_together() {
    let receiver = Receiver::start().await.unwrap();
    let head = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
    exchange(&receiver, &format!("{head}2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")).await;
    assert_eq!(receiver.requests()[0].body.as_ref(), b"abc");
}

#[tokio::test]
async fn a_script_is_followed_and_its_last_reply_stands() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Script::first(2, Reply::status(500)).then(Reply::status(204)),
    );
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let answer = exchange(&receiver, "POST / HTTP/1.1\r\n\r\n").await;
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }
    assert_eq!(statuses, ["500", "500", "204", "204"]);
}

#[tokio::test]
async fn requests_in_a_row_on_one_connection_are_told_apart() {
    let receiver = Receiver::start().await.unwrap();
    exchange(
        &receiver,
        "POST /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\n\r\n",
    )
    .await;
    let lines: Vec<_> = receiver
        .requests()
        .into_iter()
        .map(|request| (request.connection, request.request_line))
        .collect();
    assert_eq!(
        lines,
        [
            (1, "POST /1 HTTP/1.1".to_owned()),
            (1, "POST /2 HTTP/1.1".to_owned())
        ]
    );
}

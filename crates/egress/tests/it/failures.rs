//! Requests without an answer, each told apart by its kind.

use std::time::Duration;

use posthorn_domain::delivery::ErrorKind;
use posthorn_tests::receiver::{OnAccept, Receiver, Reply};

use crate::fixture::{AMPLE, Began, answered, failed, open, post, post_within};

const SHORT: Duration = Duration::from_secs(1);

/// It ended at its deadline of a second, and not before.
#[track_caller]
fn assert_in_time(begun: &Began) {
    let took = begun.elapsed();
    assert!(took >= SHORT && took < SHORT * 2, "{took:?}");
}

#[tokio::test]
async fn an_endpoint_that_never_answers_is_a_timeout_that_names_its_address() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::hang());
    let begun = Began::now();
    let failure = failed(
        post_within(&open(), &receiver.url("/"), SHORT).await,
        ErrorKind::Timeout,
    );
    assert_in_time(&begun);
    assert_eq!(failure.remote_address, Some(receiver.address()));
    assert_eq!(
        failure.detail,
        "the endpoint took the connection but did not answer within 1 s"
    );
}

#[tokio::test]
async fn an_endpoint_that_never_reads_is_a_timeout() {
    let receiver = Receiver::start().await.unwrap();
    receiver.on_accept(OnAccept::Hang);
    failed(
        post_within(&open(), &receiver.url("/"), SHORT).await,
        ErrorKind::Timeout,
    );
}

#[tokio::test]
async fn a_head_that_drips_is_a_timeout_in_total_not_for_each_read() {
    let receiver = Receiver::start().await.unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-padding: a very long value that takes its time\r\n\r\n";
    receiver.script("/", Reply::drip(head, Duration::from_millis(100)));
    let begun = Began::now();
    failed(
        post_within(&open(), &receiver.url("/"), SHORT).await,
        ErrorKind::Timeout,
    );
    assert_in_time(&begun);
}

#[tokio::test]
async fn a_closed_port_is_a_connect_failure_that_names_its_address() {
    let receiver = Receiver::start().await.unwrap();
    let (url, address) = (receiver.url("/"), receiver.address());
    drop(receiver);
    // The port is free once the listener's task has ended.
    tokio::task::yield_now().await;
    let failure = failed(post(&open(), &url).await, ErrorKind::Connect);
    assert_eq!(failure.remote_address, Some(address));
}

#[tokio::test]
async fn a_reset_on_accept_is_a_connect_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.on_accept(OnAccept::Reset);
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
}

#[tokio::test]
async fn a_reset_after_the_request_is_a_connect_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::reset());
    let failure = failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
    assert_eq!(failure.remote_address, Some(receiver.address()));
}

#[tokio::test]
async fn a_close_without_a_byte_is_a_connect_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::close());
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
}

#[tokio::test]
async fn a_close_on_accept_is_a_connect_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.on_accept(OnAccept::Close);
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
}

#[tokio::test]
async fn a_close_in_the_middle_of_the_head_is_a_connect_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-le").then_close(),
    );
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::raw("SSH-2.0-OpenSSH_9.2\r\n\r\n").then_close());
    let failure = failed(post(&open(), &receiver.url("/")).await, ErrorKind::Protocol);
    assert_eq!(
        failure.detail,
        "the answer is not valid HTTP (invalid HTTP version parsed)"
    );
}

#[tokio::test]
async fn a_head_far_over_32_kib_is_a_protocol_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::status(200).header("x-large", &"v".repeat(256 * 1024)),
    );
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Protocol);
}

#[tokio::test]
async fn a_head_of_endless_headers_is_a_protocol_failure_before_the_deadline() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Reply::raw("HTTP/1.1 200 OK\r\n").then_endless("x-more: and more\r\n", Duration::ZERO),
    );
    failed(post(&open(), &receiver.url("/")).await, ErrorKind::Protocol);
}

#[tokio::test]
async fn a_hundred_headers_are_an_answer_and_one_more_is_a_protocol_failure() {
    let receiver = Receiver::start().await.unwrap();
    for (path, count) in [("/most", 100), ("/too-many", 101)] {
        let others = "x-other: v\r\n".repeat(count - 1);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{others}\r\n");
        receiver.script(path, Reply::raw(head));
    }
    answered(post(&open(), &receiver.url("/most")).await);
    let failure = post(&open(), &receiver.url("/too-many")).await;
    let failure = failed(failure, ErrorKind::Protocol);
    assert!(
        failure.detail.ends_with("or 100 headers"),
        "{}",
        failure.detail
    );
}

#[tokio::test]
async fn a_failure_s_words_hold_nothing_of_the_url() {
    let receiver = Receiver::start().await.unwrap();
    let url = receiver.url("/canary-path?token=canary-query");
    for reply in [
        Reply::close(),
        Reply::reset(),
        Reply::raw("junk\r\n\r\n"),
        Reply::hang(),
    ] {
        receiver.script("/canary-path", reply);
        let sent = post_within(&open(), &url, SHORT).await;
        let text = format!("{sent:?}");
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn a_hundred_endless_bodies_hold_up_nobody_else() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/slow", Reply::endless(b".", Duration::from_millis(50)));
    let egress = open();
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let (egress, url) = (egress.clone(), receiver.url("/slow"));
            tokio::spawn(async move { post_within(&egress, &url, AMPLE).await })
        })
        .collect();
    receiver.wait_for("/slow", 100, AMPLE).await;
    answered(post_within(&egress, &receiver.url("/fast"), SHORT).await);
    for slow in slow {
        slow.abort();
    }
}

//! Connections are reused, closed in time, and lost without losing more than the attempt.

use std::time::Duration;

use posthorn_domain::{delivery::ErrorKind, limits};
use posthorn_tests::receiver::{Receiver, Reply, Script};

use crate::fixture::{AMPLE, answered, failed, open, post, post_within};

#[tokio::test]
async fn requests_in_a_row_share_a_connection() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    for _ in 0..50 {
        answered(post(&egress, &receiver.url("/")).await);
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn many_requests_at_once_need_few_connections() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    let senders: Vec<_> = (0..50)
        .map(|_| {
            let (egress, url) = (egress.clone(), receiver.url("/"));
            tokio::spawn(async move {
                for _ in 0..40 {
                    answered(post(&egress, &url).await);
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    assert_eq!(receiver.requests().len(), 2000);
    assert!(receiver.connections() <= 60, "{}", receiver.connections());
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_attempt() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    for n in 1..=20 {
        // The answer is whole; then the receiver closes, and says nothing of it.
        receiver.script(
            "/",
            Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").then_close(),
        );
        answered(post(&egress, &receiver.url("/")).await);
        while receiver.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(receiver.requests().len(), n);
    }
}

#[tokio::test]
async fn a_request_lost_on_a_reused_connection_is_one_failed_attempt_and_is_not_resent() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/",
        Script::first(1, Reply::status(200))
            .then_times(1, Reply::close())
            .then(Reply::status(200)),
    );
    let egress = open();
    answered(post(&egress, &receiver.url("/")).await);
    failed(post(&egress, &receiver.url("/")).await, ErrorKind::Connect);
    assert_eq!(receiver.requests().len(), 2);
}

#[tokio::test]
async fn an_answer_over_16_kib_ends_its_connection() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script(
        "/large",
        Reply::status(200).body(vec![b'x'; 4 * 1024 * 1024]),
    );
    let egress = open();
    answered(post(&egress, &receiver.url("/large")).await);
    answered(post(&egress, &receiver.url("/")).await);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn idle_connections_are_closed_within_seconds() {
    let receiver = Receiver::start().await.unwrap();
    let egress = open();
    answered(post(&egress, &receiver.url("/")).await);
    let closed = async {
        while receiver.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), closed)
        .await
        .expect("the idle connection is closed");
}

/// C26: endpoints that are sent to once leave no idle connections beyond the bound, and those for a moment.
#[tokio::test]
async fn five_thousand_endpoints_leave_no_more_idle_connections_than_are_kept() {
    let receiver = Receiver::start_at(([0, 0, 0, 0], 0).into()).await.unwrap();
    let (egress, port) = (open(), receiver.address().port());
    for a in 0..100_u8 {
        let sending = (0..50_u8).map(|b| {
            let (egress, url) = (egress.clone(), format!("http://127.1.{a}.{b}:{port}/"));
            tokio::spawn(async move { answered(post(&egress, &url).await) })
        });
        for sent in sending.collect::<Vec<_>>() {
            sent.await.unwrap();
        }
        let open = receiver.open_connections();
        assert!(open <= limits::EGRESS_IDLE_CONNECTIONS + 50, "{open}");
    }
    assert_eq!(receiver.requests().len(), 5_000);
    let closed = async {
        while receiver.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let closed = tokio::time::timeout(Duration::from_secs(5), closed).await;
    closed.expect("every idle connection is closed");
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", Reply::hang());
    let egress = open();
    let url = receiver.url("/");
    let sending = tokio::spawn(async move { post_within(&egress, &url, AMPLE).await });
    receiver.wait_for("/", 1, AMPLE).await;
    sending.abort();
    let closed = async {
        while receiver.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(AMPLE, closed)
        .await
        .expect("the connection is closed");
}

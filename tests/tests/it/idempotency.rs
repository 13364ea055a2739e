//! Keys through two nodes of the real program.

use futures_util::future::join_all;
use posthorn_tests::program::{At, Client, submission};
use reqwest::Method;

use crate::stage::Stage;

/// E02, INV-2: fifty requests through two processes are one event, delivered once.
#[tokio::test]
async fn fifty_requests_with_one_key_through_two_nodes_are_one_event_and_fifty_equal_answers() {
    let stage = Stage::set().await;
    stage.endpoint("/hook", 100, 3).await;
    let second = stage.installation.serve().await;
    let other = stage.api.through(second.address());
    crate::stage::known(&other).await;
    let asking = (0..50).map(|n| {
        let api = if n % 2 == 0 { &stage.api } else { &other };
        let request = api
            .request(Method::POST, "/v1/events")
            .header("content-type", "application/json")
            .header("idempotency-KEY", "\"order-7\"")
            .body(submission("a.b", b"1"));
        Client::sent(request)
    });
    let answers = join_all(asking).await;
    let mut bodies: Vec<_> = answers.iter().map(|answer| answer.expect(202)).collect();
    bodies.dedup();
    let first = answers
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_empty())
        .count();
    assert_eq!((bodies.len(), first), (1, 1));
    let id = bodies[0].text("/id");
    stage.delivery(&id, "delivered").await;
    assert_eq!(stage.receiver.requests().len(), 1);
    assert_eq!(stage.installation.complaints().await, Vec::<String>::new());
}

//! Fan-out: one event for very many endpoints, beside somebody else's few.

use std::time::Duration;

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_tests::engine::{AMPLE, Runs, event, in_order};
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::pause;

use crate::engine_scene::Scene;

/// Endpoints of one event.
const ENDPOINTS: usize = 5_000;

/// How long each takes to answer.
const SLOW: Duration = Duration::from_millis(500);

/// Events of the other tenant, and the time between two.
const OTHERS: usize = 20;

const BETWEEN: Duration = Duration::from_millis(250);

/// How long one of those may take, end to end.
const PROMPT: Duration = Duration::from_secs(2);

/// INV-13: on one thread, what else is ready gets on between two pieces of a crowd's requests, and sees no more of them begun
/// at a time.
#[tokio::test]
async fn engine_fanout_starts_its_requests_in_pieces() {
    const CROWD: usize = 512;
    let scene = Scene::begin().await;
    scene.receiver.script("/crowd", Reply::hang());
    let one = scene.endpoint("/crowd").await;
    scene.tenants.crowd(&scene.rows, &one, CROWD - 1).await;
    let node = scene.node(Runs::All).await;
    let watched = async {
        let (mut seen, mut most) = (0, 0);
        while seen < CROWD {
            tokio::task::yield_now().await;
            let (out, _) = node.dispatcher.load();
            most = most.max(out.saturating_sub(seen));
            seen = out;
        }
        most
    };
    let all = async { tokio::join!(node.accept(scene.tenant, "{}"), watched) };
    let (_, most) = tokio::time::timeout(AMPLE, all).await.unwrap();
    // It may be woken once before the others had their turn.
    assert!(most <= 2 * limits::STARTED_AT_ONCE, "{most} at once");
}

/// INV-13; D11.
#[tokio::test(flavor = "multi_thread")]
async fn engine_fanout_of_one_event_to_five_thousand_endpoints_delays_nobody_else() {
    let scene = Scene::begin().await;
    let reply = Reply::status(200).after(SLOW);
    scene.receiver.script("/crowd", reply);
    let one = scene.endpoint("/crowd").await;
    let crowd = scene.tenants.crowd(&scene.rows, &one, ENDPOINTS - 1);
    crowd.await;
    let other = scene.tenants.tenant().await;
    let url = scene.receiver.url("/other");
    scene.tenants.endpoint(other, &url).await;
    let (acceptor, worker) = scene.whole().await;
    let clock = Clock::start();

    let accepted = acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
    assert_eq!(accepted.deliveries_count, ENDPOINTS);
    let mut submitted = Vec::new();
    for _ in 0..OTHERS {
        let at = clock.monotonic();
        let accepted = acceptor.accept(event(other, "{}")).await.unwrap();
        submitted.push((accepted.id.to_string(), at));
        pause(BETWEEN).await;
    }
    let requests = scene.receiver.wait_for("/other", OTHERS, AMPLE).await;
    for (id, at) in submitted {
        let of_it = |request: &&posthorn_tests::receiver::Received| {
            request.header("webhook-id") == Some(id.as_str())
        };
        let took = requests.iter().find(of_it).unwrap().arrived - at;
        assert!(took < PROMPT, "{took:?}");
    }
    let crowd = scene.receiver.wait_for("/crowd", ENDPOINTS, 4 * AMPLE);
    crowd.await;
    acceptor.stop();
    worker.shutdown(in_order()).await;
    assert_eq!(scene.receiver.requests_to("/crowd").len(), ENDPOINTS);
}

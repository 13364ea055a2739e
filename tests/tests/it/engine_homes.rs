//! Homes: a limit that holds exactly, whichever of several nodes accepted the event (D27).

use std::time::{Duration, Instant};

use posthorn_domain::rate::RateLimit;
use posthorn_tests::engine::{AMPLE, event, in_order};
use posthorn_tests::receiver::Received;

use crate::engine_scene::Scene;

/// The most requests that arrived within one second. A request may be some milliseconds on its way, and another fewer.
pub(crate) fn most_in_a_second(requests: &[Received]) -> usize {
    let window = Duration::from_millis(960);
    let mut arrived: Vec<Instant> = requests.iter().map(|request| request.arrived).collect();
    arrived.sort_unstable();
    let within = |from: &Instant| {
        let later = arrived.iter().filter(|at| *at >= from);
        later.filter(|at| at.duration_since(*from) < window).count()
    };
    arrived.iter().map(within).max().unwrap_or(0)
}

/// D27, INV-6: three nodes accept for an endpoint at 10 a second, and it gets 10 a second and its burst, each event once.
#[tokio::test]
async fn engine_homes_keep_one_rate_over_three_nodes() {
    let scene = Scene::begin().await;
    let url = scene.receiver.url("/hook");
    let limit = RateLimit::new(10.0, 5).unwrap();
    scene
        .tenants
        .endpoint_with(scene.tenant, &url, |new| new.rate_limit = Some(limit))
        .await;
    let nodes = [
        scene.whole().await,
        scene.whole().await,
        scene.whole().await,
    ];
    for _ in 0..20 {
        for (acceptor, _) in &nodes {
            acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
        }
    }
    let requests = scene.receiver.wait_for("/hook", 60, 2 * AMPLE).await;
    assert!(
        most_in_a_second(&requests) <= 15,
        "{}",
        most_in_a_second(&requests)
    );
    for (_, worker) in nodes {
        worker.shutdown(in_order()).await;
    }
    assert_eq!(scene.receiver.requests().len(), 60);
}

/// D27, INV-13: the home leaves when it has just used up the burst, and the next does not begin with another.
#[tokio::test]
async fn engine_homes_keep_the_rate_while_an_endpoint_changes_hands() {
    let scene = Scene::begin().await;
    let url = scene.receiver.url("/hook");
    let limit = RateLimit::new(1.0, 10).unwrap();
    scene
        .tenants
        .endpoint_with(scene.tenant, &url, |new| new.rate_limit = Some(limit))
        .await;
    let (acceptor, first) = scene.whole().await;
    for _ in 0..14 {
        acceptor.accept(event(scene.tenant, "{}")).await.unwrap();
    }
    scene.receiver.wait_for("/hook", 10, AMPLE).await;
    first.shutdown(in_order()).await;
    let (_, next) = scene.whole().await;
    let requests = scene.receiver.wait_for("/hook", 14, AMPLE).await;
    let began = requests
        .iter()
        .map(|request| request.arrived)
        .min()
        .unwrap();
    let late = Duration::from_millis(200);
    for (at, request) in requests.iter().enumerate() {
        let after = request.arrived.duration_since(began) + late;
        let allowed = 10.0 + after.as_secs_f64();
        assert!(
            f64::from(u32::try_from(at + 1).unwrap()) <= allowed,
            "number {} after {after:?}",
            at + 1
        );
    }
    next.shutdown(in_order()).await;
}

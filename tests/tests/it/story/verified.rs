//! Ten thousand bodies, each signed in both ways, and checked by us here and by others afterwards.

use std::sync::Arc;
use std::time::Duration;

use posthorn_tests::capture::{Keys, capture};
use posthorn_tests::program::At;
use posthorn_tests::wait::until;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::task::JoinSet;

use super::bodies;
use crate::signing::{assert_verifies, content, is_signed};
use crate::stage::Stage;

/// Events.
const EVENTS: usize = 10_000;

/// Those who submit at the same time.
const WRITERS: usize = 16;

/// Far longer than it takes.
const WITHIN: Duration = Duration::from_mins(2);

/// INV-3, INV-4; A04, A06: bytes of any spelling and the tiny ones that are written a thousand times a minute.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_awkward_bodies_verify_by_either_scheme() {
    let stage = Stage::set().await;
    let endpoint = stage
        .api
        .endpoint(&json!({
            "url": stage.receiver.url("/"),
            "signing": { "schemes": ["v1", "v1a"] },
        }))
        .await;
    let mut dice = StdRng::seed_from_u64(1649);
    let tiny = [r"{}", r#"{"a":1}"#, "[]", r#"{"a" : 1}"#];
    let bodies: Arc<Vec<Vec<u8>>> = Arc::new(
        (0..EVENTS)
            .map(|place| match tiny.get(place % 8) {
                Some(tiny) => tiny.as_bytes().to_vec(),
                None => bodies::drawn(&mut dice),
            })
            .collect(),
    );
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (api, bodies) = (stage.api.clone(), Arc::clone(&bodies));
        writers.spawn(async move {
            let mut ids = Vec::new();
            for place in (writer..EVENTS).step_by(WRITERS) {
                ids.push((api.submit("a.b", &bodies[place]).await, place));
            }
            ids
        });
    }
    let places: std::collections::HashMap<_, _> =
        writers.join_all().await.into_iter().flatten().collect();
    until("every event", WITHIN, async || {
        (stage.receiver.map(|_| ()).len() >= EVENTS).then_some(())
    })
    .await;
    let requests = stage.receiver.requests();
    let public = endpoint.text("/public_key");
    for request in &requests {
        let place = places[request.header("webhook-id").unwrap()];
        assert!(
            request.body == bodies[place],
            "body {place} arrived changed"
        );
        assert_verifies(request, &endpoint, true);
        let mut signatures = request.header("webhook-signature").unwrap().split(' ');
        let by_pair = signatures.find_map(|one| one.strip_prefix("v1a,")).unwrap();
        assert!(is_signed(&public, &content(request), by_pair));
    }
    assert_eq!(requests.len(), EVENTS);
    let secret = endpoint.text("/secret");
    capture(
        &requests,
        &Keys {
            secret: &secret,
            public: Some(&public),
        },
    );
}

//! Roles: nodes that accept and nodes that send, as the operator runs them apart.

use posthorn_tests::program::Installation;
use posthorn_tests::receiver::Receiver;
use serde_json::json;

use crate::stage::{AMPLE, known};

/// G15: one node accepts and another sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_accepts_and_a_node_that_sends_are_one_server() {
    let installation = Installation::new().await;
    let receiver = Receiver::start().await.unwrap();
    let accepting = installation.serve_as("api").await;
    let sending = installation.serve_as("worker").await;
    let tenant = installation.tenant("Acme").await;
    let api = accepting.client(&tenant.key);
    known(&api).await;
    for (path, limited) in [("/usual", false), ("/strict", true)] {
        let mut fields = json!({ "url": receiver.url(path) });
        if limited {
            fields["rate_limit"] = json!({ "per_second": 100, "burst": 10 });
        }
        api.endpoint(&fields).await;
    }
    for _ in 0..10 {
        api.submit("order.paid", b"{}").await;
    }
    receiver.wait_for("/usual", 10, AMPLE).await;
    receiver.wait_for("/strict", 10, AMPLE).await;
    assert_eq!(receiver.requests().len(), 20);
    drop(sending);
    assert_eq!(installation.complaints().await, [] as [String; 0]);
}

/// A node that only sends has probes and nothing else, and says what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_only_sends_serves_probes_alone() {
    let installation = Installation::new().await;
    let sending = installation.serve_as("worker").await;
    let anybody = sending.client("");
    let ready = anybody.get("/readyz").await.expect(200);
    assert_eq!(ready, json!({ "status": "ready", "roles": ["worker"] }));
    for path in ["/v1/events", "/openapi.json", "/"] {
        assert_eq!(anybody.get(path).await.status, 404, "{path}");
    }
}

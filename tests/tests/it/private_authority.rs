//! Endpoints whose certificates a private authority has signed.

use std::sync::Arc;

use posthorn_tests::authority::Authority;
use posthorn_tests::program::Installation;
use posthorn_tests::receiver::Receiver;
use serde_json::json;

use super::stage::{AMPLE, Stage};

/// C30; and C29 from the operator's side.
#[tokio::test]
async fn an_endpoint_of_a_private_authority_is_reached_once_the_authority_is_named() {
    let authority = Authority::new();
    let server = authority.server();
    for (installation, state) in [
        (Installation::new().await, "dead"),
        (Installation::trusting(&authority.pem()).await, "delivered"),
    ] {
        let stage = Stage::of(installation).await;
        let receiver = Receiver::start_tls(Arc::clone(&server)).await.unwrap();
        stage
            .api
            .endpoint(&json!({
                "url": receiver.url("/"),
                "retry_policy": {"kind": "fixed", "delay_ms": 100, "max_attempts": 1},
            }))
            .await;
        let event = stage.api.submit("a.b", b"1").await;
        stage.delivery(&event, state).await;
        if state == "delivered" {
            receiver.wait_for("/", 1, AMPLE).await;
        } else {
            assert!(receiver.requests().is_empty());
        }
    }
}

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
        assert_ends(&stage, &receiver, state).await;
    }
}

/// C30: an image without a bundle of certificates.
#[tokio::test]
async fn without_the_systems_certificates_the_named_authority_is_trusted_and_no_other() {
    let authority = Authority::new();
    let installation = Installation::trusting(&authority.pem()).await;
    // Where the system's certificates are looked for.
    let node = installation
        .serve_with("SSL_CERT_FILE", "/nonexistent")
        .await;
    let stage = Stage::around(installation, node).await;
    let trusted = Receiver::start_tls(authority.server()).await.unwrap();
    assert_ends(&stage, &trusted, "delivered").await;
    let other = Receiver::start_tls(Authority::new().server())
        .await
        .unwrap();
    assert_ends(&stage, &other, "dead").await;
}

/// One event for the receiver alone, and what becomes of it.
async fn assert_ends(stage: &Stage, receiver: &Receiver, state: &str) {
    let event_type = format!("a.{}", receiver.address().port());
    stage
        .api
        .endpoint(&json!({
            "url": receiver.url("/"),
            "event_types": [event_type],
            "retry_policy": {"kind": "fixed", "delay_ms": 100, "max_attempts": 1},
        }))
        .await;
    let event = stage.api.submit(&event_type, b"1").await;
    stage.delivery(&event, state).await;
    if state == "delivered" {
        receiver.wait_for("/", 1, AMPLE).await;
    } else {
        assert!(receiver.requests().is_empty());
    }
}

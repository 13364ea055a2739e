//! Endpoints whose certificates a private authority has signed.

use std::sync::Arc;

use posthorn_tests::program::Installation;
use posthorn_tests::receiver::Receiver;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::stage::{AMPLE, Stage};

/// An authority that nobody knows, and a receiver's configuration that it has signed, for 127.0.0.1.
fn authority_and_server() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (authority.pem(), Arc::new(config))
}

/// C30; and C29 from the operator's side.
#[tokio::test]
async fn an_endpoint_of_a_private_authority_is_reached_once_the_authority_is_named() {
    let (authority, server) = authority_and_server();
    for (installation, state) in [
        (Installation::new().await, "dead"),
        (Installation::trusting(&authority).await, "delivered"),
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

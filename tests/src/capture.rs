//! Requests as a receiver got them, checked as a receiver would, and left for verifiers that are not ours.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::environment;
use crate::receiver::Received;

/// Leaves a request in the folder of captures, if there is one, as a request that must verify with this `whsec_…`.
#[expect(
    clippy::disallowed_methods,
    reason = "the moment of arrival, as a receiver's clock has it"
)]
pub fn capture(request: &Received, secret: &str) {
    let Some(folder) = environment::captures() else {
        return;
    };
    let arrived = SystemTime::now() - request.arrived.elapsed();
    let arrived = arrived
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let header = |name: &str| request.header(name).unwrap_or_default();
    let captured = json!({
        "secrets": [secret],
        "headers": {
            "webhook-id": header("webhook-id"),
            "webhook-timestamp": header("webhook-timestamp"),
            "webhook-signature": header("webhook-signature"),
        },
        "body_base64": STANDARD.encode(&request.body),
        "arrived_at": arrived,
    });
    let file = folder.join(format!("{}.json", environment::unique()));
    std::fs::write(file, captured.to_string()).unwrap();
}

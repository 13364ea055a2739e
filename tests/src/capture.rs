//! Requests as a receiver got them, checked as a receiver would, and left for verifiers that are not ours.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::environment;
use crate::receiver::Received;

/// What requests must verify with.
pub struct Keys<'a> {
    /// `whsec_…`, by HMAC.
    pub secret: &'a str,
    /// `whpk_…`, by ed25519, where they are signed so, too.
    pub public: Option<&'a str>,
}

/// Leaves requests in the folder of captures, if there is one, in one file.
pub fn capture(requests: &[Received], keys: &Keys<'_>) {
    let Some(folder) = environment::captures() else {
        return;
    };
    let captured: Vec<_> = requests
        .iter()
        .map(|request| captured(request, keys))
        .collect();
    let file = folder.join(format!("{}.json", environment::unique()));
    std::fs::write(file, Value::from(captured).to_string()).unwrap();
}

#[expect(
    clippy::disallowed_methods,
    reason = "the moment of arrival, as a receiver's clock has it"
)]
fn captured(request: &Received, keys: &Keys<'_>) -> Value {
    let arrived = SystemTime::now() - request.arrived.elapsed();
    let arrived = arrived
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let header = |name: &str| request.header(name).unwrap_or_default();
    json!({
        "secrets": [keys.secret],
        "public_keys": keys.public.as_slice(),
        "headers": {
            "webhook-id": header("webhook-id"),
            "webhook-timestamp": header("webhook-timestamp"),
            "webhook-signature": header("webhook-signature"),
        },
        "body_base64": STANDARD.encode(&request.body),
        "arrived_at": arrived,
    })
}

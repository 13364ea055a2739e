//! An endpoint in the audit log: its fields as the API names them, and in place of each secret the master key that seals it.

use posthorn_domain::endpoint::StateCause;
use posthorn_domain::rate::RateLimit;
use posthorn_domain::seal::Sealed;
use serde_json::{Map, Value, json};

use super::sealed::SealedParts;
use crate::audit::{self, Fields};
use crate::configure::ConfigureError;
use crate::read::Endpoint;

/// What people set of an endpoint.
pub(super) fn shown(endpoint: &Endpoint, sealed: &SealedParts) -> Result<Fields, ConfigureError> {
    let metadata: Value = serde_json::from_str(&endpoint.metadata)?;
    let headers: Map<_, _> = endpoint
        .header_names
        .iter()
        .map(|name| (name.clone(), sealed_with(sealed.headers.as_ref())))
        .collect();
    let compat = endpoint.compat.as_ref().map(|form| {
        json!({
            "kind": form.kind().as_str(),
            "header": form.header(),
            "secret": sealed_with(sealed.compat.as_ref()),
        })
    });
    let rate = |limit: RateLimit| json!({"per_second": limit.per_second(), "burst": limit.burst()});
    Ok(audit::fields([
        ("uid", endpoint.uid.clone().into()),
        ("url", endpoint.url.clone().into()),
        ("description", endpoint.description.clone().into()),
        ("event_types", endpoint.event_types.clone().into()),
        ("headers", headers.into()),
        (
            "retry_policy",
            serde_json::to_value(&endpoint.retry_policy)?,
        ),
        ("max_age_s", endpoint.max_age_s.into()),
        ("rate_limit", endpoint.rate_limit.map(rate).into()),
        ("max_in_flight", endpoint.max_in_flight.into()),
        ("timeout_ms", endpoint.timeout_ms.into()),
        ("fatal_statuses", endpoint.fatal_statuses.clone().into()),
        (
            "signing",
            json!({
                "schemes": endpoint.signing_schemes,
                "header_prefix": endpoint.header_prefix.as_str(),
                "compat": compat,
            }),
        ),
        ("body", endpoint.body.as_str().into()),
        ("keep_responses", endpoint.keep_responses.as_str().into()),
        ("metadata", metadata),
        ("state", endpoint.state.as_str().into()),
        (
            "state_cause",
            endpoint.state_cause.map(StateCause::as_str).into(),
        ),
        ("state_reason", endpoint.state_reason.clone().into()),
    ]))
}

fn sealed_with(sealed: Option<&Sealed>) -> Value {
    json!({ "sealed_with": sealed.map(|sealed| sealed.key_id.as_str()) })
}

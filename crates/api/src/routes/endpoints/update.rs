//! PATCH /v1/endpoints/{id}: an endpoint is changed by a merge patch (RFC 7396).

use axum::extract::State;
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::body::BodyForm;
use posthorn_domain::endpoint::{EndpointState, KeepResponses};
use posthorn_domain::retry::{RetryPolicy, UncheckedPolicy};
use posthorn_store::configure::{self, EndpointPatch, HeaderChanges, Patch};
use posthorn_store::read::EndpointRef;
use serde::Deserialize;
use utoipa::ToSchema;

use super::create::TIMEOUT_DEFAULT_MS;
use super::fields::{self, RateRequest};
use super::signing::{self, SigningChanges, SigningRequest};
use super::{EndpointWithSecret, policy};
use crate::authenticate::Caller;
use crate::body::Json;
use crate::faults::Faults;
use crate::openapi::words::described_words;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::{Change, Id, Object, Pairs, present};

/// Changes of an endpoint. What is absent stays; null clears, which brings the default back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"description": "orders", "headers": {"x-api-key": "k-123", "x-old": null}}))]
pub(in crate::routes) struct UpdateEndpoint {
    /// Where requests go. Judged as in `POST /v1/endpoints`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, max_length = 2048)]
    url: Option<String>,
    /// The tenant's own name for it.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 128)]
    uid: Change<String>,
    /// A person's words about it.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500)]
    description: Change<String>,
    /// Patterns of the types that it listens to, all of them.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 100)]
    event_types: Change<Vec<String>>,
    /// Headers to set, or with null to remove. Those that are not named stay.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::HashMap<String, Option<String>>>)]
    headers: Change<Pairs<Option<String>>>,
    /// The policy, whole.
    #[serde(default)]
    #[schema(value_type = Option<policy::RetryPolicy>)]
    retry_policy: Change<Object<UncheckedPolicy>>,
    /// Every delivery's end, in seconds from accept; null: what the policy says.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 60, maximum = 2_592_000)]
    max_age_s: Change<u32>,
    /// How many requests may start; a number that is not named stays. Null: no limit.
    #[serde(default)]
    #[schema(value_type = Option<RateRequest>)]
    rate_limit: Change<Object<RateRequest>>,
    /// How many requests may be under way, exactly; null: 16 on each node.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    max_in_flight: Change<u32>,
    /// How long a request may take, in milliseconds, from looking its host up to the last byte of the answer.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1000, maximum = 30_000)]
    timeout_ms: Change<u32>,
    /// Statuses that end a delivery at once, all of them.
    #[serde(default)]
    #[schema(value_type = Option<Vec<super::fields::FatalStatus>>)]
    fatal_statuses: Change<Vec<u16>>,
    /// How requests are signed. A scheme that comes gets a fresh secret, one that goes stops signing at once.
    #[serde(default)]
    #[schema(value_type = Option<SigningRequest>)]
    signing: Change<Object<SigningRequest>>,
    /// What its requests carry, from the next attempt on.
    #[serde(default)]
    #[schema(value_type = Option<BodyWord>)]
    body: Change<BodyForm>,
    /// Which answers are kept with their attempts.
    #[serde(default)]
    #[schema(value_type = Option<KeepWord>)]
    keep_responses: Change<KeepResponses>,
    /// Pairs to set, or with null to remove. Those that are not named stay.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::HashMap<String, Option<String>>>)]
    metadata: Change<Pairs<Option<String>>>,
    /// `enabled`, `paused` (matched, deliveries wait) or `disabled` (not matched).
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<StateWord>, nullable = false)]
    state: Option<EndpointState>,
    /// Why, in a person's words.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 500)]
    state_reason: Change<String>,
}

described_words! {
    /// What an endpoint's requests carry.
    pub(super) BodyWord as "BodyForm" {
        /// The payload as it is. The default.
        "payload",
        /// `{"type":…,"timestamp":…,"data":…}`, as `application/json`: the event's type, when it occurred (or was accepted, where
        /// that was not said), and the payload, byte for byte.
        "standard",
    }
}

described_words! {
    /// Which answers are kept with their attempts.
    pub(super) KeepWord as "KeepResponses" {
        /// Those of failed attempts. The default.
        "failures",
        /// All of them.
        "all",
        /// None.
        "none",
    }
}

described_words! {
    /// What people set.
    pub(super) StateWord as "EndpointState" {
        /// Matched and sent to. The default.
        "enabled",
        /// Matched; deliveries wait until it is enabled.
        "paused",
        /// Not matched; what waits is kept until its end.
        "disabled",
    }
}

/// Change an endpoint.
///
/// A JSON merge patch: objects merge, null clears, arrays and `retry_policy` are replaced whole. In force for every
/// event that is submitted after the answer; sending to an endpoint that is no longer enabled stops within a second.
#[utoipa::path(
    patch,
    path = "/v1/endpoints/{id}",
    operation_id = "update_endpoint",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    request_body(content = UpdateEndpoint, content_type = "application/json"),
    responses((status = 200, description = "The endpoint, with secrets that were made for it now.", body = EndpointWithSecret))
)]
pub(super) async fn update_endpoint(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
    Json(request, faults): Json<UpdateEndpoint>,
) -> Result<axum::Json<EndpointWithSecret>, Failure> {
    let patch = request.checked(state.egress(), faults)?;
    let patched = configure::patch_endpoint(
        state.database(),
        caller.tenant(),
        &which,
        patch,
        &state.sealer(),
    )
    .await?;
    state.catch_up().await;
    Ok(axum::Json(EndpointWithSecret::new(
        patched.endpoint,
        &patched.secrets,
    )))
}

impl UpdateEndpoint {
    /// The change, or everything that is wrong with the request.
    fn checked(self, egress: &EgressPolicy, mut faults: Faults) -> Result<EndpointPatch, Failure> {
        let signed = match self.signing {
            Change::Absent => SigningChanges::default(),
            Change::Null => SigningChanges::cleared(),
            Change::Value(Object(signing)) => signing::signing(signing, &mut faults),
        };
        let patch = EndpointPatch {
            uid: patch(self.uid, |uid| fields::uid(&uid, &mut faults)),
            url: self
                .url
                .and_then(|text| fields::url(&text, egress, &mut faults)),
            description: self
                .description
                .or(String::new)
                .and_then(|text| fields::words("/description", text, &mut faults)),
            event_types: self
                .event_types
                .or(everything)
                .and_then(|texts| fields::event_types(&texts, &mut faults)),
            headers: match self.headers {
                Change::Absent => None,
                Change::Null => Some(HeaderChanges::Clear),
                Change::Value(Pairs(changes)) => {
                    // Told with all other faults; what they come to beside those that stay is seen where they are merged.
                    let set = changes
                        .iter()
                        .filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
                    fields::headers(set.collect(), &mut faults);
                    Some(HeaderChanges::Merge(changes))
                }
            },
            retry_policy: match self.retry_policy {
                Change::Absent => None,
                Change::Null => Some(RetryPolicy::default()),
                Change::Value(Object(policy)) => fields::retry_policy(policy, &mut faults),
            },
            max_age_s: patch(self.max_age_s, |seconds| {
                fields::max_age_s(seconds, &mut faults)
            }),
            rate_limit: patch(self.rate_limit, |Object(rate)| rate.change(&mut faults)),
            max_in_flight: patch(self.max_in_flight, |limit| {
                fields::max_in_flight(limit, &mut faults)
            }),
            timeout_ms: self
                .timeout_ms
                .or(|| TIMEOUT_DEFAULT_MS)
                .and_then(|millis| fields::timeout_ms(millis, &mut faults)),
            fatal_statuses: self
                .fatal_statuses
                .or(Vec::new)
                .and_then(|statuses| fields::fatal_statuses(statuses, &mut faults)),
            signing_schemes: signed.schemes,
            header_prefix: signed.header_prefix,
            compat: signed.compat,
            body: self.body.or(|| BodyForm::Payload),
            keep_responses: self.keep_responses.or(|| KeepResponses::Failures),
            metadata: patch(self.metadata, |Pairs(changes)| Some(changes)),
            state: self.state,
            state_reason: patch(self.state_reason, |text| {
                fields::words("/state_reason", text, &mut faults)
            }),
        };
        faults.finish()?;
        Ok(patch)
    }
}

/// The default of `event_types`.
pub(super) fn everything() -> Vec<String> {
    vec!["**".to_owned()]
}

/// A value that may be cleared. What fails its check stays, and is a fault.
fn patch<T, U>(change: Change<T>, check: impl FnOnce(T) -> Option<U>) -> Patch<U> {
    match change {
        Change::Absent => Patch::Keep,
        Change::Null => Patch::Clear,
        Change::Value(value) => check(value).map_or(Patch::Keep, Patch::Set),
    }
}

//! POST /v1/endpoints: an endpoint is made.

use std::collections::BTreeMap;

use axum::extract::State;
use http::header::LOCATION;
use http::{HeaderName, StatusCode};
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::body::BodyForm;
use posthorn_domain::endpoint::{EndpointState, KeepResponses};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::limits;
use posthorn_domain::retry::UncheckedPolicy;
use posthorn_store::configure::{self, NewEndpoint};
use serde::Deserialize;
use utoipa::ToSchema;

use super::fields::{self, RateRequest};
use super::signing::{self, SigningRequest};
use super::{EndpointWithSecret, policy};
use crate::authenticate::Caller;
use crate::body::Json;
use crate::faults::Faults;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::{Object, Pairs, present};

/// An endpoint to be made. What is absent has its default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"url": "https://example.com/webhooks", "event_types": ["invoice.**"]}))]
pub(in crate::routes) struct CreateEndpoint {
    /// Where requests go: http or https, without user, password and fragment.
    #[schema(max_length = 2048)]
    url: String,
    /// The tenant's own name for it: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
    #[serde(default)]
    #[schema(max_length = 128)]
    uid: Option<String>,
    /// A person's words about it.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, max_length = 500)]
    description: Option<String>,
    /// Patterns of the types that it listens to: `*` is one part, `**` at the end one or more. Default `["**"]`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, min_items = 1, max_items = 100, default = json!(["**"]))]
    event_types: Option<Vec<String>>,
    /// At most 20 headers that are sent with every request. An event's header of the same name, in whatever case and with
    /// `_` for `-`, is left out.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<std::collections::HashMap<String, String>>, nullable = false)]
    headers: Option<Pairs<String>>,
    /// When a failed attempt is followed by another. Default: the preset `standard`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<policy::RetryPolicy>, nullable = false)]
    retry_policy: Option<Object<UncheckedPolicy>>,
    /// Every delivery's end, in seconds from accept. Default (null): the policy's span and a day, at least 5 days.
    #[serde(default)]
    #[schema(minimum = 60, maximum = 2_592_000)]
    max_age_s: Option<u32>,
    /// How many requests may start. Null, the default: no limit.
    #[serde(default)]
    #[schema(value_type = Option<RateRequest>)]
    rate_limit: Option<Object<RateRequest>>,
    /// How many requests may be under way, exactly. Default (null): 16 on each node.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    max_in_flight: Option<u32>,
    /// How long a request may take, in milliseconds, from looking its host up to the last byte of the answer. A 2xx whose head came within
    /// it counts as success, and its body is kept as far as it came. Default 15,000.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, minimum = 1000, maximum = 30_000, default = 15_000)]
    timeout_ms: Option<u32>,
    /// Statuses that end a delivery at once: 400 to 599 without 408, 410 and 429. Default none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<super::fields::FatalStatus>>, nullable = false)]
    fatal_statuses: Option<Vec<u16>>,
    /// How requests are signed. Default `v1`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<SigningRequest>, nullable = false)]
    signing: Option<Object<SigningRequest>>,
    /// What its requests carry: `payload` (default), the bytes as they were submitted, or `standard`, the envelope
    /// `{"type":…,"timestamp":…,"data":…}` with those bytes as `data`. Only `standard` tells a receiver the event's type: no header
    /// does. An event that is not JSON is not for such an endpoint.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<super::update::BodyWord>, nullable = false)]
    body: Option<BodyForm>,
    /// Which answers are kept with their attempts: `failures` (default), `all`, `none`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<super::update::KeepWord>, nullable = false)]
    keep_responses: Option<KeepResponses>,
    /// At most 20 pairs that are shown and never sent.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    metadata: Option<Pairs<String>>,
    /// `enabled` (default), `paused` or `disabled`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<super::update::StateWord>, nullable = false)]
    state: Option<EndpointState>,
    /// Why, in a person's words.
    #[serde(default)]
    #[schema(max_length = 500)]
    state_reason: Option<String>,
    /// A secret of one of the schemes, as `whsec_…` or `whsk_…`. Default: one is generated.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    secret: Option<String>,
}

/// Create an endpoint.
///
/// In force for every event that is submitted after the answer. The secret is shown in this answer; later
/// `GET /v1/endpoints/{id}/secrets` shows it to keys with the scope `endpoints:secrets`.
///
/// Of its URL only an address that is written out, and a name of this server itself, are judged now (`target_forbidden`). A host name is
/// judged whenever it is resolved for sending, since its addresses may change: where they are forbidden, attempts fail with the kind
/// `refused_target`. `POST /v1/endpoints/{id}/test` tells at once.
#[utoipa::path(
    post,
    path = "/v1/endpoints",
    operation_id = "create_endpoint",
    tag = "endpoints",
    request_body(content = CreateEndpoint, content_type = "application/json"),
    responses((status = 201, description = "The endpoint, with its secret.", body = EndpointWithSecret,
        headers(("location" = String, description = "The endpoint's path."))))
)]
pub(super) async fn create_endpoint(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoQuery,
    Json(request, faults): Json<CreateEndpoint>,
) -> Result<
    (
        StatusCode,
        [(HeaderName, String); 1],
        axum::Json<EndpointWithSecret>,
    ),
    Failure,
> {
    let new = request.checked(state.egress(), faults)?;
    let made =
        configure::create_endpoint(state.database(), caller.tenant(), new, &state.sealer()).await?;
    state.catch_up().await;
    let location = format!("/v1/endpoints/{}", made.endpoint.id);
    let answer = EndpointWithSecret::new(made.endpoint, &made.secrets);
    Ok((
        StatusCode::CREATED,
        [(LOCATION, location)],
        axum::Json(answer),
    ))
}

impl CreateEndpoint {
    /// The endpoint, or everything that is wrong with the request.
    fn checked(self, egress: &EgressPolicy, mut faults: Faults) -> Result<NewEndpoint, Failure> {
        let url = fields::url(&self.url, egress, &mut faults);
        let signing = self.signing.map(|Object(signing)| signing);
        let signs = signing::whole(signing, self.secret.as_deref(), &mut faults);
        let patterns = self.event_types.unwrap_or_else(super::update::everything);
        let uid = self.uid.and_then(|uid| fields::uid(&uid, &mut faults));
        let words = self
            .description
            .and_then(|text| fields::words("/description", text, &mut faults));
        let reason = self
            .state_reason
            .and_then(|text| fields::words("/state_reason", text, &mut faults));
        let event_types: Option<Vec<EventTypePattern>> =
            fields::event_types(&patterns, &mut faults);
        let Pairs(headers) = self.headers.unwrap_or_default();
        signs.leave_free(headers.keys().map(String::as_str), &mut faults);
        let headers = fields::headers(headers, &mut faults).unwrap_or_default();
        let metadata = fields::metadata(
            self.metadata
                .map_or_else(BTreeMap::new, |Pairs(pairs)| pairs),
            &mut faults,
        );
        let retry_policy = self
            .retry_policy
            .and_then(|Object(policy)| fields::retry_policy(policy, &mut faults));
        let max_age_s = self
            .max_age_s
            .and_then(|seconds| fields::max_age_s(seconds, &mut faults));
        let rate_limit = self
            .rate_limit
            .and_then(|Object(rate)| rate.whole(&mut faults));
        let max_in_flight = self
            .max_in_flight
            .and_then(|limit| fields::max_in_flight(limit, &mut faults));
        let timeout_ms = self
            .timeout_ms
            .and_then(|millis| fields::timeout_ms(millis, &mut faults));
        let fatal = self
            .fatal_statuses
            .and_then(|statuses| fields::fatal_statuses(statuses, &mut faults));
        match (url, event_types, metadata) {
            (Some(url), Some(event_types), Some(metadata)) if faults.is_empty() => {
                Ok(NewEndpoint {
                    uid,
                    url,
                    description: words.unwrap_or_default(),
                    event_types,
                    headers,
                    retry_policy: retry_policy.unwrap_or_default(),
                    max_age_s,
                    rate_limit,
                    max_in_flight,
                    timeout_ms: timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS),
                    fatal_statuses: fatal.unwrap_or_default(),
                    signing_schemes: signs.schemes,
                    header_prefix: signs.header_prefix,
                    compat: signs.compat,
                    body: self.body.unwrap_or(BodyForm::Payload),
                    keep_responses: self.keep_responses.unwrap_or(KeepResponses::Failures),
                    metadata,
                    state: self.state.unwrap_or(EndpointState::Enabled),
                    state_reason: reason,
                    secret: signs.secret,
                })
            }
            _ => Err(faults.into()),
        }
    }
}

/// The default of `timeout_ms`.
#[expect(clippy::cast_possible_truncation, reason = "15,000 milliseconds")]
pub(super) const TIMEOUT_DEFAULT_MS: u32 = limits::TIMEOUT_DEFAULT.as_millis() as u32;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::body::parse;

    /// Where a body has faults, and their words.
    fn told(body: &Value) -> BTreeSet<(String, String)> {
        let egress = EgressPolicy::parse("").unwrap();
        let failure = match parse::<CreateEndpoint>(body.to_string().as_bytes()) {
            Ok((request, faults)) => request.checked(&egress, faults).err().unwrap(),
            Err(failure) => failure,
        };
        let faults = failure.faults.into_iter();
        faults.map(|fault| (fault.pointer, fault.detail)).collect()
    }

    /// The handler says so where the body has its form, the check along the schema where it has not; that one adds null where a
    /// field takes it.
    #[test]
    fn a_number_out_of_its_bounds_is_told_in_the_same_words_by_whoever_finds_it() {
        let growing = json!({ "kind": "exponential", "base_ms": 9, "factor": 11, "cap_ms": 604_800_001,
            "max_attempts": 1_001, "jitter": { "spread": 2 } });
        let mut seen = 0;
        for (field, value) in [
            ("max_age_s", json!(59)),
            ("timeout_ms", json!(30_001)),
            ("max_in_flight", json!(0)),
            ("fatal_statuses", json!([399, 422, 600])),
            ("rate_limit", json!({ "per_second": 0.001, "burst": 0 })),
            (
                "rate_limit",
                json!({ "per_second": 10_001, "burst": 10_001 }),
            ),
            (
                "retry_policy",
                json!({ "kind": "fixed", "delay_ms": 9, "max_attempts": 0 }),
            ),
            ("retry_policy", growing),
        ] {
            let mut body = json!({ "url": "https://example.com/", field: value });
            let alone = told(&body);
            body["urll"] = json!(1);
            let beside: BTreeSet<_> = told(&body)
                .into_iter()
                .filter(|(pointer, _)| pointer != "/urll")
                .map(|(pointer, detail)| (pointer, detail.trim_end_matches(" or null").to_owned()))
                .collect();
            let own = ", and not 408, 410 or 429, which have a meaning of their own";
            let alone: BTreeSet<_> = alone
                .into_iter()
                .map(|(pointer, detail)| (pointer, detail.trim_end_matches(own).to_owned()))
                .collect();
            assert_eq!(alone, beside);
            assert!(
                alone
                    .iter()
                    .all(|(pointer, detail)| detail.starts_with(pointer))
            );
            seen += alone.len();
        }
        assert_eq!(seen, 16);
    }

    #[test]
    fn a_rate_without_its_number_lacks_a_field_and_each_wrong_number_is_told() {
        let rate =
            |rate: &Value| told(&json!({ "url": "https://example.com/", "rate_limit": rate }));
        let missing = rate(&json!({ "burst": 0 }));
        let words: Vec<_> = missing.iter().map(|(_, detail)| detail.as_str()).collect();
        assert_eq!(
            words,
            [
                "/rate_limit/burst must be a whole number from 1 to 10000",
                "/rate_limit/per_second is missing: it must be a number from 0.01 to 10000",
            ]
        );
    }
}

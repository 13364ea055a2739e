//! POST /v1/endpoints/{id}/test: one request is sent to an endpoint now, and its answer told.

use axum::extract::State;
use bytes::Bytes;
use posthorn_domain::event_type::EventType;
use posthorn_domain::scope::Scope;
use posthorn_store::read::{self, EndpointRef};
use posthorn_store::test_send::TestSend;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::authenticate::Caller;
use crate::body::JsonOrNothing;
use crate::envelope::check_json;
use crate::faults::Faults;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::routes::attempts::{Attempt, WithBody};
use crate::state::ApiState;
use crate::wire::{Id, present};

/// The type of a test for which none is given.
const TYPE: &str = "endpoint.test";
/// The payload of a test for which none is given.
const PAYLOAD: &str = r#"{"test":true}"#;

/// What is sent. What is absent has its default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"type": "invoice.paid", "payload": {"id": 1, "amount": "99.90"}}))]
pub(in crate::routes) struct TestEndpoint {
    /// The type of the event that it pretends to be; sent where the endpoint's body is `standard`. Default `endpoint.test`.
    /// It need not be one that the endpoint listens to.
    #[serde(rename = "type", default, deserialize_with = "present")]
    #[schema(nullable = false, max_length = 128)]
    type_: Option<String>,
    /// Any JSON value of at most 128 levels, sent byte for byte. Default `{"test":true}`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
}

/// Test an endpoint.
///
/// Sends one request now, signed and bounded as every other, and answers what came of it: a failed attempt is a success of
/// this call. Works while the endpoint is paused or disabled. It is no delivery: its `event_id` is the `webhook-id` that was
/// sent, and no event; nothing is sent again, and nothing follows from the answer for the endpoint's health or state. The
/// attempt is listed with the endpoint's others. A few tests of a tenant may be under way at once. The body of the answer is
/// shown to keys with the scope payloads:read.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{id}/test",
    operation_id = "test_endpoint",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    request_body(content = Option<TestEndpoint>, content_type = "application/json"),
    responses((status = 200, description = "The attempt, whether it succeeded or failed.", body = Attempt))
)]
pub(super) async fn test_endpoint(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
    JsonOrNothing(request, faults): JsonOrNothing<TestEndpoint>,
) -> Result<axum::Json<Attempt>, Failure> {
    let (event_type, payload) = request.checked(faults)?;
    let endpoint = read::endpoint(state.database(), caller.tenant(), &which)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    // As it is now: it may have been made or changed through another node a moment ago.
    state
        .cache()
        .refresh()
        .await
        .map_err(read::DatabaseError::from)?;
    let test = TestSend {
        scope: caller.tenant(),
        endpoint: endpoint.id,
        event_type,
        payload,
    };
    let attempt = state.test_sends().send(test).await?;
    let body = if caller.may(Scope::PayloadsRead) {
        WithBody::Shown
    } else {
        WithBody::Withheld
    };
    Ok(axum::Json(Attempt::new(attempt, body)))
}

impl TestEndpoint {
    /// Type and payload, or everything that is wrong with the request.
    fn checked(self, mut faults: Faults) -> Result<(EventType, Bytes), Failure> {
        let payload = match self.payload {
            Some(raw) => Bytes::from(Box::<str>::from(raw).into_string()),
            None => Bytes::from_static(PAYLOAD.as_bytes()),
        };
        check_json(&payload, "/payload", &mut faults)?;
        let event_type = EventType::parse(self.type_.as_deref().unwrap_or(TYPE));
        match faults.keep("/type", Problem::EventTypeInvalid, event_type) {
            Some(event_type) if faults.is_empty() => Ok((event_type, payload)),
            _ => Err(faults.into()),
        }
    }
}

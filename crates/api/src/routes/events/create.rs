//! POST /v1/events: an event is accepted.

use axum::Json;
use axum::extract::{Request, State};
use http::StatusCode;
use posthorn_domain::limits;
use serde::Serialize;
use utoipa::ToSchema;

use crate::authenticate::Caller;
use crate::body::read_json;
use crate::envelope::{self, Envelope};
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Time;

/// An event that is durable, together with the list of endpoints that it is for.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EventAccepted {
    /// Its id, also the `webhook-id` of every request.
    #[schema(example = "evt_01kb6x8v2rhd7t4q9m3n5p6s7v")]
    id: String,
    /// The sender's own name for it.
    uid: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(example = "invoice.paid")]
    type_: String,
    /// When it became durable.
    accepted_at: Time,
    /// Whether any endpoint wants it.
    matched: bool,
    /// How many endpoints want it.
    deliveries_count: usize,
}

/// Submit an event.
///
/// Answered when the event is durable, with the list of endpoints that it is for. From then on each of its
/// deliveries ends on record: delivered, dead, discarded or cancelled.
#[utoipa::path(
    post,
    path = "/v1/events",
    operation_id = "create_event",
    tag = "events",
    request_body(content = Envelope<'_>, content_type = "application/json"),
    responses((status = 202, description = "The event is accepted.", body = EventAccepted))
)]
pub(super) async fn create_event(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoQuery,
    request: Request,
) -> Result<(StatusCode, Json<EventAccepted>), Failure> {
    let body = read_json(
        request,
        &state,
        limits::SUBMIT_BODY_BYTES,
        Problem::PayloadTooLarge,
    )
    .await?;
    let event = envelope::read(caller.tenant().tenant(), &body)?;
    let type_ = event.event_type.as_str().to_owned();
    let accepted = state.acceptor().accept(event).await?;
    let answer = EventAccepted {
        id: accepted.id.to_string(),
        uid: None,
        type_,
        accepted_at: Time(accepted.accepted_at),
        matched: accepted.deliveries_count > 0,
        deliveries_count: accepted.deliveries_count,
    };
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

//! GET /v1/events/{id}/payload: the bytes that were submitted.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use posthorn_domain::id::EventId;
use posthorn_store::read;

use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::{Binary, Id};

/// Get an event's payload.
///
/// The bytes as they were submitted and are sent. Whatever they are, they are served as a file that no browser
/// will run.
#[utoipa::path(
    get,
    path = "/v1/events/{id}/payload",
    operation_id = "get_event_payload",
    tag = "events",
    params(("id" = String, Path, description = "The event's id.")),
    responses((status = 200, description = "The payload.", body = inline(Binary), content_type = "application/octet-stream"))
)]
pub(super) async fn get_event_payload(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<EventId>,
    _: NoQuery,
) -> Result<Response, Failure> {
    let payload = read::payload(state.database(), caller.tenant(), id)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    let mut response = payload.bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"payload\""),
    );
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

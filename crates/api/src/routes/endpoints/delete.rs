//! DELETE /v1/endpoints/{id}: an endpoint goes.

use axum::extract::State;
use http::StatusCode;
use posthorn_store::configure;
use posthorn_store::read::EndpointRef;

use crate::authenticate::Caller;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Delete an endpoint.
///
/// What waits for it is cancelled; its history stays. Its uid is free again.
#[utoipa::path(
    delete,
    path = "/v1/endpoints/{id}",
    operation_id = "delete_endpoint",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    responses((status = 204, description = "The endpoint is deleted."))
)]
pub(super) async fn delete_endpoint(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
) -> Result<StatusCode, Failure> {
    configure::delete_endpoint(state.database(), caller.tenant(), &which).await?;
    state.catch_up().await;
    Ok(StatusCode::NO_CONTENT)
}

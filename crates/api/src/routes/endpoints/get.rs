//! GET /v1/endpoints/{id}: one endpoint.

use axum::Json;
use axum::extract::State;
use posthorn_store::read::{self, EndpointRef};

use super::Endpoint;
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Get an endpoint.
#[utoipa::path(
    get,
    path = "/v1/endpoints/{id}",
    operation_id = "get_endpoint",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    responses((status = 200, description = "The endpoint.", body = Endpoint))
)]
pub(super) async fn get_endpoint(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
) -> Result<Json<Endpoint>, Failure> {
    let endpoint = read::endpoint(state.database(), caller.tenant(), &which)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    Ok(Json(endpoint.into()))
}

//! GET /v1/api-keys/{id}: one API key.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::KeyId;
use posthorn_store::read;

use super::ApiKey;
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Get an API key.
#[utoipa::path(
    get,
    path = "/v1/api-keys/{id}",
    operation_id = "get_api_key",
    tag = "api-keys",
    params(("id" = String, Path, description = "The key's id, which is no secret.")),
    responses((status = 200, description = "The key, without its text.", body = ApiKey))
)]
pub(super) async fn get_api_key(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<KeyId>,
    _: NoQuery,
) -> Result<Json<ApiKey>, Failure> {
    let key = read::api_key(state.database(), caller.tenant(), id)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    Ok(Json(key.into()))
}

//! DELETE /v1/api-keys/{id}: an API key is revoked.

use axum::extract::State;
use http::StatusCode;
use posthorn_domain::id::KeyId;
use posthorn_store::configure::{self, Revoked};

use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Revoke an API key.
///
/// For ever: every node refuses it within a second. A key may revoke itself.
#[utoipa::path(
    delete,
    path = "/v1/api-keys/{id}",
    operation_id = "revoke_api_key",
    tag = "api-keys",
    params(("id" = String, Path, description = "The key's id, which is no secret.")),
    responses((status = 204, description = "The key is revoked."))
)]
pub(super) async fn revoke_api_key(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<KeyId>,
    _: NoQuery,
) -> Result<StatusCode, Failure> {
    match configure::revoke_key(state.database(), caller.tenant(), id).await? {
        Revoked::Now(_) => {
            state.catch_up().await;
            Ok(StatusCode::NO_CONTENT)
        }
        Revoked::Before | Revoked::Unknown => Err(Failure::new(Problem::NotFound)),
    }
}

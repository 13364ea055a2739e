//! GET /v1/attempts/{id}: one attempt.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::AttemptId;
use posthorn_domain::scope::Scope;
use posthorn_store::read;

use super::{Attempt, WithBody};
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Get an attempt.
///
/// The body of the answer is shown to keys with the scope payloads:read.
#[utoipa::path(
    get,
    path = "/v1/attempts/{id}",
    operation_id = "get_attempt",
    tag = "attempts",
    params(("id" = String, Path, description = "The attempt's id.")),
    responses((status = 200, description = "The attempt.", body = Attempt))
)]
pub(super) async fn get_attempt(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<AttemptId>,
    _: NoQuery,
) -> Result<Json<Attempt>, Failure> {
    let attempt = read::attempt(state.database(), caller.tenant(), id)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    let body = if caller.may(Scope::PayloadsRead) {
        WithBody::Shown
    } else {
        WithBody::Withheld
    };
    Ok(Json(Attempt::new(attempt, body)))
}

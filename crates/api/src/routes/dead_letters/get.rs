//! GET /v1/dead-letters/{id}: one dead letter.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::DeliveryId;
use posthorn_store::read;

use super::DeadLetter;
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Get a dead letter.
///
/// It is gone once a replay succeeds.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/{id}",
    operation_id = "get_dead_letter",
    tag = "dead-letters",
    params(("id" = String, Path, description = "The delivery's id.")),
    responses((status = 200, description = "The dead letter.", body = DeadLetter))
)]
pub(super) async fn get_dead_letter(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
) -> Result<Json<DeadLetter>, Failure> {
    let letter = read::dead_letter(state.database(), caller.tenant(), id)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    Ok(Json(DeadLetter::kept(letter, state.dead_letters())))
}

//! POST /v1/dead-letters/{id}/replay: a dead letter is sent again.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use posthorn_domain::id::DeliveryId;
use posthorn_store::replay;

use super::super::deliveries::Delivery;
use crate::authenticate::Caller;
use crate::body::NoBody;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Replay a dead letter.
///
/// The delivery is due at once and begins its retry policy and its `max_age` anew; the event's id stays the same.
/// The dead letter is removed when an attempt succeeds.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/{id}/replay",
    operation_id = "replay_dead_letter",
    tag = "dead-letters",
    params(("id" = String, Path, description = "The delivery's id.")),
    responses((status = 202, description = "The delivery is due.", body = Delivery,
        example = json!({
            "state": "retrying",
            "attempt_count": 10,
            "next_attempt_at": "2026-02-03T16:00:00.000000Z",
            "expires_at": "2026-02-08T16:00:00.000000Z",
            "last_attempt": {
                "id": "att_01kb6x8v2rhd7t4q9m3n5p6s7v01kb6wq3c5e8h2k4n7r9t1v3x5-a-9f2c4e6a8b0d1f35",
                "n": 10,
                "trigger": "schedule",
                "replay_id": null,
                "sent_at": "2026-02-03T13:05:35.000000Z",
                "outcome": "failed",
                "status": 500,
                "error": {"kind": "status", "detail": null},
                "duration_ms": 120
            }
        })))
)]
pub(super) async fn replay_dead_letter(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
    _: NoBody,
) -> Result<(StatusCode, Json<Delivery>), Failure> {
    let delivery = replay::replay_dead_letter(state.database(), caller.tenant(), id).await?;
    state.due().ring();
    Ok((StatusCode::ACCEPTED, Json(delivery.into())))
}

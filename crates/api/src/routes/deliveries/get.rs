//! GET /v1/deliveries/{id}: one delivery with its attempts.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::DeliveryId;
use posthorn_domain::limits;
use posthorn_store::read::{self, Edge, Order, Slice};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::attempts::AttemptSummary;
use super::Delivery;
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// A delivery with its attempts.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct DeliveryWithAttempts {
    #[serde(flatten)]
    delivery: Delivery,
    /// Its attempts, the newest first, at most 100.
    attempts: Vec<AttemptSummary>,
}

/// Get a delivery.
///
/// With its newest 100 attempts; the list of attempts has all.
#[utoipa::path(
    get,
    path = "/v1/deliveries/{id}",
    operation_id = "get_delivery",
    tag = "deliveries",
    params(("id" = String, Path, description = "The delivery's id.")),
    responses((status = 200, description = "The delivery.", body = DeliveryWithAttempts))
)]
pub(super) async fn get_delivery(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
) -> Result<Json<DeliveryWithAttempts>, Failure> {
    let delivery = read::delivery(state.database(), caller.tenant(), id)
        .await?
        .ok_or(Failure::new(Problem::NotFound))?;
    let slice = Slice {
        order: Order::NewestFirst,
        edge: Edge::Start,
        limit: limits::DELIVERY_ATTEMPTS,
    };
    let attempts = read::attempts_of_delivery(state.database(), caller.tenant(), id, slice).await?;
    let attempts = attempts
        .rows
        .into_iter()
        .map(|attempt| attempt.summary.into())
        .collect();
    Ok(Json(DeliveryWithAttempts {
        delivery: delivery.into(),
        attempts,
    }))
}

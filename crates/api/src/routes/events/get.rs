//! GET /v1/events/{id}: one event with its deliveries.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use posthorn_store::read::{self, Edge, Order, Slice};

use super::Event;
use crate::authenticate::Caller;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Id;

/// Get an event.
///
/// With its deliveries, at most 100 of them; the list of deliveries has all.
#[utoipa::path(
    get,
    path = "/v1/events/{id}",
    operation_id = "get_event",
    tag = "events",
    params(("id" = String, Path, description = "The event's id.")),
    responses((status = 200, description = "The event.", body = Event))
)]
pub(super) async fn get_event(
    State(state): State<ApiState>,
    caller: Caller,
    Id(id): Id<EventId>,
    _: NoQuery,
) -> Result<Json<Event>, Failure> {
    let unknown = || Failure::new(Problem::NotFound);
    let event = read::event(state.database(), caller.tenant(), id)
        .await?
        .ok_or_else(unknown)?;
    let slice = Slice {
        order: Order::OldestFirst,
        edge: Edge::Start,
        limit: limits::EVENT_DELIVERIES,
    };
    let deliveries = read::deliveries(state.database(), caller.tenant(), id, slice)
        .await?
        .ok_or_else(unknown)?;
    Ok(Json(Event::new(event, Some(deliveries.rows))))
}

//! Deliveries: one event for one endpoint, and how far it got.

mod get;
mod list;

use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::attempts::AttemptSummary;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(list::list_deliveries))
        .routes(routes!(get::get_delivery))
}

/// One event for one endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Delivery {
    /// `dlv_` and the two ids.
    #[schema(example = "dlv_01kb6x8v2rhd7t4q9m3n5p6s7v01kb6wq3c5e8h2k4n7r9t1v3x5")]
    id: String,
    /// The event.
    event_id: String,
    /// The endpoint.
    endpoint_id: String,
    /// The application that the event is for.
    application_id: Option<String>,
    /// The event's type.
    #[serde(rename = "type")]
    type_: String,
    /// How far it got.
    #[schema(extensions(("x-known-values" = json!(
        ["waiting", "retrying", "parked", "delivered", "dead", "discarded", "cancelled"]
    ))))]
    state: &'static str,
    /// Why no time is known for the next attempt, while it is parked.
    #[schema(extensions(("x-known-values" = json!(
        ["rate_limit", "circuit", "retry_after", "paused", "disabled", "capacity", "replay"]
    ))))]
    parked_cause: Option<String>,
    /// Requests that were made.
    attempt_count: u32,
    /// When the next request is due.
    next_attempt_at: Option<Time>,
    /// When the event was accepted.
    accepted_at: Time,
    /// When the endpoint accepted it.
    delivered_at: Option<Time>,
    /// When it is given up, while it is not at its end.
    expires_at: Option<Time>,
    /// The latest request.
    last_attempt: Option<AttemptSummary>,
    /// The replay that it is part of.
    replay_id: Option<String>,
}

impl From<read::Delivery> for Delivery {
    fn from(delivery: read::Delivery) -> Self {
        Self {
            id: delivery.id.to_string(),
            event_id: delivery.id.event.to_string(),
            endpoint_id: delivery.id.endpoint.to_string(),
            application_id: None,
            type_: delivery.event_type,
            state: delivery.state.as_str(),
            parked_cause: delivery.parked_cause,
            attempt_count: delivery.attempt_count,
            next_attempt_at: delivery.next_attempt_at.map(Time),
            accepted_at: Time(delivery.id.event.minted_at()),
            delivered_at: delivery.delivered_at.map(Time),
            expires_at: delivery.expires_at.map(Time),
            last_attempt: delivery.last_attempt.map(AttemptSummary::from),
            replay_id: None,
        }
    }
}

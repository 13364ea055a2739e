//! GET /v1/deliveries: a page of an event's deliveries.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::{EndpointId, EventId};
use posthorn_store::read;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::Delivery;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::{Failure, Problem};
use crate::query::Parameters;
use crate::state::ApiState;

/// What narrows the list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct DeliveryFilters {
    /// Deliveries of this event.
    event_id: String,
}

/// A page of deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct DeliveryPage {
    /// The deliveries.
    data: Vec<Delivery>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List an event's deliveries.
///
/// By endpoint, the newest endpoint first unless asked otherwise.
#[utoipa::path(
    get,
    path = "/v1/deliveries",
    operation_id = "list_deliveries",
    tag = "deliveries",
    params(DeliveryFilters, ListParameters),
    responses((status = 200, description = "A page of deliveries.", body = DeliveryPage))
)]
pub(super) async fn list_deliveries(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<DeliveryPage>, Failure> {
    let event = query.needed::<EventId>("event_id", "the id of an event");
    let list = ListQuery::<EndpointId>::take(
        &mut query,
        caller.tenant(),
        "deliveries",
        &format!("{event:?}"),
    );
    query.finish()?;
    let event = event.ok_or(Failure::new(Problem::ParameterMissing))?;
    let page = read::deliveries(state.database(), caller.tenant(), event, list.slice)
        .await?
        .unwrap_or_default();
    let cursors = list.cursors(&page, |delivery| delivery.id.endpoint);
    let data = page.rows.into_iter().map(Delivery::from).collect();
    Ok(Json(DeliveryPage { data, cursors }))
}

//! GET /v1/attempts: a page of the attempts of an event, an endpoint, or a delivery.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::{DeliveryId, EndpointId, EventId};
use posthorn_domain::scope::Scope;
use posthorn_store::read::{self, AttemptKey, Page};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::{Attempt, WithBody};
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::{Failure, Problem};
use crate::query::Parameters;
use crate::state::ApiState;

/// What narrows the list. One of the two is needed; both name a delivery.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct AttemptFilters {
    /// Attempts of this event. Required without `endpoint_id`.
    event_id: Option<String>,
    /// Attempts of this endpoint. Required without `event_id`.
    endpoint_id: Option<String>,
}

/// A page of attempts.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct AttemptPage {
    /// The attempts.
    data: Vec<Attempt>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List attempts.
///
/// `event_id`, `endpoint_id` or both are required. With `event_id`: the attempts for that event at every endpoint, sorted by
/// endpoint. With `endpoint_id`: the attempts of every event at that endpoint, sorted by event. With both: those of
/// one delivery. The attempts of a delivery stand together, sorted by their number `n`. `order` turns the whole list round.
#[utoipa::path(
    get,
    path = "/v1/attempts",
    operation_id = "list_attempts",
    tag = "attempts",
    params(AttemptFilters, ListParameters),
    responses((status = 200, description = "A page of attempts.", body = AttemptPage))
)]
pub(super) async fn list_attempts(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<AttemptPage>, Failure> {
    let event = query.parsed::<EventId>("event_id", "the id of an event");
    let endpoint = query.parsed::<EndpointId>("endpoint_id", "the id of an endpoint");
    let filter = format!("{event:?} {endpoint:?}");
    let list = ListQuery::<AttemptKey>::take(&mut query, caller.tenant(), "attempts", &filter);
    query.finish()?;
    let page = fetch(&state, &caller, event, endpoint, &list).await?;
    let cursors = list.cursors(&page, read::Attempt::key);
    let body = if caller.may(Scope::PayloadsRead) {
        WithBody::Shown
    } else {
        WithBody::Withheld
    };
    let data = page
        .rows
        .into_iter()
        .map(|attempt| Attempt::new(attempt, body))
        .collect();
    Ok(Json(AttemptPage { data, cursors }))
}

async fn fetch(
    state: &ApiState,
    caller: &Caller,
    event: Option<EventId>,
    endpoint: Option<EndpointId>,
    list: &ListQuery<AttemptKey>,
) -> Result<Page<read::Attempt>, Failure> {
    let (database, tenant, slice) = (state.database(), caller.tenant(), list.slice);
    Ok(match (event, endpoint) {
        (Some(event), Some(endpoint)) => {
            read::attempts_of_delivery(database, tenant, DeliveryId { event, endpoint }, slice)
                .await?
        }
        (Some(event), None) => read::attempts_of_event(database, tenant, event, slice).await?,
        (None, Some(endpoint)) => {
            read::attempts_of_endpoint(database, tenant, endpoint, slice).await?
        }
        (None, None) => {
            return Err(Failure::field(
                "?event_id",
                Problem::ParameterMissing,
                "event_id or endpoint_id is needed",
            ));
        }
    })
}

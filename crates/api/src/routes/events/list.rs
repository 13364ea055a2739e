//! GET /v1/events: a page of events.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::EventId;
use posthorn_store::read::{self, EventFilter};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::Event;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::Failure;
use crate::query::Parameters;
use crate::state::ApiState;

/// What narrows the list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct EventFilters {
    /// Accepted at or after this moment.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Accepted before this moment.
    #[param(format = DateTime)]
    until: Option<String>,
}

/// A page of events.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EventPage {
    /// The events.
    data: Vec<Event>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List events.
///
/// By the time of accept, the newest first unless asked otherwise.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "list_events",
    tag = "events",
    params(ListParameters, EventFilters),
    responses((status = 200, description = "A page of events.", body = EventPage))
)]
pub(super) async fn list_events(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<EventPage>, Failure> {
    let filter = EventFilter {
        since: query.time("since"),
        until: query.time("until"),
    };
    let list = ListQuery::<EventId>::take(
        &mut query,
        caller.tenant(),
        "events",
        &format!("{filter:?}"),
    );
    query.finish()?;
    let page = read::events(state.database(), caller.tenant(), filter, list.slice).await?;
    let cursors = list.cursors(&page, |event| event.id);
    let data = page
        .rows
        .into_iter()
        .map(|event| Event::new(event, None))
        .collect();
    Ok(Json(EventPage { data, cursors }))
}

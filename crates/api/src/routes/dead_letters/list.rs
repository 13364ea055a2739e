//! GET /v1/dead-letters: a page of dead letters.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::EndpointId;
use posthorn_store::read::{self, DeadLetterFilter, DeadLetterKey};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::DeadLetter;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::Failure;
use crate::query::Parameters;
use crate::state::ApiState;

/// What narrows the list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct DeadLetterFilters {
    /// Dead letters of this endpoint.
    endpoint_id: Option<String>,
    /// Died at or after this moment.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Died before this moment.
    #[param(format = DateTime)]
    until: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct DeadLetterPage {
    /// The dead letters.
    data: Vec<DeadLetter>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List dead letters.
///
/// By when they died, the newest first unless asked otherwise.
#[utoipa::path(
    get,
    path = "/v1/dead-letters",
    operation_id = "list_dead_letters",
    tag = "dead-letters",
    params(DeadLetterFilters, ListParameters),
    responses((status = 200, description = "A page of dead letters.", body = DeadLetterPage))
)]
pub(super) async fn list_dead_letters(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<DeadLetterPage>, Failure> {
    let endpoint = query.parsed::<EndpointId>("endpoint_id", "the id of an endpoint");
    let filter = DeadLetterFilter {
        endpoint,
        since: query.time("since"),
        until: query.time("until"),
    };
    let list = ListQuery::<DeadLetterKey>::take(
        &mut query,
        caller.tenant(),
        "dead_letters",
        &format!("{filter:?}"),
    );
    query.finish()?;
    let page = read::dead_letters(state.database(), caller.tenant(), filter, list.slice).await?;
    let cursors = list.cursors(&page, read::DeadLetter::key);
    let kept = |letter| DeadLetter::kept(letter, state.dead_letters());
    let data = page.rows.into_iter().map(kept).collect();
    Ok(Json(DeadLetterPage { data, cursors }))
}

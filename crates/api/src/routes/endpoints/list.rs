//! GET /v1/endpoints: a page of endpoints.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::EndpointId;
use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;

use super::Endpoint;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::Failure;
use crate::query::Parameters;
use crate::state::ApiState;

/// A page of endpoints.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EndpointPage {
    /// The endpoints.
    data: Vec<Endpoint>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List endpoints.
///
/// By when they were created, the newest first unless asked otherwise.
#[utoipa::path(
    get,
    path = "/v1/endpoints",
    operation_id = "list_endpoints",
    tag = "endpoints",
    params(ListParameters),
    responses((status = 200, description = "A page of endpoints.", body = EndpointPage))
)]
pub(super) async fn list_endpoints(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<EndpointPage>, Failure> {
    let list = ListQuery::<EndpointId>::take(&mut query, caller.tenant(), "endpoints", "");
    query.finish()?;
    let page = read::endpoints(state.database(), caller.tenant(), list.slice).await?;
    let cursors = list.cursors(&page, |endpoint| endpoint.id);
    let data = page.rows.into_iter().map(Endpoint::from).collect();
    Ok(Json(EndpointPage { data, cursors }))
}

//! GET /v1/api-keys: a page of API keys.

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::KeyId;
use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiKey;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::Failure;
use crate::query::Parameters;
use crate::state::ApiState;

/// A page of API keys.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct ApiKeyPage {
    /// The keys.
    data: Vec<ApiKey>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List API keys.
///
/// Those that were not revoked, by when they were made, the newest first unless asked otherwise. Revoked ones are in the audit log.
#[utoipa::path(
    get,
    path = "/v1/api-keys",
    operation_id = "list_api_keys",
    tag = "api-keys",
    params(ListParameters),
    responses((status = 200, description = "A page of API keys.", body = ApiKeyPage))
)]
pub(super) async fn list_api_keys(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<ApiKeyPage>, Failure> {
    let list = ListQuery::<KeyId>::take(&mut query, caller.tenant(), "api_keys", "");
    query.finish()?;
    let page = read::api_keys(state.database(), caller.tenant(), list.slice).await?;
    let cursors = list.cursors(&page, |key| key.id);
    let data = page.rows.into_iter().map(ApiKey::from).collect();
    Ok(Json(ApiKeyPage { data, cursors }))
}

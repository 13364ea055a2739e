//! POST /v1/api-keys: an API key is made.

use axum::extract::State;
use chrono::{DateTime, Utc};
use http::header::{CACHE_CONTROL, LOCATION};
use http::{HeaderName, StatusCode};
use posthorn_domain::api_key;
use posthorn_domain::id::KeyId;
use posthorn_domain::limits;
use posthorn_domain::scope::Scope;
use posthorn_store::configure::{self, NewKey};
use posthorn_store::read;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ApiKey, ScopeWord};
use crate::authenticate::Caller;
use crate::body::Json;
use crate::faults::Faults;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::moment;

/// An API key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "billing service", "scopes": ["events:write"]}))]
pub(in crate::routes) struct CreateApiKey {
    /// A person's name for it.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// What it may do.
    #[schema(value_type = Vec<ScopeWord>, min_items = 1, max_items = 12)]
    scopes: Vec<Scope>,
    /// From then on it is refused: a moment that is still to come. Default (null): never.
    #[serde(default)]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// An API key with its text.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct ApiKeyWithText {
    #[serde(flatten)]
    record: ApiKey,
    /// The key itself: send it as `Authorization: Bearer …`. It is in this answer alone and kept nowhere.
    #[schema(example = "ph_live_0000000000000000000000000000000000000000000000000000example")]
    key: String,
}

/// What was asked for, and may be.
struct Asked {
    name: String,
    scopes: Vec<Scope>,
    expires_at: Option<DateTime<Utc>>,
}

/// Create an API key.
///
/// In force on every node within a second. Its text is in this answer and never again. A tenant has at most 200 keys in force.
#[utoipa::path(
    post,
    path = "/v1/api-keys",
    operation_id = "create_api_key",
    tag = "api-keys",
    request_body(content = CreateApiKey, content_type = "application/json"),
    responses((status = 201, description = "The key, with its text.", body = ApiKeyWithText,
        headers(("location" = String, description = "The key's path."))))
)]
pub(super) async fn create_api_key(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoQuery,
    Json(request, faults): Json<CreateApiKey>,
) -> Result<
    (
        StatusCode,
        [(HeaderName, String); 2],
        axum::Json<ApiKeyWithText>,
    ),
    Failure,
> {
    let now = state.clock().now();
    let asked = request.checked(now, faults)?;
    let tenant = caller.tenant().tenant();
    let environment = state
        .cache()
        .snapshot()
        .tenant(tenant)
        .map(|tenant| tenant.environment)
        .ok_or_else(Failure::unauthenticated)?;
    let text = api_key::mint(environment, state.entropy().bytes());
    let new = NewKey {
        id: KeyId::mint(now, state.entropy().bytes()),
        name: asked.name,
        prefix: api_key::display_prefix(text.expose_secret()),
        hash: api_key::check(text.expose_secret()).map_err(Failure::internal)?,
        scopes: asked.scopes,
        expires_at: asked.expires_at,
    };
    configure::create_key(state.database(), caller.tenant(), &new).await?;
    state.catch_up().await;
    let made = read::api_key(state.database(), caller.tenant(), new.id).await?;
    let record = made.ok_or(Failure::new(Problem::NotFound))?.into();
    let headers = [
        (LOCATION, format!("/v1/api-keys/{}", new.id)),
        (CACHE_CONTROL, "no-store".to_owned()),
    ];
    let key = text.expose_secret().to_owned();
    Ok((
        StatusCode::CREATED,
        headers,
        axum::Json(ApiKeyWithText { record, key }),
    ))
}

impl CreateApiKey {
    /// The key, or everything that is wrong with the request.
    fn checked(self, now: DateTime<Utc>, mut faults: Faults) -> Result<Asked, Failure> {
        let length = self.name.chars().count();
        let fits = (1..=limits::NAME_CHARS).contains(&length) && !self.name.trim().is_empty();
        // It is printed to terminals, too.
        if !fits || self.name.contains(char::is_control) {
            let detail = format!(
                "a name has 1 to {} characters, not all of them spaces, and no control character",
                limits::NAME_CHARS
            );
            faults.add("/name", Problem::NameInvalid, detail);
        }
        let mut scopes = self.scopes;
        scopes.sort_unstable();
        scopes.dedup();
        if scopes.is_empty() {
            let detail = "a key without a scope could do nothing";
            faults.add("/scopes", Problem::FieldInvalid, detail);
        }
        let expires_at = self.expires_at.as_deref().and_then(moment);
        if self.expires_at.is_some() && expires_at.is_none_or(|end| end <= now) {
            let detail = "a moment of RFC 3339 that is still to come";
            faults.add("/expires_at", Problem::FieldInvalid, detail);
        }
        faults.finish()?;
        Ok(Asked {
            name: self.name,
            scopes,
            expires_at,
        })
    }
}

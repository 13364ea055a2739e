//! API keys: what programs call with.

mod create;
mod get;
mod list;
mod revoke;

use std::borrow::Cow;

use posthorn_domain::scope::Scope;
use posthorn_store::read;
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit_log::AuditActor;
use crate::openapi::words;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(create::create_api_key, list::list_api_keys))
        .routes(routes!(get::get_api_key, revoke::revoke_api_key))
}

/// An API key, without its text, which nobody has but its holder.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ApiKey {
    /// Its id.
    #[schema(example = "key_01kb6x8v2rhd7t4q9m3n5p6s7v")]
    id: String,
    /// A person's name for it.
    name: String,
    /// Its first characters, to tell keys apart.
    #[schema(example = "ph_live_3k9q")]
    prefix: String,
    /// What it may do.
    scopes: Vec<String>,
    /// When it was made.
    created_at: Time,
    /// Who made it; null for keys that are older than this field.
    created_by: Option<AuditActor>,
    /// From then on it is refused; null: never.
    expires_at: Option<Time>,
    /// When it was used last, to the minute; null: never yet.
    last_used_at: Option<Time>,
}

impl From<read::ApiKey> for ApiKey {
    fn from(key: read::ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name,
            prefix: key.prefix,
            scopes: key.scopes,
            created_at: Time(key.created_at),
            created_by: key
                .created_by_kind
                .map(|kind| AuditActor::of(kind, key.created_by_key)),
            expires_at: key.expires_at.map(Time),
            last_used_at: key.last_used_at.map(Time),
        }
    }
}

/// A scope, as the document describes it.
#[derive(Debug)]
enum ScopeWord {}

impl PartialSchema for ScopeWord {
    fn schema() -> RefOr<Schema> {
        let meanings: Vec<_> = Scope::ALL.iter().map(|scope| [scope.meaning()]).collect();
        let words: Vec<_> = Scope::ALL
            .iter()
            .zip(&meanings)
            .map(|(scope, meaning)| (scope.as_str(), meaning.as_slice()))
            .collect();
        words::schema(&["What a key may do."], &words)
    }
}

impl ToSchema for ScopeWord {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Scope")
    }
}

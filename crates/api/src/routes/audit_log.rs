//! The audit log: who changed what.

mod list;

use posthorn_domain::id::KeyId;
use posthorn_store::read;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::problem::Failure;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default().routes(routes!(list::list_audit_log))
}

/// A change, and who made it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    /// Its id.
    #[schema(example = "aud_01kb6x8v2rhd7t4q9m3n5p6s7v")]
    id: String,
    /// When it was made.
    at: Time,
    /// Who made it.
    actor: AuditActor,
    /// The address that it came from; null where it came from no request.
    #[schema(example = "203.0.113.7")]
    ip: Option<String>,
    /// What was done.
    #[schema(extensions(("x-known-values" = json!([
        "tenant.created", "api_key.created", "api_key.revoked", "endpoint.created", "endpoint.updated", "endpoint.deleted",
        "endpoint.disabled", "endpoint.secret_rotated", "endpoint.secrets_read", "dead_letter.replayed"
    ]))))]
    action: String,
    /// The id of what was changed.
    #[schema(example = "ep_01kb6wq3c5e8h2k4n7r9t1v3x5")]
    target: String,
    /// What it was: of a change the fields that it touched. In place of a secret stands the master key that seals it.
    #[schema(value_type = Option<Object>)]
    before: Option<Map<String, Value>>,
    /// What it is.
    #[schema(value_type = Option<Object>)]
    after: Option<Map<String, Value>>,
}

/// Who made a change.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditActor {
    /// What kind of caller.
    #[schema(extensions(("x-known-values" = json!(["api_key", "command_line", "posthorn"]))))]
    kind: String,
    /// The API key's id; null for the command line and for Posthorn itself.
    id: Option<String>,
}

impl AuditActor {
    /// A caller of this kind, which came with this key.
    pub(super) fn of(kind: String, key: Option<KeyId>) -> Self {
        Self {
            kind,
            id: key.map(|key| key.to_string()),
        }
    }
}

impl AuditEntry {
    fn told(entry: read::AuditEntry) -> Result<Self, Failure> {
        let object = |text: Option<String>| {
            text.map(|text| serde_json::from_str(&text))
                .transpose()
                .map_err(Failure::internal)
        };
        Ok(Self {
            id: entry.id.to_string(),
            at: Time(entry.id.minted_at()),
            actor: AuditActor::of(entry.actor_kind, entry.actor_key),
            ip: entry.ip.map(|ip| ip.to_string()),
            action: entry.action,
            target: entry.target,
            before: object(entry.before)?,
            after: object(entry.after)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::audit::{Action, ActorKind};
    use serde_json::json;
    use utoipa::PartialSchema as _;

    use super::*;

    #[test]
    fn the_document_knows_every_action_and_kind_of_caller() {
        let known =
            |schema: Value, field: &str| schema["properties"][field]["x-known-values"].clone();
        let entry = serde_json::to_value(AuditEntry::schema()).unwrap();
        let actor = serde_json::to_value(AuditActor::schema()).unwrap();
        assert_eq!(known(entry, "action"), json!(Action::ALL));
        assert_eq!(known(actor, "kind"), json!(ActorKind::ALL));
    }
}

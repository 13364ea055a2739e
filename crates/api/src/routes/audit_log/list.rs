//! GET /v1/audit-log: a page of the audit log.

use std::str::FromStr;

use axum::Json;
use axum::extract::State;
use posthorn_domain::id::{AuditId, Prefix};
use posthorn_store::read::{self, AuditFilter};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::AuditEntry;
use crate::authenticate::Caller;
use crate::list::{Cursors, ListParameters, ListQuery};
use crate::problem::Failure;
use crate::query::Parameters;
use crate::state::ApiState;

/// What narrows the list.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct AuditFilters {
    /// Changes of the thing with this id.
    target: Option<String>,
    /// Made at or after this moment.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Made before this moment.
    #[param(format = DateTime)]
    until: Option<String>,
}

/// A text that may be an id of ours, of whatever kind.
struct Target(String);

impl FromStr for Target {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let may_be = Prefix::begins(text)
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
        may_be.then(|| Self(text.to_owned())).ok_or(())
    }
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct AuditLogPage {
    /// The entries.
    data: Vec<AuditEntry>,
    #[serde(flatten)]
    cursors: Cursors,
}

/// List the audit log.
///
/// Who changed what, the newest first unless asked otherwise. An entry is written with its change, so that there is no change
/// without one; nobody can change it, and it is kept for 400 days.
#[utoipa::path(
    get,
    path = "/v1/audit-log",
    operation_id = "list_audit_log",
    tag = "audit-log",
    params(AuditFilters, ListParameters),
    responses((status = 200, description = "A page of the audit log.", body = AuditLogPage))
)]
pub(super) async fn list_audit_log(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
) -> Result<Json<AuditLogPage>, Failure> {
    let target = query.parsed::<Target>("target", "the id of something");
    let filter = AuditFilter {
        target: target.map(|Target(id)| id),
        since: query.time("since"),
        until: query.time("until"),
    };
    let list = ListQuery::<AuditId>::take(
        &mut query,
        caller.tenant(),
        "audit_log",
        &format!("{filter:?}"),
    );
    query.finish()?;
    let page = read::audit_log(state.database(), caller.tenant(), &filter, list.slice).await?;
    let cursors = list.cursors(&page, |entry| entry.id);
    let data = page
        .rows
        .into_iter()
        .map(AuditEntry::told)
        .collect::<Result<_, _>>()?;
    Ok(Json(AuditLogPage { data, cursors }))
}

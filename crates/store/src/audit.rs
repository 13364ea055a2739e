//! The audit log: who changed what, from where, and what it was before.
//!
//! [`write`] is called in the transaction of the change, so that there is no change without its entry and no entry without its
//! change. The database lets neither role rewrite a row, nor delete one that is younger than [`limits::AUDIT_DAYS`]. A secret
//! never comes here: in its place stands the master key that seals it (INV-10).

use posthorn_domain::audit::Action;
use posthorn_domain::id::TenantId;
use posthorn_domain::limits;
use serde_json::{Map, Value};
use sqlx::PgConnection;

use crate::database::{Database, DatabaseError};
use crate::scope::Actor;

/// Fields of an object, by the names that the API gives them.
pub(crate) type Fields = Map<String, Value>;

/// One change.
pub(crate) struct Entry {
    /// What was done.
    pub(crate) action: Action,
    /// The id of what was changed, as the API writes it.
    pub(crate) target: String,
    /// What it was; empty where there was nothing.
    pub(crate) before: Fields,
    /// What it is; empty where there is nothing any more.
    pub(crate) after: Fields,
}

/// Fields, from pairs.
pub(crate) fn fields<const N: usize>(pairs: [(&str, Value); N]) -> Fields {
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Writes the entry of the change that `connection`'s transaction makes.
///
/// # Errors
/// When the database does not answer.
pub(crate) async fn write(
    connection: &mut PgConnection,
    tenant: TenantId,
    actor: Actor,
    entry: Entry,
) -> Result<(), DatabaseError> {
    let json = |fields: Fields| (!fields.is_empty()).then(|| Value::Object(fields).to_string());
    sqlx::query!(
        "INSERT INTO audit_log (tenant_id, id, actor_kind, actor_id, ip, action, target, before, after)
         VALUES ($1, posthorn_uuid_at(clock_timestamp()), $2, $3, $4::text::inet, $5, $6, $7::text::json, $8::text::json)",
        tenant.uuid(),
        actor.kind().as_str(),
        actor.id(),
        actor.address().map(|address| address.to_string()),
        entry.action.as_str(),
        entry.target,
        json(entry.before),
        json(entry.after),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// The fields that differ, as they were and as they are; those that are named in any case.
pub(crate) fn difference(
    mut before: Fields,
    mut after: Fields,
    named: &[&str],
) -> (Fields, Fields) {
    let same: Vec<_> = before
        .iter()
        .filter(|(name, value)| after.get(*name) == Some(value) && !named.contains(&name.as_str()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in same {
        before.remove(&name);
        after.remove(&name);
    }
    (before, after)
}

/// Deletes at most [`limits::EXPIRE_ROWS`] entries whose time is over, the oldest first. Answers how many.
///
/// # Errors
/// When the database does not answer.
pub async fn expire(database: &Database) -> Result<u64, DatabaseError> {
    let deleted = sqlx::query!(
        "DELETE FROM audit_log
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM audit_log
                                 WHERE id < posthorn_uuid_floor(now() - make_interval(days => $1))
                                 ORDER BY id
                                 LIMIT $2))",
        limits::AUDIT_DAYS,
        limits::EXPIRE_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(deleted.rows_affected())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Fields {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn of_a_change_what_differs_is_kept_and_what_is_named() {
        let before =
            object(json!({"url": "a", "state": "enabled", "headers": {"x": 1}, "gone": 1}));
        let after =
            object(json!({"url": "b", "state": "enabled", "headers": {"x": 1}, "new": null}));
        let (was, is) = difference(before, after, &["headers"]);
        assert_eq!(
            was,
            object(json!({"url": "a", "headers": {"x": 1}, "gone": 1}))
        );
        assert_eq!(
            is,
            object(json!({"url": "b", "headers": {"x": 1}, "new": null}))
        );
    }
}

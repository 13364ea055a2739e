//! Deleting keys whose time is over, in bounded statements and away from the hot path.
//!
//! A key counts as unused from the moment at which it expires; deleting it only makes room. Rows that somebody holds are
//! skipped: a flush that takes keys in their own order never waits in a ring with this, which goes by time.

use posthorn_domain::limits;

use crate::database::Database;
use crate::read::DatabaseError;

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Keys of events, and uids.
    pub keys: u64,
    /// Answers of other requests.
    pub answers: u64,
}

/// Deletes one batch of each kind: at most [`limits::EXPIRE_ROWS`] rows that expired [`limits::EXPIRE_AFTER`] ago or
/// before, the oldest first. Nothing deleted of either kind means that nothing is left to do.
///
/// # Errors
/// When the database does not answer.
pub async fn expire(database: &Database) -> Result<Expired, DatabaseError> {
    let after = limits::EXPIRE_AFTER.as_secs_f64();
    let keys = sqlx::query!(
        "DELETE FROM idempotency_keys
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM idempotency_keys
                                 WHERE expires_at < now() - make_interval(secs => $1)
                                 ORDER BY expires_at
                                 LIMIT $2
                                 FOR UPDATE SKIP LOCKED))",
        after,
        limits::EXPIRE_ROWS,
    )
    .execute(database.system())
    .await?;
    let answers = sqlx::query!(
        "DELETE FROM idempotent_answers
         WHERE ctid = ANY (ARRAY(SELECT ctid FROM idempotent_answers
                                 WHERE expires_at < now() - make_interval(secs => $1)
                                 ORDER BY expires_at
                                 LIMIT $2
                                 FOR UPDATE SKIP LOCKED))",
        after,
        limits::EXPIRE_ROWS,
    )
    .execute(database.system())
    .await?;
    Ok(Expired {
        keys: keys.rows_affected(),
        answers: answers.rows_affected(),
    })
}

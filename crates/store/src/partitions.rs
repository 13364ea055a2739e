//! The leaves of `events` and `attempts`: made days ahead, so that no insert ever meets a missing one.

use chrono::{Days, NaiveDate};

use crate::database::{Database, DatabaseError};

/// Days ahead of today for which leaves are made.
pub const DAYS_AHEAD: u64 = 7;

/// Makes the leaves from yesterday to [`DAYS_AHEAD`] days from now, where they are missing. Answers how many days were made.
///
/// # Errors
/// When the database does not answer, or a reader of the parents was in the way for longer than the lock
/// timeout; it is tried again later.
pub async fn make_ahead(database: &Database) -> Result<usize, DatabaseError> {
    let today = today(database).await?;
    let first = today.checked_sub_days(Days::new(1)).unwrap_or(today);
    let mut made = 0;
    for day in first
        .iter_days()
        .take(usize::try_from(DAYS_AHEAD).unwrap_or(0) + 2)
    {
        let new = sqlx::query_scalar!(r#"SELECT posthorn_make_leaves($1) AS "made!""#, day)
            .fetch_one(database.system())
            .await?;
        made += usize::from(new);
    }
    Ok(made)
}

/// How many days from today on have leaves of both tables, without a gap: 1 is today alone.
///
/// # Errors
/// When the database does not answer.
pub async fn days_ready(database: &Database) -> Result<u64, DatabaseError> {
    let ready = sqlx::query_scalar!(
        r#"SELECT coalesce(min(ahead), 64) AS "ready!"
           FROM (SELECT ahead, (now() AT TIME ZONE 'UTC')::date + ahead AS day FROM generate_series(0, 63) AS ahead) AS days
           WHERE NOT posthorn_is_leaf('events', 'events_' || to_char(day, 'YYYYMMDD'), day)
              OR NOT posthorn_is_leaf('attempts', 'attempts_' || to_char(day, 'YYYYMMDD'), day)"#,
    )
    .fetch_one(database.system())
    .await?;
    Ok(u64::try_from(ready).unwrap_or(0))
}

async fn today(database: &Database) -> Result<NaiveDate, DatabaseError> {
    sqlx::query_scalar!(r#"SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS "today!""#)
        .fetch_one(database.system())
        .await
        .map_err(DatabaseError::from)
}

//! Old leaves: emptied, dropped, frozen. The owner's functions do it; what they lock, they ask for and soon give up.

use chrono::{DateTime, NaiveDate, Utc};

use super::Housekeeper;
use crate::database::DatabaseError;

/// The leaves of one UTC day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Which day.
    pub day: NaiveDate,
    /// Whether events are in it.
    pub filled: bool,
    /// Whether autovacuum was told to freeze it.
    pub frozen: bool,
}

impl Leaf {
    /// The first moment that is not in it.
    #[must_use]
    pub fn end(self) -> Option<DateTime<Utc>> {
        let next = self.day.succ_opt()?;
        Some(next.and_hms_opt(0, 0, 0)?.and_utc())
    }
}

/// What became of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafOutcome {
    /// Done.
    Done,
    /// There was nothing to do.
    Nothing,
    /// Somebody reads it; to be tried again.
    InUse,
}

/// SQLSTATE `lock_not_available`.
const LOCKED: &str = "55P03";

impl Housekeeper {
    /// All leaves of events, the oldest first.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn leaves(&mut self) -> Result<Vec<Leaf>, DatabaseError> {
        sqlx::query_as!(
            Leaf,
            r#"SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS "day!", pg_relation_size(c.oid) > 0 AS "filled!",
                      c.reloptions IS NOT NULL AS "frozen!"
               FROM pg_inherits AS i
               JOIN pg_class AS c ON c.oid = i.inhrelid
               WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{8}$'
               ORDER BY c.relname"#,
        )
        .fetch_all(self.connection.bounded())
        .await
        .map_err(DatabaseError::from)
    }

    /// Truncates the leaves of a day that is wholly at or below `kept_to`.
    ///
    /// # Errors
    /// When the database does not answer, or refuses because the day is not kept yet.
    pub async fn empty(&mut self, day: NaiveDate) -> Result<LeafOutcome, DatabaseError> {
        let done = sqlx::query_scalar!(r#"SELECT posthorn_empty_leaves($1) AS "done!""#, day)
            .fetch_one(self.connection.bounded())
            .await;
        outcome(done.map_err(DatabaseError::from))
    }

    /// Drops the leaves of a day that was emptied and that no pending row, dead letter or kept event is of: attempts and
    /// verdicts of those have their place in it.
    ///
    /// # Errors
    /// When the database does not answer, or refuses because the day was not emptied.
    pub async fn drop_leaves(&mut self, day: NaiveDate) -> Result<LeafOutcome, DatabaseError> {
        let done = sqlx::query_scalar!(r#"SELECT posthorn_drop_leaves($1) AS "done!""#, day)
            .fetch_one(self.connection.bounded())
            .await;
        outcome(done.map_err(DatabaseError::from))
    }

    /// Tells autovacuum to freeze the leaves of a day that is over.
    ///
    /// # Errors
    /// When the database does not answer, or refuses because the day is not over.
    pub async fn freeze(&mut self, day: NaiveDate) -> Result<LeafOutcome, DatabaseError> {
        let done = sqlx::query_scalar!(r#"SELECT posthorn_freeze_leaves($1) AS "done!""#, day)
            .fetch_one(self.connection.bounded())
            .await;
        outcome(done.map_err(DatabaseError::from))
    }
}

fn outcome(done: Result<bool, DatabaseError>) -> Result<LeafOutcome, DatabaseError> {
    match done {
        Ok(true) => Ok(LeafOutcome::Done),
        Ok(false) => Ok(LeafOutcome::Nothing),
        Err(error) if error.code() == Some(LOCKED) => Ok(LeafOutcome::InUse),
        Err(error) => Err(error),
    }
}

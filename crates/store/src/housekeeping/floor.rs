//! The floor: what is at or below it becomes pending no more, unless it is in `kept_events`.

use posthorn_domain::id::EventId;
use posthorn_domain::retention::Days;
use uuid::Uuid;

use super::{Housekeeper, close_gate};
use crate::database::DatabaseError;

/// How far retention has come. Both are the beginning of a UTC day, as an id, and never go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Nothing at or below it becomes pending unless it is in `kept_events`.
    pub floor: EventId,
    /// What lives at or below it is in `kept_events`: leaves up to here may be emptied.
    pub kept_to: EventId,
}

impl Housekeeper {
    /// How far retention has come.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn floor(&mut self) -> Result<Floor, DatabaseError> {
        let row = sqlx::query!("SELECT floor, kept_to FROM retention")
            .fetch_one(self.connection.bounded())
            .await?;
        Ok(floor(row.floor, row.kept_to))
    }

    /// Where the floor would be raised to now: the beginning of the day that lies so many days back, or of an earlier one
    /// that a stream which is not recovered still needs. A delivery above its stream's watermark may be in memory alone.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn next_floor(&mut self, days: Days) -> Result<EventId, DatabaseError> {
        let next = sqlx::query_scalar!(
            r#"SELECT GREATEST(floor, LEAST(
                   posthorn_uuid_floor(((clock_timestamp() AT TIME ZONE 'UTC')::date - $1::int)::timestamp AT TIME ZONE 'UTC'),
                   (SELECT posthorn_uuid_floor(date_trunc('day', posthorn_uuid_time(watermark) AT TIME ZONE 'UTC') AT TIME ZONE 'UTC')
                    FROM nodes WHERE state <> 'recovered' ORDER BY watermark LIMIT 1))) AS "next!"
               FROM retention"#,
            i32::from(days.get()),
        )
        .fetch_one(self.connection.bounded())
        .await?;
        Ok(EventId::from_uuid(next))
    }

    /// Raises the floor to [`Housekeeper::next_floor`]. Whatever was being made pending meanwhile has been committed when
    /// this returns, so a look taken afterwards sees it (a plain UPDATE would not wait for a lock FOR KEY SHARE).
    ///
    /// # Errors
    /// When the database does not answer, or the gate was not to be had in time; nothing was raised then.
    pub async fn raise_floor(&mut self, days: Days) -> Result<Floor, DatabaseError> {
        let next = self.next_floor(days).await?;
        let mut tx = self.connection.begin().await?;
        close_gate(&mut tx).await?;
        let row = sqlx::query!(
            "UPDATE retention SET floor = GREATEST(floor, $1) RETURNING floor, kept_to",
            next.uuid(),
        )
        .fetch_one(tx.bounded())
        .await?;
        tx.commit().await?;
        Ok(floor(row.floor, row.kept_to))
    }

    /// Notes that all that lives at or below `upto` is in `kept_events`, after a whole [`Housekeeper::keep`] that began when
    /// the floor was there already. Answers whether it was.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn kept(&mut self, upto: EventId) -> Result<bool, DatabaseError> {
        let noted = sqlx::query!(
            "UPDATE retention SET kept_to = GREATEST(kept_to, $1) WHERE floor >= $1",
            upto.uuid(),
        )
        .execute(self.connection.bounded())
        .await?;
        Ok(noted.rows_affected() == 1)
    }
}

const fn floor(floor: Uuid, kept_to: Uuid) -> Floor {
    Floor {
        floor: EventId::from_uuid(floor),
        kept_to: EventId::from_uuid(kept_to),
    }
}

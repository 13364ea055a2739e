//! Trimming what nodes coordinate by: the log of configuration changes, and streams that are long recovered.

use posthorn_domain::limits;

use super::Housekeeper;
use crate::database::DatabaseError;

impl Housekeeper {
    /// Shortens the log of configuration changes to [`limits::CONFIG_LOG_LIFE`]. Answers how many entries went.
    ///
    /// First it is said from where on the log reaches: a node or a flush that is further behind then loads everything,
    /// whether the older entries are still there or not.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn trim_config_log(&mut self) -> Result<u64, DatabaseError> {
        let upto = sqlx::query_scalar!(
            "SELECT max(seq) FROM config_log WHERE at < now() - make_interval(secs => $1)",
            limits::CONFIG_LOG_LIFE.as_secs_f64(),
        )
        .fetch_one(self.connection.bounded())
        .await?;
        let Some(upto) = upto else { return Ok(0) };
        sqlx::query!(
            "UPDATE config_head SET log_from = $1 WHERE log_from < $1",
            upto
        )
        .execute(self.connection.bounded())
        .await?;
        let mut trimmed = 0;
        loop {
            let gone = sqlx::query!(
                "DELETE FROM config_log WHERE seq IN (SELECT seq FROM config_log WHERE seq <= $1 ORDER BY seq LIMIT $2)",
                upto,
                limits::EXPIRE_ROWS,
            )
            .execute(self.connection.bounded())
            .await?
            .rows_affected();
            trimmed += gone;
            if gone == 0 {
                return Ok(trimmed);
            }
        }
    }

    /// Forgets streams that were recovered [`limits::STREAM_LIFE`] ago or before. A flush of one of them finds no fence
    /// and writes nothing, as before. Answers how many.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn forget_streams(&mut self) -> Result<u64, DatabaseError> {
        let mut tx = self.connection.begin().await?;
        let streams = sqlx::query_scalar!(
            "DELETE FROM nodes
             WHERE stream IN (SELECT stream FROM nodes
                              WHERE state = 'recovered' AND lease_until < now() - make_interval(secs => $1)
                                AND NOT EXISTS (SELECT 1 FROM shards WHERE shards.owner = nodes.stream)
                              LIMIT $2)
             RETURNING stream",
            limits::STREAM_LIFE.as_secs_f64(),
            limits::EXPIRE_ROWS,
        )
        .fetch_all(tx.bounded())
        .await?;
        sqlx::query!("DELETE FROM streams WHERE stream = ANY ($1)", &streams)
            .execute(tx.bounded())
            .await?;
        tx.commit().await?;
        Ok(u64::try_from(streams.len()).unwrap_or(u64::MAX))
    }
}

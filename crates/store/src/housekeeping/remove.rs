//! Removing: dead letters whose time is over, and kept events that nothing refers to any more.
//!
//! Found without a lock, removed in small transactions that hold the gate: a replay has either committed its pending row,
//! which is then seen and keeps both, or comes later and finds neither. Rows of dead letters that a recorder holds are
//! skipped, since it may be waiting for the gate.

use std::collections::HashSet;

use chrono::NaiveDate;
use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use posthorn_domain::retention::Days;
use uuid::Uuid;

use super::{Housekeeper, close_gate};
use crate::database::DatabaseError;

/// What a walk over kept events came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Events that were removed.
    pub events: u64,
    /// The UTC days of all that were there when the walk came by.
    pub days: HashSet<NaiveDate>,
}

impl Housekeeper {
    /// Removes dead letters that died so many days ago or before, at most [`limits::KEEP_REMOVE_ROWS`]; each leaves a verdict,
    /// so that its delivery stays dead. Those with a pending row stay. Answers how many were found, and how many of them
    /// were removed.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn remove_dead_letters(&mut self, days: Days) -> Result<(usize, u64), DatabaseError> {
        let found = sqlx::query!(
            r#"SELECT d.tenant_id AS "tenant_id!", d.endpoint_id AS "endpoint_id!", d.event_id AS "event_id!"
               FROM tenants AS t
               CROSS JOIN LATERAL (
                   SELECT d.tenant_id, d.endpoint_id, d.event_id
                   FROM dead_letters AS d
                   WHERE d.tenant_id = t.id AND d.died_at < now() - make_interval(days => $1)
                     AND NOT EXISTS (SELECT 1 FROM pending AS p
                                     WHERE p.tenant_id = d.tenant_id AND p.endpoint_id = d.endpoint_id AND p.event_id = d.event_id)
                   ORDER BY d.died_at
                   LIMIT $2
               ) AS d
               LIMIT $2"#,
            i32::from(days.get()),
            i64::try_from(limits::KEEP_REMOVE_ROWS).unwrap_or(i64::MAX),
        )
        .fetch_all(self.connection.bounded())
        .await?;
        if found.is_empty() {
            return Ok((0, 0));
        }
        let tenants: Vec<_> = found.iter().map(|row| row.tenant_id).collect();
        let endpoints: Vec<_> = found.iter().map(|row| row.endpoint_id).collect();
        let events: Vec<_> = found.iter().map(|row| row.event_id).collect();
        let mut tx = self.connection.begin().await?;
        close_gate(&mut tx).await?;
        let removed = sqlx::query!(
            "WITH over AS MATERIALIZED (
                 SELECT d.tenant_id, d.endpoint_id, d.event_id
                 FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS k (tenant_id, endpoint_id, event_id)
                 JOIN dead_letters AS d
                   ON d.tenant_id = k.tenant_id AND d.endpoint_id = k.endpoint_id AND d.event_id = k.event_id
                 WHERE d.died_at < now() - make_interval(days => $4)
                   AND NOT EXISTS (SELECT 1 FROM pending AS p
                                   WHERE p.tenant_id = d.tenant_id AND p.endpoint_id = d.endpoint_id AND p.event_id = d.event_id)
                 FOR UPDATE OF d SKIP LOCKED
             ), gone AS (
                 DELETE FROM dead_letters AS d USING over AS o
                 WHERE d.tenant_id = o.tenant_id AND d.endpoint_id = o.endpoint_id AND d.event_id = o.event_id
                 RETURNING d.tenant_id, d.endpoint_id, d.event_id, d.cause, d.replay_id
             )
             INSERT INTO attempts (tenant_id, endpoint_id, event_id, id, at, config_seq, n, duration_ms, outcome, replay_id)
             SELECT g.tenant_id, g.endpoint_id, g.event_id, (last.n + 1)::bigint << 32, now(), COALESCE(e.config_seq, 0), last.n + 1, 0,
                    'dead_' || g.cause, g.replay_id
             FROM gone AS g
             CROSS JOIN LATERAL (SELECT COALESCE(max(a.n), 0) AS n FROM attempts AS a
                                 WHERE a.tenant_id = g.tenant_id AND a.endpoint_id = g.endpoint_id AND a.event_id = g.event_id) AS last
             LEFT JOIN LATERAL (SELECT config_seq FROM endpoints
                                WHERE endpoints.tenant_id = g.tenant_id AND endpoints.id = g.endpoint_id LIMIT 1) AS e ON true",
            &tenants,
            &endpoints,
            &events,
            i32::from(days.get()),
        )
        .execute(tx.bounded())
        .await?;
        tx.commit().await?;
        Ok((found.len(), removed.rows_affected()))
    }

    /// Removes every kept event that no pending row and no dead letter refers to.
    ///
    /// # Errors
    /// When the database does not answer; what was removed stays removed.
    pub async fn remove_kept(&mut self) -> Result<Removed, DatabaseError> {
        let mut removed = Removed::default();
        let mut place = Some((Uuid::nil(), Uuid::nil()));
        while let Some((tenant, event)) = place {
            let rows = sqlx::query!(
                r#"WITH batch AS MATERIALIZED (
                       SELECT tenant_id, id, endpoints FROM kept_events
                       WHERE (tenant_id, id) > ($1, $2)
                       ORDER BY tenant_id, id
                       LIMIT $3
                   )
                   SELECT tenant_id, id,
                          NOT EXISTS (
                              SELECT 1 FROM unnest(batch.endpoints) AS x (endpoint_id)
                              WHERE EXISTS (SELECT 1 FROM pending AS p
                                            WHERE p.tenant_id = batch.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = batch.id)
                                 OR EXISTS (SELECT 1 FROM dead_letters AS d
                                            WHERE d.tenant_id = batch.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = batch.id)
                          ) AS "loose!"
                   FROM batch
                   ORDER BY tenant_id, id"#,
                tenant,
                event,
                limits::KEEP_WALK_ROWS,
            )
            .fetch_all(self.connection.bounded())
            .await?;
            place = rows.last().map(|row| (row.tenant_id, row.id));
            let day = |id| EventId::from_uuid(id).minted_at().date_naive();
            removed.days.extend(rows.iter().map(|row| day(row.id)));
            let loose: Vec<_> = rows
                .iter()
                .filter(|row| row.loose)
                .map(|row| (row.tenant_id, row.id))
                .collect();
            for chunk in loose.chunks(limits::KEEP_REMOVE_ROWS) {
                removed.events += self.remove_loose(chunk).await?;
            }
        }
        Ok(removed)
    }

    async fn remove_loose(&mut self, keys: &[(Uuid, Uuid)]) -> Result<u64, DatabaseError> {
        let (tenants, events): (Vec<_>, Vec<_>) = keys.iter().copied().unzip();
        let mut tx = self.connection.begin().await?;
        close_gate(&mut tx).await?;
        // Looked at once more, now that nothing is being made pending.
        let removed = sqlx::query!(
            "DELETE FROM kept_events AS k
             USING unnest($1::uuid[], $2::uuid[]) AS v (tenant_id, id)
             WHERE k.tenant_id = v.tenant_id AND k.id = v.id
               AND NOT EXISTS (
                   SELECT 1 FROM unnest(k.endpoints) AS x (endpoint_id)
                   WHERE EXISTS (SELECT 1 FROM pending AS p
                                 WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = k.id)
                      OR EXISTS (SELECT 1 FROM dead_letters AS d
                                 WHERE d.tenant_id = k.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = k.id))",
            &tenants,
            &events,
        )
        .execute(tx.bounded())
        .await?;
        tx.commit().await?;
        Ok(removed.rows_affected())
    }
}

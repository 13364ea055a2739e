//! Keeping: events that still live when their leaf goes are copied to `kept_events`.
//!
//! Found by walking over `pending`, then over `dead_letters`, by key. A delivery that moves between the two while this goes
//! on is met in one of them: from `pending` it only moves to `dead_letters`, in one statement, and a dead letter stays
//! while it is replayed.

use std::collections::HashSet;

use chrono::NaiveDate;
use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use uuid::Uuid;

use super::Housekeeper;
use crate::database::DatabaseError;

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Events that were copied.
    pub copied: u64,
    /// The UTC days of events at or below the bound that something refers to.
    pub days: HashSet<NaiveDate>,
}

struct Row {
    tenant_id: Uuid,
    endpoint_id: Uuid,
    event_id: Uuid,
    old: bool,
    lacking: bool,
}

/// The key behind which a walk goes on.
type Place = (Uuid, Uuid, Uuid);

#[derive(Clone, Copy)]
enum Walk {
    Pending,
    DeadLetters,
}

impl Housekeeper {
    /// Copies every event at or below `upto` that has a pending row or a dead letter and is not copied yet. The copy lists
    /// those of its endpoints alone whose deliveries live: of the others nothing is known any more once the leaf is empty.
    ///
    /// # Errors
    /// When the database does not answer; what was copied stays.
    pub async fn keep(&mut self, upto: EventId) -> Result<Kept, DatabaseError> {
        let mut kept = Kept::default();
        for walk in [Walk::Pending, Walk::DeadLetters] {
            let mut place = Some((Uuid::nil(), Uuid::nil(), Uuid::nil()));
            while let Some(from) = place {
                let rows = self.walk(walk, from, upto).await?;
                place = rows
                    .iter()
                    .map(|row| (row.tenant_id, row.endpoint_id, row.event_id))
                    .max();
                kept.days
                    .extend(rows.iter().filter(|row| row.old).map(Row::day));
                let lacking: Vec<_> = rows.iter().filter(|row| row.lacking).collect();
                for chunk in lacking.chunks(limits::KEEP_COPY_EVENTS) {
                    kept.copied += self.copy(chunk).await?;
                }
            }
        }
        Ok(kept)
    }

    /// The old rows among the next of a table, and the last of those, whatever its age.
    async fn walk(
        &mut self,
        walk: Walk,
        from: Place,
        upto: EventId,
    ) -> Result<Vec<Row>, DatabaseError> {
        macro_rules! walk {
            ($table:tt) => {
                sqlx::query_as!(
                    Row,
                    "WITH batch AS MATERIALIZED (
                         SELECT tenant_id, endpoint_id, event_id FROM "
                        + $table
                        + "
                         WHERE (tenant_id, endpoint_id, event_id) > ($1, $2, $3)
                         ORDER BY tenant_id, endpoint_id, event_id
                         LIMIT $5
                     ), last AS (
                         SELECT tenant_id, endpoint_id, event_id FROM batch
                         ORDER BY tenant_id DESC, endpoint_id DESC, event_id DESC
                         LIMIT 1
                     )
                     SELECT tenant_id AS \"tenant_id!\", endpoint_id AS \"endpoint_id!\", event_id AS \"event_id!\", true AS \"old!\",
                            NOT EXISTS (SELECT 1 FROM kept_events AS k
                                        WHERE k.tenant_id = batch.tenant_id AND k.id = batch.event_id
                                          AND batch.endpoint_id = ANY (k.endpoints)) AS \"lacking!\"
                     FROM batch WHERE event_id <= $4
                     UNION ALL
                     SELECT tenant_id, endpoint_id, event_id, event_id <= $4, false FROM last",
                    from.0,
                    from.1,
                    from.2,
                    upto.uuid(),
                    limits::KEEP_WALK_ROWS,
                )
                .fetch_all(self.connection.bounded())
                .await
            };
        }
        let rows = match walk {
            Walk::Pending => walk!("pending"),
            Walk::DeadLetters => walk!("dead_letters"),
        };
        Ok(rows?)
    }

    async fn copy(&mut self, rows: &[&Row]) -> Result<u64, DatabaseError> {
        let tenants: Vec<_> = rows.iter().map(|row| row.tenant_id).collect();
        let endpoints: Vec<_> = rows.iter().map(|row| row.endpoint_id).collect();
        let events: Vec<_> = rows.iter().map(|row| row.event_id).collect();
        let copied = sqlx::query!(
            "WITH wanted AS MATERIALIZED (
                 SELECT tenant_id, id, array_agg(endpoint_id) AS endpoints
                 FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS w (tenant_id, endpoint_id, id)
                 GROUP BY tenant_id, id
             )
             INSERT INTO kept_events AS k (tenant_id, id, stream, application_id, type, uid, occurred_at, endpoints, content_type,
                                           codec, size, payload, metadata, headers)
             SELECT e.tenant_id, e.id, e.stream, e.application_id, e.type, e.uid, e.occurred_at, lives.endpoints, e.content_type,
                    e.codec, e.size, e.payload, e.metadata, e.headers
             FROM wanted AS w
             CROSS JOIN LATERAL (SELECT * FROM events WHERE events.tenant_id = w.tenant_id AND events.id = w.id LIMIT 1) AS e
             -- What was asked for, whether or not the event lists it, and what else of the event lives.
             CROSS JOIN LATERAL (
                 SELECT array_agg(DISTINCT x.endpoint_id) AS endpoints
                 FROM unnest(e.endpoints || w.endpoints) AS x (endpoint_id)
                 WHERE x.endpoint_id = ANY (w.endpoints)
                    OR EXISTS (SELECT 1 FROM pending AS p
                               WHERE p.tenant_id = w.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = w.id)
                    OR EXISTS (SELECT 1 FROM dead_letters AS d
                               WHERE d.tenant_id = w.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = w.id)
             ) AS lives
             ON CONFLICT (tenant_id, id) DO UPDATE SET endpoints = excluded.endpoints",
            &tenants,
            &endpoints,
            &events,
        )
        .execute(self.connection.bounded())
        .await?;
        Ok(copied.rows_affected())
    }
}

impl Row {
    fn day(&self) -> NaiveDate {
        EventId::from_uuid(self.event_id).minted_at().date_naive()
    }
}

//! What an operator wants to be woken for, asked of the database in one cheap statement: no table is read whole.

use chrono::{DateTime, Utc};

use crate::database::{Database, DatabaseError};

/// How the database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The oldest transaction that some snapshot, replication slot or prepared transaction still sees from, and for whose
    /// sake dead rows stay: it goes up as time goes by, unless something pins it. `None`: nothing does.
    pub pinned: Option<i64>,
    /// How many transactions have begun since that one.
    pub pinned_age: i64,
    /// Rows of `pending`, as PostgreSQL counts them for itself.
    pub pending: i64,
    /// Dead rows of `pending` that were not cleaned up yet.
    pub pending_dead: i64,
    /// The earliest row of `pending` that is due; `None`: none is.
    pub oldest_due: Option<DateTime<Utc>>,
    /// Whole days after today for which there are leaves.
    pub leaves_ahead: i64,
    /// When housekeeping last finished a round.
    pub housekept_at: DateTime<Utc>,
    /// The beginning of the oldest UTC day whose events are in the log.
    pub oldest_leaf: Option<DateTime<Utc>>,
    /// The database's time.
    pub now: DateTime<Utc>,
}

/// Looks once.
///
/// # Errors
/// When the database does not answer.
pub async fn standing(database: &Database) -> Result<Standing, DatabaseError> {
    let row = sqlx::query!(
        r#"SELECT pins.xmin::text::bigint AS "pinned?", coalesce(age(pins.xmin), 0)::bigint AS "pinned_age!",
                  pg_stat_get_live_tuples('pending'::regclass) AS "pending!",
                  pg_stat_get_dead_tuples('pending'::regclass) AS "pending_dead!",
                  -- One probe of the index a shard.
                  (SELECT min(first.due)
                   FROM generate_series(0, 255) AS s (shard)
                   CROSS JOIN LATERAL (SELECT p.due FROM pending AS p
                                       WHERE p.shard = s.shard AND p.due <= now() ORDER BY p.due LIMIT 1) AS first) AS "oldest_due?",
                  (SELECT coalesce(min(ahead), 31) - 1
                   FROM (SELECT ahead, (now() AT TIME ZONE 'UTC')::date + ahead AS day FROM generate_series(0, 30) AS ahead) AS days
                   WHERE NOT posthorn_is_leaf('events', 'events_' || to_char(day, 'YYYYMMDD'), day)
                      OR NOT posthorn_is_leaf('attempts', 'attempts_' || to_char(day, 'YYYYMMDD'), day))::bigint AS "leaves_ahead!",
                  (SELECT finished_at FROM housekeeping) AS "housekept_at!",
                  (SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))
                   FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                   WHERE i.inhparent = 'events'::regclass AND c.relname ~ '^events_[0-9]{8}$'
                     AND pg_relation_size(c.oid) > 0)::timestamp AT TIME ZONE 'UTC' AS "oldest_leaf?",
                  clock_timestamp() AS "now!"
           FROM (SELECT 1) AS one
           LEFT JOIN LATERAL (
               SELECT held.xmin
               FROM (SELECT backend_xmin AS xmin FROM pg_stat_activity
                     -- Sessions of people and programs, of this database or, such as a standby's, of none: an autovacuum pins nothing.
                     WHERE pid <> pg_backend_pid() AND usesysid IS NOT NULL AND (datname = current_database() OR datname IS NULL)
                     UNION ALL SELECT xmin FROM pg_replication_slots
                     UNION ALL SELECT catalog_xmin FROM pg_replication_slots
                     UNION ALL SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) AS held
               WHERE held.xmin IS NOT NULL
               ORDER BY age(held.xmin) DESC
               LIMIT 1
           ) AS pins ON true"#,
    )
    .fetch_one(database.scans())
    .await?;
    Ok(Standing {
        pinned: row.pinned,
        pinned_age: row.pinned_age,
        pending: row.pending,
        pending_dead: row.pending_dead,
        oldest_due: row.oldest_due,
        leaves_ahead: row.leaves_ahead,
        housekept_at: row.housekept_at,
        oldest_leaf: row.oldest_leaf,
        now: row.now,
    })
}

//! Recovery: what a closed stream left open goes to `pending`.
//!
//! Recovery sends nothing and holds nothing in memory; any node takes up a closed stream that is not
//! recovered, and two may do so at once. It reads only ids above the stream's watermark, by BRIN, in windows
//! of time that are as long as they may be for what they hold; each delivery is probed by key, so that no plan ever reads
//! `attempts` whole.
//!
//! The watermark of the closed stream rises with each window, in the statement that writes what the window holds: at and below
//! it everything is resolved or pending, as in a stream that is open (INV-2). So a recovery that ends half way has not been for
//! nothing: whoever takes the stream up next begins there.

mod width;

use chrono::{DateTime, Utc};
use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use uuid::Uuid;

use self::width::{Seen, Width};
use crate::database::{BoundedConnection, Database, DatabaseError};

/// Writes what is open of a closed stream into `pending`, then marks it recovered. Answers the rows written.
///
/// # Errors
/// When the database does not answer; the stream stays closed and is taken up again, where this stopped.
pub async fn recover(database: &Database, stream: i64) -> Result<u64, DatabaseError> {
    let Some(mut recoverer) = Recoverer::begin(database, stream).await? else {
        return Ok(0);
    };
    let mut written = 0;
    while let Some(rows) = recoverer.step().await? {
        written += rows;
    }
    Ok(written)
}

/// A recovery under way, over one connection that nothing else uses.
pub struct Recoverer {
    connection: BoundedConnection,
    stream: i64,
    /// Everything at or below it is resolved or pending.
    watermark: EventId,
    width: Width,
    /// An id is minted under a live lease, so that windows need go no further.
    end: DateTime<Utc>,
    left: Left,
}

/// What is left to do.
#[derive(Clone, Copy)]
enum Left {
    /// Windows from there on.
    From(DateTime<Utc>),
    /// What is newer than the stream's last lease.
    Beyond,
    Nothing,
}

impl Recoverer {
    /// Takes up a stream; `None` when it is not closed, or recovered by now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn begin(database: &Database, stream: i64) -> Result<Option<Self>, DatabaseError> {
        let mut connection = database.dedicated_bounded().await?;
        let found = sqlx::query!(
            r#"SELECT watermark, lease_until, now() AS "now!" FROM nodes WHERE stream = $1 AND state = 'closed'"#,
            stream,
        )
        .fetch_optional(connection.bounded())
        .await?;
        Ok(found.map(|found| {
            let watermark = EventId::from_uuid(found.watermark);
            Self {
                connection,
                stream,
                watermark,
                width: Width::FIRST,
                end: (found.lease_until + limits::LEASE_TTL).min(found.now),
                left: Left::From(watermark.minted_at()),
            }
        }))
    }

    /// One window, or a look at one that holds too much. Answers the rows written; `None` when the stream is recovered.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn step(&mut self) -> Result<Option<u64>, DatabaseError> {
        let at = match self.left {
            Left::From(at) if at <= self.end => at + self.width.span(),
            Left::From(_) | Left::Beyond => return self.finish().await.map(Some),
            Left::Nothing => return Ok(None),
        };
        let to = EventId::floor_at(at);
        let seen = self.look(to).await?;
        if let Some(narrower) = self.width.narrower(seen) {
            self.width = narrower;
            return Ok(Some(0));
        }
        let written = if seen.is_nothing() {
            self.pass(to).await?;
            0
        } else {
            self.window(to).await?
        };
        self.watermark = to;
        self.width = self.width.next(seen);
        self.left = Left::From(at);
        Ok(Some(written))
    }

    /// Unless the database's clock was set back meanwhile there is nothing beyond the last lease: ids never go back with it. What
    /// kept later flushes out is the fence and not the clock, so everything above belongs to this, too; few events are that new.
    async fn finish(&mut self) -> Result<u64, DatabaseError> {
        self.left = Left::Beyond;
        let written = self.window(EventId::from_uuid(Uuid::max())).await?;
        self.mark().await?;
        self.left = Left::Nothing;
        Ok(written)
    }

    /// What the window up to `to` holds.
    async fn look(&mut self, to: EventId) -> Result<Seen, DatabaseError> {
        sqlx::query_as!(
            Seen,
            r#"SELECT count(*) AS "events!", coalesce(sum(deliveries), 0) AS "deliveries!"
               FROM (SELECT CASE WHEN stream = $1 THEN cardinality(endpoints) ELSE 0 END AS deliveries
                     FROM events
                     WHERE id > $2 AND id <= $3
                     LIMIT $4) AS seen"#,
            self.stream,
            self.watermark.uuid(),
            to.uuid(),
            limits::RECOVER_EVENTS + 1,
        )
        .fetch_one(self.connection.bounded())
        .await
        .map_err(DatabaseError::from)
    }

    /// There is nothing to be done up to `to`.
    async fn pass(&mut self, to: EventId) -> Result<(), DatabaseError> {
        sqlx::query!(
            "UPDATE nodes SET watermark = GREATEST(watermark, $2) WHERE stream = $1 AND state = 'closed'",
            self.stream,
            to.uuid(),
        )
        .execute(self.connection.bounded())
        .await?;
        Ok(())
    }

    /// The deliveries of events above the watermark, up to `to`, that nothing has resolved; and the watermark is there.
    async fn window(&mut self, to: EventId) -> Result<u64, DatabaseError> {
        let written = sqlx::query!(
            "WITH gate AS MATERIALIZED (
                 SELECT floor FROM retention, pg_advisory_xact_lock_shared(hashtext('posthorn_gate')) FOR KEY SHARE OF retention
             ), passed AS (
                 UPDATE nodes SET watermark = GREATEST(watermark, $3) WHERE stream = $1 AND state = 'closed'
             )
             INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
             SELECT e.tenant_id, x.endpoint_id, e.id, get_byte(uuid_send(x.endpoint_id), 15), now(),
                    COALESCE(made.n, 0) + 1, COALESCE(made.n, 0), 1,
                    posthorn_uuid_time(e.id) + make_interval(secs => endpoint.max_age_s), 'recovered'
             FROM gate
             CROSS JOIN events AS e
             CROSS JOIN LATERAL unnest(e.endpoints) AS x (endpoint_id)
             JOIN LATERAL (SELECT max_age_s FROM endpoints
                           WHERE endpoints.tenant_id = e.tenant_id AND endpoints.id = x.endpoint_id AND deleted_at IS NULL
                           LIMIT 1) AS endpoint ON true
             LEFT JOIN LATERAL (SELECT 1 AS ended FROM attempts AS a
                                WHERE a.tenant_id = e.tenant_id AND a.endpoint_id = x.endpoint_id AND a.event_id = e.id
                                  AND a.outcome <> 'failed' LIMIT 1) AS ended ON true
             LEFT JOIN LATERAL (SELECT a.n FROM attempts AS a
                                WHERE a.tenant_id = e.tenant_id AND a.endpoint_id = x.endpoint_id AND a.event_id = e.id
                                ORDER BY a.id DESC LIMIT 1) AS made ON true
             LEFT JOIN LATERAL (SELECT 1 AS waits FROM pending AS p
                                WHERE p.tenant_id = e.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = e.id
                                LIMIT 1) AS waits ON true
             LEFT JOIN LATERAL (SELECT 1 AS dead FROM dead_letters AS d
                                WHERE d.tenant_id = e.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = e.id
                                LIMIT 1) AS dead ON true
             WHERE e.id > $2 AND e.id <= $3 AND e.stream = $1
               AND ended.ended IS NULL AND waits.waits IS NULL AND dead.dead IS NULL
               -- The floor stays below the watermark of a stream that is not recovered: this only holds it there meanwhile.
               AND e.id > gate.floor
             ON CONFLICT DO NOTHING",
            self.stream,
            self.watermark.uuid(),
            to.uuid(),
        )
        .execute(self.connection.bounded())
        .await?;
        Ok(written.rows_affected())
    }

    async fn mark(&mut self) -> Result<(), DatabaseError> {
        let mut tx = self.connection.begin().await?;
        sqlx::query!(
            "UPDATE nodes SET state = 'recovered' WHERE stream = $1 AND state = 'closed'",
            self.stream
        )
        .execute(tx.bounded())
        .await?;
        sqlx::query!(
            "UPDATE shards SET owner = NULL WHERE owner = $1",
            self.stream
        )
        .execute(tx.bounded())
        .await?;
        Ok(tx.commit().await?)
    }
}

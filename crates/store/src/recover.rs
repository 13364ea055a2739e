//! Recovery: what a closed stream left open goes to `pending`.
//!
//! Recovery sends nothing and holds nothing in memory; any node takes up a closed stream that is not
//! recovered, and two may do so at once. It reads only ids above the stream's watermark, by BRIN, in windows
//! of time; each delivery is probed by key, so that no plan ever reads `attempts` whole.

use chrono::TimeDelta;
use posthorn_domain::id::EventId;
use posthorn_domain::limits;
use uuid::Uuid;

use crate::database::Database;

/// The width of a window, in seconds: at full speed a few tens of thousands of events.
const WINDOW_S: i64 = 1;

/// Writes what is open of a closed stream into `pending`, then marks it recovered. Answers the rows written.
///
/// # Errors
/// When the database does not answer; the stream stays closed and is taken up again.
pub async fn recover(database: &Database, stream: i64) -> Result<u64, sqlx::Error> {
    let found = sqlx::query!(
        r#"SELECT watermark, lease_until, now() AS "now!" FROM nodes WHERE stream = $1 AND state = 'closed'"#,
        stream,
    )
    .fetch_optional(database.system())
    .await?;
    let Some(found) = found else { return Ok(0) };
    let watermark = EventId::from_uuid(found.watermark);
    // An id is minted under a live lease, so that windows need go no further.
    let end = (found.lease_until + limits::LEASE_TTL).min(found.now);
    let mut written = 0;
    let mut from = watermark;
    let mut at = watermark.minted_at();
    while at <= end {
        at += TimeDelta::seconds(WINDOW_S);
        let to = EventId::floor_at(at);
        written += window(database, stream, from, to).await?;
        from = to;
    }
    // Unless the database's clock was set back meanwhile: ids never go back with it. What kept later flushes out is
    // the fence and not the clock, so everything above belongs to this, too; few events are that new.
    written += window(database, stream, from, EventId::from_uuid(Uuid::max())).await?;
    mark(database, stream).await?;
    Ok(written)
}

/// The deliveries of events above `from`, up to `to`, that nothing has resolved.
async fn window(
    database: &Database,
    stream: i64,
    from: EventId,
    to: EventId,
) -> Result<u64, sqlx::Error> {
    let written = sqlx::query!(
        "WITH gate AS MATERIALIZED (
             SELECT floor FROM retention FOR KEY SHARE
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
        stream,
        from.uuid(),
        to.uuid(),
    )
    .execute(database.system())
    .await?;
    Ok(written.rows_affected())
}

async fn mark(database: &Database, stream: i64) -> Result<(), sqlx::Error> {
    let mut tx = database.system().begin().await?;
    sqlx::query!(
        "UPDATE nodes SET state = 'recovered' WHERE stream = $1 AND state = 'closed'",
        stream
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("UPDATE shards SET owner = NULL WHERE owner = $1", stream)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

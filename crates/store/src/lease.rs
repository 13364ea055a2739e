//! Leases of streams.
//!
//! Leases only save work (INV-6): what keeps a stale node from harm is the fence inside each flush and
//! the compare-and-set of each record, not the clock. They have a connection of their own: a node that is busy does not
//! lose its lease for want of one.

use chrono::{DateTime, Utc};
use posthorn_domain::id::{EventId, NodeId};
use posthorn_domain::limits;
use sqlx::{Postgres, Transaction};

use crate::database::{Database, DatabaseError};
use crate::stream::Sending;

/// The lane of small events. Each lane has a row of `streams` as its fence.
pub(crate) const SMALL: i16 = 0;
/// The lane of large events.
pub(crate) const LARGE: i16 = 1;

/// What a renewal found.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// Whether the stream is still open: false means that another node closed it.
    pub open: bool,
    /// The database's time.
    pub now: DateTime<Utc>,
    /// Streams of other nodes whose lease has lapsed.
    pub lapsed: Vec<i64>,
}

/// The database's time.
///
/// # Errors
/// When the database does not answer.
pub async fn database_time(database: &Database) -> Result<DateTime<Utc>, DatabaseError> {
    sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
        .fetch_one(database.lease())
        .await
        .map_err(DatabaseError::from)
}

/// Opens a stream with its first lease and watermark, and tells which master keys its node has, the one that seals first.
///
/// # Errors
/// When the database does not answer.
pub async fn open(
    database: &Database,
    stream: i64,
    node: NodeId,
    name: &str,
    watermark: EventId,
    sending: Sending,
    master_keys: &[String],
) -> Result<(), DatabaseError> {
    let mut tx = database.lease_tx().await?;
    sqlx::query!(
        "INSERT INTO nodes (stream, node, name, state, lease_until, watermark, sends, master_keys)
         VALUES ($1, $2, $3, 'open', clock_timestamp() + make_interval(secs => $4), $5, $6, $7)",
        stream,
        node.uuid(),
        name,
        limits::LEASE_TTL.as_secs_f64(),
        watermark.uuid(),
        sending == Sending::Here,
        master_keys,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "INSERT INTO streams (stream, lane, state) SELECT $1, lane, 'open' FROM unnest($2::smallint[]) AS lanes (lane)",
        stream,
        &[SMALL, LARGE][..],
    )
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}

/// Renews a stream's lease and raises its watermark. A lapsed lease may still be renewed; a closed stream may not.
///
/// # Errors
/// When the database does not answer.
pub async fn renew(
    database: &Database,
    stream: i64,
    watermark: EventId,
    sending: Sending,
) -> Result<Renewal, DatabaseError> {
    sqlx::query_as!(
        Renewal,
        r#"WITH mine AS (
               UPDATE nodes
               SET lease_until = clock_timestamp() + make_interval(secs => $2), watermark = GREATEST(watermark, $3),
                   sends = $4
               WHERE stream = $1 AND state = 'open'
               RETURNING 1
           )
           SELECT EXISTS (SELECT 1 FROM mine) AS "open!",
                  clock_timestamp() AS "now!",
                  ARRAY(SELECT stream FROM nodes
                        WHERE state = 'open' AND lease_until < clock_timestamp() AND stream <> $1) AS "lapsed!""#,
        stream,
        limits::LEASE_TTL.as_secs_f64(),
        watermark.uuid(),
        sending == Sending::Here,
    )
    .fetch_one(database.lease())
    .await
    .map_err(DatabaseError::from)
}

/// Closes a stream whose lease has lapsed: afterwards no flush of it is under way and none can commit.
/// Answers whether this call closed it.
///
/// # Errors
/// When the database does not answer, or a flush held the fence for longer than the lock timeout; tried
/// again at the next renewal.
pub async fn close_lapsed(database: &Database, stream: i64) -> Result<bool, DatabaseError> {
    let mut tx = database.lease_tx().await?;
    give_way(&mut tx).await?;
    let closed = sqlx::query!(
        "UPDATE nodes SET state = 'closed' WHERE stream = $1 AND state = 'open' AND lease_until < clock_timestamp()",
        stream,
    )
    .execute(&mut *tx)
    .await?;
    if closed.rows_affected() == 0 {
        return Ok(false);
    }
    // A flush holds this row FOR KEY SHARE until it has committed.
    sqlx::query!(
        "SELECT 1 AS one FROM streams WHERE stream = $1 FOR UPDATE",
        stream
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!(
        "UPDATE streams SET state = 'closed' WHERE stream = $1",
        stream
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(true)
}

/// What is asked for beside a renewal must not keep the next one waiting: a lock that another holds is left to it.
pub(crate) async fn give_way(tx: &mut Transaction<'_, Postgres>) -> Result<(), DatabaseError> {
    sqlx::query!(
        "SELECT set_config('lock_timeout', $1, true) AS wait",
        format!("{}ms", limits::SHARING_LOCK_WAIT.as_millis()),
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(())
}

/// Closes this node's own stream in an orderly way: as recovered when nothing is open, else to be adopted.
///
/// # Errors
/// When the database does not answer.
pub async fn leave(
    database: &Database,
    stream: i64,
    watermark: EventId,
    nothing_open: bool,
) -> Result<(), DatabaseError> {
    let state = if nothing_open { "recovered" } else { "closed" };
    let mut tx = database.lease_tx().await?;
    // First the node's row, then its lanes', as whoever closes a lapsed stream does.
    sqlx::query!(
        "UPDATE nodes SET state = $2, watermark = GREATEST(watermark, $3) WHERE stream = $1 AND state = 'open'",
        stream,
        state,
        watermark.uuid(),
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "SELECT 1 AS one FROM streams WHERE stream = $1 FOR UPDATE",
        stream
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!(
        "UPDATE streams SET state = 'closed' WHERE stream = $1",
        stream
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!("UPDATE shards SET owner = NULL WHERE owner = $1", stream)
        .execute(&mut *tx)
        .await?;
    Ok(tx.commit().await?)
}

/// Streams that are closed and not recovered yet.
///
/// # Errors
/// When the database does not answer.
pub async fn to_recover(database: &Database) -> Result<Vec<i64>, DatabaseError> {
    sqlx::query_scalar!("SELECT stream FROM nodes WHERE state = 'closed' ORDER BY stream")
        .fetch_all(database.system())
        .await
        .map_err(DatabaseError::from)
}

//! The oracle: deliveries that were promised and are nowhere (INV-2).
//!
//! A delivery at or below its stream's watermark that nothing has resolved is a bug. `posthorn doctor` asks
//! this, and so does every kill test. Each delivery is probed by key, as in recovery: fresh tables have no
//! statistics, and a join planned without them reads `attempts` once for every delivery.

use posthorn_domain::id::{DeliveryId, EndpointId, EventId};

use crate::database::{Database, DatabaseError};

/// Deliveries at or below the watermark of their stream (or of a recovered stream, or one that housekeeping has forgotten
/// since, wherever they stand) without a success, verdict, pending row, dead letter or deleted endpoint. At most `limit`;
/// empty is right. What retention has removed is not asked for: events and attempts go in one step, and `kept_events`
/// are there for the sake of what is pending or dead.
///
/// # Errors
/// When the database does not answer.
pub async fn lost(database: &Database, limit: i64) -> Result<Vec<DeliveryId>, DatabaseError> {
    let mut tx = database.system_tx().await?;
    // Asked by hand, of however large a log.
    sqlx::query!("SET LOCAL statement_timeout = '10min'")
        .execute(&mut *tx)
        .await?;
    let rows = sqlx::query!(
        r#"SELECT e.id, x.endpoint_id AS "endpoint_id!"
           FROM events AS e
           LEFT JOIN LATERAL (SELECT state, watermark FROM nodes WHERE nodes.stream = e.stream LIMIT 1) AS node ON true
           CROSS JOIN LATERAL unnest(e.endpoints) AS x (endpoint_id)
           LEFT JOIN LATERAL (SELECT 1 AS ended FROM attempts AS a
                              WHERE a.tenant_id = e.tenant_id AND a.endpoint_id = x.endpoint_id AND a.event_id = e.id
                                AND a.outcome <> 'failed' LIMIT 1) AS ended ON true
           LEFT JOIN LATERAL (SELECT 1 AS waits FROM pending AS p
                              WHERE p.tenant_id = e.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = e.id
                              LIMIT 1) AS waits ON true
           LEFT JOIN LATERAL (SELECT 1 AS dead FROM dead_letters AS d
                              WHERE d.tenant_id = e.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = e.id
                              LIMIT 1) AS dead ON true
           LEFT JOIN LATERAL (SELECT 1 AS deleted FROM endpoints
                              WHERE endpoints.tenant_id = e.tenant_id AND endpoints.id = x.endpoint_id
                                AND endpoints.deleted_at IS NOT NULL LIMIT 1) AS deleted ON true
           WHERE (node.state IS NULL OR node.state = 'recovered' OR e.id <= node.watermark)
             AND ended.ended IS NULL AND waits.waits IS NULL AND dead.dead IS NULL AND deleted.deleted IS NULL
           LIMIT $1"#,
        limit,
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.rollback().await?;
    Ok(rows
        .into_iter()
        .map(|row| DeliveryId {
            event: EventId::from_uuid(row.id),
            endpoint: EndpointId::from_uuid(row.endpoint_id),
        })
        .collect())
}

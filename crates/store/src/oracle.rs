//! The oracle: deliveries that were promised and are nowhere (INV-2).
//!
//! A delivery at or below its stream's watermark that nothing has resolved is a bug. `posthorn doctor` asks
//! this, and so does every kill test.

use posthorn_domain::id::{DeliveryId, EndpointId, EventId};

use crate::database::Database;

/// Deliveries at or below the watermark of their stream (or of a recovered stream, wherever they stand) without
/// a success, verdict, pending row, dead letter or deleted endpoint. At most `limit`; empty is right.
///
/// # Errors
/// When the database does not answer.
pub async fn lost(database: &Database, limit: i64) -> Result<Vec<DeliveryId>, sqlx::Error> {
    let rows = sqlx::query!(
        r#"SELECT e.id, x.endpoint_id AS "endpoint_id!"
           FROM nodes
           JOIN events AS e ON e.stream = nodes.stream AND (e.id <= nodes.watermark OR nodes.state = 'recovered')
           CROSS JOIN LATERAL unnest(e.endpoints) AS x (endpoint_id)
           WHERE NOT EXISTS (SELECT 1 FROM attempts AS a
                             WHERE a.tenant_id = e.tenant_id AND a.endpoint_id = x.endpoint_id AND a.event_id = e.id
                               AND a.outcome <> 'failed')
             AND NOT EXISTS (SELECT 1 FROM pending AS p
                             WHERE p.tenant_id = e.tenant_id AND p.endpoint_id = x.endpoint_id AND p.event_id = e.id)
             AND NOT EXISTS (SELECT 1 FROM dead_letters AS d
                             WHERE d.tenant_id = e.tenant_id AND d.endpoint_id = x.endpoint_id AND d.event_id = e.id)
             AND NOT EXISTS (SELECT 1 FROM endpoints
                             WHERE endpoints.tenant_id = e.tenant_id AND endpoints.id = x.endpoint_id
                               AND endpoints.deleted_at IS NOT NULL)
           LIMIT $1"#,
        limit,
    )
    .fetch_all(database.system())
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| DeliveryId {
            event: EventId::from_uuid(row.id),
            endpoint: EndpointId::from_uuid(row.endpoint_id),
        })
        .collect())
}

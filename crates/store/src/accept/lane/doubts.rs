//! Rows that were in a flush whose outcome is unknown.

use std::collections::HashMap;
use std::sync::Arc;

use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use uuid::Uuid;

use super::Lane;
use crate::accept::flush::{self, Row};
use crate::accept::handover;
use crate::database::{DatabaseError, answered};
use crate::stream::Stream;

impl Lane {
    /// Reads the rows that may have been written before. In the log: their stored endpoints hold and they
    /// are delivered, whether or not the caller still waits; with the stream closed, that is recovery's part.
    pub(super) async fn settle_doubts(
        &mut self,
        rows: Vec<Row>,
        open: bool,
        stream: &Arc<Stream>,
    ) -> Vec<Row> {
        let (doubtful, mut left): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.doubtful);
        if doubtful.is_empty() {
            return left;
        }
        let Ok(mut stored) = self.look_up(&doubtful).await else {
            self.connection = None;
            left.extend(doubtful);
            return left;
        };
        for row in doubtful {
            match stored.remove(&row.id.uuid()) {
                Some(endpoints) if open => {
                    // The flush that wrote it may have been matched against another configuration than the last one sent, so
                    // what that handed over need not be what is in `pending`.
                    let deliveries = endpoints.len();
                    let parted = handover::part(&row, endpoints);
                    self.durable(row, deliveries, parted, stream).await;
                }
                Some(endpoints) => self.confirm(row, endpoints.len()),
                None => left.push(row),
            }
        }
        left
    }

    async fn look_up(
        &mut self,
        rows: &[Row],
    ) -> Result<HashMap<Uuid, Vec<EndpointId>>, DatabaseError> {
        match self.connection.as_mut() {
            Some(connection) => answered(limits::STEP, flush::stored(connection, rows)).await,
            None => Err(DatabaseError::no_connection()),
        }
    }
}

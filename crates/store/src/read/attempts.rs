//! Attempts: the requests that were made. Verdicts, which end a delivery without a request, are not among them.

use chrono::{DateTime, Utc};
use posthorn_domain::id::{AttemptId, DeliveryId, EndpointId, EventId};
use uuid::Uuid;

use super::DatabaseError;
use super::page::{Page, PageKey, Slice};
use crate::configuration::EndpointEntry;
use crate::database::{Database, TenantTransaction};
use crate::record::{self, DeliveryKey};
use crate::scope::TenantScope;

/// An attempt as its delivery shows it.
#[derive(Clone, Debug)]
pub struct AttemptSummary {
    /// Its id.
    pub id: AttemptId,
    /// Why it was made: `schedule`, `replay`, `test` or `probe`.
    pub trigger: String,
    /// When the request was sent.
    pub sent_at: DateTime<Utc>,
    /// `success` or `failed`.
    pub outcome: String,
    /// The status that was answered.
    pub status: Option<u16>,
    /// The kind of error, where there was no answer or not the right one.
    pub error_kind: Option<String>,
    /// The error in words.
    pub error_detail: Option<String>,
    /// From sending to the end of the answer.
    pub duration_ms: u32,
}

/// An attempt with its request and what was kept of the answer.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What its delivery shows of it.
    pub summary: AttemptSummary,
    /// The address that was connected to.
    pub remote_address: Option<String>,
    /// The URL at that time, where the endpoint's version is still on record.
    pub url: Option<String>,
    /// The names of the endpoint's own headers at that time.
    pub header_names: Vec<String>,
    /// What was kept of the answer, if anything was.
    pub reply: Option<AttemptReply>,
}

/// What was kept of an answer.
#[derive(Clone, Debug)]
pub struct AttemptReply {
    /// A JSON array of `[name, value]` pairs.
    pub headers: Option<String>,
    /// The body, or its beginning.
    pub body: Option<Vec<u8>>,
    /// Bytes of the body that were read.
    pub size: u32,
    /// The body went on.
    pub cut: bool,
}

/// What attempts are ordered by: event, endpoint and id, which begins with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptKey {
    /// The event.
    pub event: EventId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The number, then what is random.
    pub id: i64,
}

impl AttemptKey {
    /// The least key of a pair.
    fn least(event: Uuid, endpoint: Uuid) -> Self {
        Self {
            event: EventId::from_uuid(event),
            endpoint: EndpointId::from_uuid(endpoint),
            id: i64::MIN,
        }
    }

    /// A key above all of a pair.
    fn greatest(event: Uuid, endpoint: Uuid) -> Self {
        Self {
            event: EventId::from_uuid(event),
            endpoint: EndpointId::from_uuid(endpoint),
            id: i64::MAX,
        }
    }
}

impl PageKey for AttemptKey {
    fn successor(self) -> Self {
        // No number is so high that its id is the highest there is.
        Self {
            id: self.id.saturating_add(1),
            ..self
        }
    }
}

impl Attempt {
    /// An attempt that was made just now, with all of its answer, whatever is kept of that.
    #[must_use]
    pub fn told(key: DeliveryKey, made: &record::Attempt, entry: &EndpointEntry) -> Self {
        let delivery = DeliveryId {
            event: key.event,
            endpoint: key.endpoint,
        };
        let outcome = if made.success { "success" } else { "failed" };
        let error = made.error.as_ref();
        let summary = AttemptSummary {
            id: AttemptId {
                delivery,
                n: made.n,
                nonce: made.row_id().cast_unsigned(),
            },
            trigger: made.trigger.as_str().to_owned(),
            sent_at: made.at,
            outcome: outcome.to_owned(),
            status: made.status,
            error_kind: error.map(|error| error.kind.as_str().to_owned()),
            error_detail: error.map(|error| error.detail.clone()),
            duration_ms: u32::try_from(made.duration.as_millis()).unwrap_or(u32::MAX),
        };
        let reply = made.response.as_ref().map(|kept| AttemptReply {
            headers: Some(kept.headers.clone()),
            body: Some(kept.body.clone()),
            size: u32::try_from(kept.size).unwrap_or(u32::MAX),
            cut: kept.cut,
        });
        let config = entry.config.as_ref().ok();
        Self {
            summary,
            remote_address: made.remote_address.clone(),
            url: config.map(|config| config.url.as_str().to_owned()),
            header_names: config
                .map(|config| config.headers.names().map(str::to_owned).collect())
                .unwrap_or_default(),
            reply,
        }
    }

    /// What it is ordered by.
    #[must_use]
    pub fn key(&self) -> AttemptKey {
        let id = self.summary.id;
        AttemptKey {
            event: id.delivery.event,
            endpoint: id.delivery.endpoint,
            id: id.nonce.cast_signed(),
        }
    }
}

/// The latest attempt of a delivery, as an outer join gives it: all or nothing.
pub(super) struct LastAttempt {
    pub(super) n: Option<i32>,
    pub(super) id: Option<i64>,
    pub(super) at: Option<DateTime<Utc>>,
    pub(super) trigger: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) status: Option<i16>,
    pub(super) error_kind: Option<String>,
    pub(super) error_detail: Option<String>,
    pub(super) duration_ms: Option<i32>,
}

impl LastAttempt {
    pub(super) fn told(self, delivery: DeliveryId) -> Option<AttemptSummary> {
        Some(AttemptSummary {
            id: attempt_id(delivery, self.n?, self.id?),
            trigger: self.trigger?,
            sent_at: self.at?,
            outcome: self.outcome?,
            status: self.status.and_then(|status| u16::try_from(status).ok()),
            error_kind: self.error_kind,
            error_detail: self.error_detail,
            duration_ms: self
                .duration_ms
                .and_then(|ms| u32::try_from(ms).ok())
                .unwrap_or(0),
        })
    }
}

fn attempt_id(delivery: DeliveryId, n: i32, id: i64) -> AttemptId {
    AttemptId {
        delivery,
        n: u32::try_from(n).unwrap_or(0),
        nonce: id.cast_unsigned(),
    }
}

/// A row of `attempts` with the endpoint's version that it was made by.
struct AttemptRow {
    event_id: Uuid,
    endpoint_id: Uuid,
    n: i32,
    id: i64,
    outcome: String,
    status: Option<i16>,
    at: DateTime<Utc>,
    duration_ms: i32,
    trigger: String,
    remote_address: Option<String>,
    error_kind: Option<String>,
    error_detail: Option<String>,
    response_headers: Option<String>,
    response_body: Option<Vec<u8>>,
    response_size: Option<i32>,
    response_cut: Option<bool>,
    url: Option<String>,
    header_names: Option<Vec<String>>,
}

impl From<AttemptRow> for Attempt {
    fn from(row: AttemptRow) -> Self {
        let delivery = DeliveryId {
            event: EventId::from_uuid(row.event_id),
            endpoint: EndpointId::from_uuid(row.endpoint_id),
        };
        let kept = row.response_headers.is_some() || row.response_body.is_some();
        let reply = kept.then(|| AttemptReply {
            headers: row.response_headers,
            size: row
                .response_size
                .and_then(|size| u32::try_from(size).ok())
                .unwrap_or(0),
            cut: row.response_cut.unwrap_or(false),
            body: row.response_body,
        });
        let summary = AttemptSummary {
            id: attempt_id(delivery, row.n, row.id),
            trigger: row.trigger,
            sent_at: row.at,
            outcome: row.outcome,
            status: row.status.and_then(|status| u16::try_from(status).ok()),
            error_kind: row.error_kind,
            error_detail: row.error_detail,
            duration_ms: u32::try_from(row.duration_ms).unwrap_or(0),
        };
        Self {
            summary,
            remote_address: row.remote_address,
            url: row.url,
            header_names: row.header_names.unwrap_or_default(),
            reply,
        }
    }
}

/// One attempt.
///
/// # Errors
/// When the database does not answer.
pub async fn attempt(
    database: &Database,
    scope: TenantScope,
    id: AttemptId,
) -> Result<Option<Attempt>, DatabaseError> {
    let Ok(n) = i32::try_from(id.n) else {
        return Ok(None);
    };
    let mut tx = database.tenant_tx(&scope).await?;
    let row = sqlx::query_as!(
        AttemptRow,
        r#"SELECT a.event_id, a.endpoint_id, a.n, a.id, a.outcome, a.status, a.at, a.duration_ms,
                  coalesce(a.trigger, 'schedule') AS "trigger!",
                  a.remote_address, a.error_kind, a.error_detail, a.response_headers, a.response_body,
                  a.response_size, a.response_cut, v.url AS "url?", v.header_names AS "header_names?"
           FROM attempts a
           LEFT JOIN endpoint_versions v
             ON v.tenant_id = $1 AND v.endpoint_id = a.endpoint_id AND v.config_seq = a.config_seq
           WHERE a.tenant_id = $1 AND a.endpoint_id = $2 AND a.event_id = $3 AND a.n = $4 AND a.id = $5
             AND a.outcome IN ('success', 'failed')"#,
        scope.tenant().uuid(),
        id.delivery.endpoint.uuid(),
        id.delivery.event.uuid(),
        n,
        id.nonce.cast_signed(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(row.map(Attempt::from))
}

/// One page of the attempts of an event, by endpoint and id. `None` when the tenant has no such event.
///
/// # Errors
/// When the database does not answer.
pub async fn attempts_of_event(
    database: &Database,
    scope: TenantScope,
    event: EventId,
    slice: Slice<AttemptKey>,
) -> Result<Page<Attempt>, DatabaseError> {
    let (low, high) = (
        AttemptKey::least(event.uuid(), Uuid::nil()),
        AttemptKey::greatest(event.uuid(), Uuid::max()),
    );
    let scan = slice.scan(low, high);
    let mut tx = database.tenant_tx(&scope).await?;
    let tenant = scope.tenant().uuid();
    /// The two directions differ in a word, which a checked statement cannot take as a parameter.
    macro_rules! list {
        ($file:tt) => {
            sqlx::query_file_as!(
                AttemptRow,
                $file,
                tenant,
                event.uuid(),
                scan.low.endpoint.uuid(),
                scan.low.id,
                scan.high.endpoint.uuid(),
                scan.high.id,
                scan.rows,
            )
            .fetch_all(&mut *tx)
            .await?
        };
    }
    let rows = if scan.upward {
        list!("src/read/attempts_of_event_upward.sql")
    } else {
        list!("src/read/attempts_of_event_downward.sql")
    };
    tx.commit().await?;
    Ok(slice.page(rows).map(Attempt::from))
}

/// One page of the attempts of an endpoint, by event and id.
///
/// # Errors
/// When the database does not answer.
pub async fn attempts_of_endpoint(
    database: &Database,
    scope: TenantScope,
    endpoint: EndpointId,
    slice: Slice<AttemptKey>,
) -> Result<Page<Attempt>, DatabaseError> {
    let (low, high) = (
        AttemptKey::least(Uuid::nil(), endpoint.uuid()),
        AttemptKey::greatest(Uuid::max(), endpoint.uuid()),
    );
    let mut tx = database.tenant_tx(&scope).await?;
    let rows = of_endpoint(&mut tx, scope, endpoint, slice, low, high).await?;
    tx.commit().await?;
    Ok(slice.page(rows).map(Attempt::from))
}

/// One page of the attempts of a delivery, by id, which begins with the number.
///
/// # Errors
/// When the database does not answer.
pub async fn attempts_of_delivery(
    database: &Database,
    scope: TenantScope,
    delivery: DeliveryId,
    slice: Slice<AttemptKey>,
) -> Result<Page<Attempt>, DatabaseError> {
    let (event, endpoint) = (delivery.event.uuid(), delivery.endpoint.uuid());
    let (low, high) = (
        AttemptKey::least(event, endpoint),
        AttemptKey::greatest(event, endpoint),
    );
    let mut tx = database.tenant_tx(&scope).await?;
    let rows = of_endpoint(&mut tx, scope, delivery.endpoint, slice, low, high).await?;
    tx.commit().await?;
    Ok(slice.page(rows).map(Attempt::from))
}

async fn of_endpoint(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    slice: Slice<AttemptKey>,
    low: AttemptKey,
    high: AttemptKey,
) -> Result<Vec<AttemptRow>, DatabaseError> {
    let scan = slice.scan(low, high);
    let (tenant, endpoint) = (scope.tenant().uuid(), endpoint.uuid());
    /// The two directions differ in a word, which a checked statement cannot take as a parameter. The plain
    /// bounds on `event_id` let whole partitions be left out, which the bounds on the row do not.
    macro_rules! list {
        ($order:tt) => {
            sqlx::query_as!(
                AttemptRow,
                "SELECT a.event_id, a.endpoint_id, a.n, a.id, a.outcome, a.status, a.at, a.duration_ms,
                        coalesce(a.trigger, 'schedule') AS \"trigger!\",
                        a.remote_address, a.error_kind, a.error_detail, a.response_headers, a.response_body,
                        a.response_size, a.response_cut, v.url AS \"url?\", v.header_names AS \"header_names?\"
                 FROM attempts a
                 LEFT JOIN endpoint_versions v
                   ON v.tenant_id = $1 AND v.endpoint_id = a.endpoint_id AND v.config_seq = a.config_seq
                 WHERE a.tenant_id = $1 AND a.endpoint_id = $2
                   AND a.event_id >= $3 AND a.event_id <= $5
                   AND (a.event_id, a.id) >= ($3, $4)
                   AND (a.event_id, a.id) < ($5, $6)
                   AND a.outcome IN ('success', 'failed')
                 ORDER BY " + $order + "
                 LIMIT $7",
                tenant,
                endpoint,
                scan.low.event.uuid(),
                scan.low.id,
                scan.high.event.uuid(),
                scan.high.id,
                scan.rows,
            )
            .fetch_all(&mut **tx)
            .await?
        };
    }
    Ok(if scan.upward {
        list!("a.event_id, a.id")
    } else {
        list!("a.event_id DESC, a.id DESC")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_of_an_attempt_is_the_next_key_and_no_other() {
        let key = AttemptKey::least(Uuid::nil(), Uuid::nil());
        assert_eq!(key.successor().id, i64::MIN + 1);
    }
}

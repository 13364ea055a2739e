//! Dead letters: the deliveries that failed for good, newest first.

use chrono::{DateTime, Utc};
use posthorn_domain::id::{DeliveryId, EndpointId, EventId};
use uuid::Uuid;

use super::DatabaseError;
use super::attempts::{AttemptSummary, LastAttempt};
use super::page::{Page, PageKey, Scan, Slice};
use crate::database::{Database, TenantTransaction};
use crate::scope::TenantScope;

/// A delivery that failed for good.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// The delivery's id; the dead letter has the same.
    pub id: DeliveryId,
    /// The event's type.
    pub event_type: String,
    /// Why it died, as a word of a documented list.
    pub cause: String,
    /// How many times it died: replays may fail, too.
    pub deaths: u32,
    /// When it died, the last time.
    pub died_at: DateTime<Utc>,
    /// Requests that were made.
    pub attempt_count: u32,
    /// The latest request.
    pub last_attempt: Option<AttemptSummary>,
}

/// Which dead letters a list has.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeadLetterFilter {
    /// Of one endpoint.
    pub endpoint: Option<EndpointId>,
    /// Died at or after.
    pub since: Option<DateTime<Utc>>,
    /// Died before.
    pub until: Option<DateTime<Utc>>,
}

/// What dead letters are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadLetterKey {
    /// When it died.
    pub died_at: DateTime<Utc>,
    /// The event.
    pub event: EventId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

impl DeadLetterKey {
    /// The least key of a moment.
    fn floor(died_at: DateTime<Utc>) -> Self {
        Self {
            died_at,
            event: EventId::from_uuid(Uuid::nil()),
            endpoint: EndpointId::from_uuid(Uuid::nil()),
        }
    }
}

impl PageKey for DeadLetterKey {
    fn successor(self) -> Self {
        Self {
            endpoint: self.endpoint.successor(),
            ..self
        }
    }
}

impl DeadLetter {
    /// What it is ordered by.
    #[must_use]
    pub const fn key(&self) -> DeadLetterKey {
        DeadLetterKey {
            died_at: self.died_at,
            event: self.id.event,
            endpoint: self.id.endpoint,
        }
    }
}

struct DeadLetterRow {
    endpoint_id: Uuid,
    event_id: Uuid,
    event_type: String,
    cause: String,
    deaths: i32,
    died_at: DateTime<Utc>,
    attempts: i64,
    last_n: Option<i32>,
    last_id: Option<i64>,
    last_at: Option<DateTime<Utc>>,
    last_trigger: Option<String>,
    last_outcome: Option<String>,
    last_status: Option<i16>,
    last_error_kind: Option<String>,
    last_error_detail: Option<String>,
    last_duration_ms: Option<i32>,
}

impl From<DeadLetterRow> for DeadLetter {
    fn from(row: DeadLetterRow) -> Self {
        let id = DeliveryId {
            event: EventId::from_uuid(row.event_id),
            endpoint: EndpointId::from_uuid(row.endpoint_id),
        };
        let last = LastAttempt {
            n: row.last_n,
            id: row.last_id,
            at: row.last_at,
            trigger: row.last_trigger,
            outcome: row.last_outcome,
            status: row.last_status,
            error_kind: row.last_error_kind,
            error_detail: row.last_error_detail,
            duration_ms: row.last_duration_ms,
        };
        Self {
            id,
            event_type: row.event_type,
            cause: row.cause,
            deaths: u32::try_from(row.deaths).unwrap_or(0),
            died_at: row.died_at,
            attempt_count: u32::try_from(row.attempts).unwrap_or(u32::MAX),
            last_attempt: last.told(id),
        }
    }
}

/// One page of a tenant's dead letters, by when they died.
///
/// # Errors
/// When the database does not answer.
pub async fn dead_letters(
    database: &Database,
    scope: TenantScope,
    filter: DeadLetterFilter,
    slice: Slice<DeadLetterKey>,
) -> Result<Page<DeadLetter>, DatabaseError> {
    let low = DeadLetterKey::floor(filter.since.unwrap_or(DateTime::UNIX_EPOCH));
    let high = DeadLetterKey::floor(filter.until.unwrap_or(FAR));
    let scan = slice.scan(low, high);
    let mut tx = database.tenant_tx(&scope).await?;
    let rows = match filter.endpoint {
        None => of_tenant(&mut tx, scope, scan).await?,
        Some(endpoint) => of_endpoint(&mut tx, scope, endpoint, scan).await?,
    };
    tx.commit().await?;
    Ok(slice.page(rows).map(DeadLetter::from))
}

/// A moment after all others that matter: the end of the year 9999.
const FAR: DateTime<Utc> = match DateTime::from_timestamp(253_402_300_799, 0) {
    Some(far) => far,
    None => DateTime::<Utc>::MAX_UTC,
};

/// Reads dead letters with their attempts; `$which` is the condition beside tenant and bounds.
///
/// The directions and filters differ in words, which a checked statement cannot take as a parameter. The inner
/// LIMIT, one more than a page may have, is for the planner: of a limit that is a parameter it assumes a tenth of all
/// rows, and would rather sort a tenant's letters than walk its index.
macro_rules! list {
    ($tx:ident, $which:tt, $order:tt, $outer:tt, [$($value:expr),+]) => {
        sqlx::query_as!(
            DeadLetterRow,
            "SELECT d.endpoint_id, d.event_id, d.type AS event_type, d.cause, d.deaths, d.died_at,
                    made.attempts AS \"attempts!\",
                    latest.n AS \"last_n?\", latest.id AS \"last_id?\", latest.at AS \"last_at?\",
                    latest.trigger AS \"last_trigger?\", latest.outcome AS \"last_outcome?\",
                    latest.status AS \"last_status?\", latest.error_kind AS \"last_error_kind?\",
                    latest.error_detail AS \"last_error_detail?\", latest.duration_ms AS \"last_duration_ms?\"
             FROM (
                 SELECT l.*
                 FROM (
                     SELECT l.endpoint_id, l.event_id, l.type, l.cause, l.deaths, l.died_at
                     FROM dead_letters l
                     WHERE l.tenant_id = $1 " + $which + "
                     ORDER BY " + $order + "
                     LIMIT 251
                 ) AS l
                 ORDER BY " + $order + "
                 LIMIT $2
             ) AS d
             CROSS JOIN LATERAL (
                 SELECT count(*) AS attempts
                 FROM attempts a
                 WHERE a.tenant_id = $1 AND a.endpoint_id = d.endpoint_id AND a.event_id = d.event_id
                   AND a.outcome IN ('success', 'failed')
             ) AS made
             LEFT JOIN LATERAL (
                 SELECT a.n, a.id, a.at, coalesce(a.trigger, 'schedule') AS trigger, a.outcome, a.status, a.error_kind, a.error_detail, a.duration_ms
                 FROM attempts a
                 WHERE a.tenant_id = $1 AND a.endpoint_id = d.endpoint_id AND a.event_id = d.event_id
                   AND a.outcome IN ('success', 'failed')
                 ORDER BY a.id DESC
                 LIMIT 1
             ) AS latest ON true
             ORDER BY " + $outer,
            $($value),+
        )
        .fetch_all(&mut **$tx)
        .await?
    };
}

async fn of_tenant(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    scan: Scan<DeadLetterKey>,
) -> Result<Vec<DeadLetterRow>, DatabaseError> {
    let (tenant, low, high) = (scope.tenant().uuid(), scan.low, scan.high);
    macro_rules! direction {
        ($order:tt, $outer:tt) => {
            list!(
                tx,
                "AND (l.died_at, l.event_id, l.endpoint_id) >= ($3, $4, $5)
                 AND (l.died_at, l.event_id, l.endpoint_id) < ($6, $7, $8)",
                $order,
                $outer,
                [
                    tenant,
                    scan.rows,
                    low.died_at,
                    low.event.uuid(),
                    low.endpoint.uuid(),
                    high.died_at,
                    high.event.uuid(),
                    high.endpoint.uuid()
                ]
            )
        };
    }
    Ok(if scan.upward {
        direction!(
            "l.died_at, l.event_id, l.endpoint_id",
            "d.died_at, d.event_id, d.endpoint_id"
        )
    } else {
        direction!(
            "l.died_at DESC, l.event_id DESC, l.endpoint_id DESC",
            "d.died_at DESC, d.event_id DESC, d.endpoint_id DESC"
        )
    })
}

async fn of_endpoint(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    scan: Scan<DeadLetterKey>,
) -> Result<Vec<DeadLetterRow>, DatabaseError> {
    let (tenant, low, high) = (
        scope.tenant().uuid(),
        of_one(endpoint, scan.low),
        of_one(endpoint, scan.high),
    );
    macro_rules! direction {
        ($order:tt, $outer:tt) => {
            list!(
                tx,
                "AND l.endpoint_id = $3 AND (l.died_at, l.event_id) >= ($4, $5) AND (l.died_at, l.event_id) < ($6, $7)",
                $order,
                $outer,
                [tenant, scan.rows, endpoint.uuid(), low.0, low.1, high.0, high.1]
            )
        };
    }
    Ok(if scan.upward {
        direction!("l.died_at, l.event_id", "d.died_at, d.event_id")
    } else {
        direction!(
            "l.died_at DESC, l.event_id DESC",
            "d.died_at DESC, d.event_id DESC"
        )
    })
}

/// The part of a bound that matters among one endpoint's rows: a bound above the endpoint's own row of that
/// event lies at the next event.
fn of_one(endpoint: EndpointId, bound: DeadLetterKey) -> (DateTime<Utc>, Uuid) {
    let event = if bound.endpoint > endpoint {
        bound.event.successor()
    } else {
        bound.event
    };
    (bound.died_at, event.uuid())
}

/// One dead letter.
///
/// # Errors
/// When the database does not answer.
pub async fn dead_letter(
    database: &Database,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<Option<DeadLetter>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let (tenant, endpoint, event) = (scope.tenant().uuid(), id.endpoint.uuid(), id.event.uuid());
    let transaction = &mut tx;
    let rows = list!(
        transaction,
        "AND l.endpoint_id = $3 AND l.event_id = $4",
        "l.died_at",
        "d.died_at",
        [tenant, 1, endpoint, event]
    );
    tx.commit().await?;
    Ok(rows.into_iter().next().map(DeadLetter::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: u128) -> EndpointId {
        EndpointId::from_uuid(Uuid::from_u128(number))
    }

    #[test]
    fn a_bound_on_the_endpoints_own_row_stays_at_its_event() {
        let key = DeadLetterKey {
            endpoint: endpoint(7),
            ..DeadLetterKey::floor(DateTime::UNIX_EPOCH)
        };
        assert_eq!(of_one(endpoint(7), key).1, Uuid::nil());
    }

    #[test]
    fn a_bound_above_the_endpoints_own_row_lies_at_the_next_event() {
        let key = DeadLetterKey {
            endpoint: endpoint(7),
            ..DeadLetterKey::floor(DateTime::UNIX_EPOCH)
        };
        assert_eq!(of_one(endpoint(7), key.successor()).1, Uuid::from_u128(1));
    }
}

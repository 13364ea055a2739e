//! Deliveries, put together from what is on record about them.
//!
//! No table holds a delivery: it is an event's endpoint, the attempts and verdicts of that pair, and its rows
//! in `pending` and `dead_letters`. Each part is probed by key for each endpoint of the page; a join that the
//! planner may turn round could read `attempts` whole.

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::DeliveryState;
use posthorn_domain::id::{DeliveryId, EndpointId, EventId};
use uuid::Uuid;

use super::DatabaseError;
use super::attempts::{AttemptSummary, LastAttempt};
use super::page::{Edge, Order, Page, PageKey as _, Scan, Slice};
use crate::database::{Database, TenantTransaction};
use crate::scope::TenantScope;

/// One event for one endpoint, and how far it got.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The pair.
    pub id: DeliveryId,
    /// The event's type.
    pub event_type: String,
    /// How far it got.
    pub state: DeliveryState,
    /// Why no time is known for the next attempt; only of a parked one.
    pub parked_cause: Option<String>,
    /// Requests that were made.
    pub attempt_count: u32,
    /// When the next attempt is due.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// When a success was answered.
    pub delivered_at: Option<DateTime<Utc>>,
    /// When it is given up, while it is not at its end.
    pub expires_at: Option<DateTime<Utc>>,
    /// The latest request.
    pub last_attempt: Option<AttemptSummary>,
}

/// One page of the deliveries of an event, by endpoint. `None` when the tenant has no such event.
///
/// # Errors
/// When the database does not answer.
pub async fn deliveries(
    database: &Database,
    scope: TenantScope,
    event: EventId,
    slice: Slice<EndpointId>,
) -> Result<Option<Page<Delivery>>, DatabaseError> {
    let scan = slice.scan(
        EndpointId::from_uuid(Uuid::nil()),
        EndpointId::from_uuid(Uuid::max()),
    );
    let mut tx = database.tenant_tx(&scope).await?;
    let rows = fetch(&mut tx, scope, event, scan).await?;
    let known = !rows.is_empty() || exists(&mut tx, scope, event).await?;
    tx.commit().await?;
    Ok(known.then(|| slice.page(rows).map(|row| row.told(event))))
}

/// One delivery. `None` when the tenant has no such event, or it was not for that endpoint.
///
/// # Errors
/// When the database does not answer.
pub async fn delivery(
    database: &Database,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<Option<Delivery>, DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let delivery = delivery_in(&mut tx, scope, id).await?;
    tx.commit().await?;
    Ok(delivery)
}

/// As [`delivery`], as the transaction `tx` sees it.
pub(crate) async fn delivery_in(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    id: DeliveryId,
) -> Result<Option<Delivery>, DatabaseError> {
    let slice = Slice {
        order: Order::OldestFirst,
        edge: Edge::Start,
        limit: 1,
    };
    let scan = slice.scan(id.endpoint, id.endpoint.successor());
    let rows = fetch(tx, scope, id.event, scan).await?;
    Ok(rows.into_iter().next().map(|row| row.told(id.event)))
}

async fn exists(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    event: EventId,
) -> Result<bool, DatabaseError> {
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM events WHERE tenant_id = $1 AND id = $2)
               OR EXISTS (SELECT 1 FROM kept_events WHERE tenant_id = $1 AND id = $2) AS "found!""#,
        scope.tenant().uuid(),
        event.uuid(),
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(found)
}

/// All that is on record about one delivery.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says whether a row of its own kind exists"
)]
struct Record {
    endpoint_id: Uuid,
    event_type: String,
    max_age_s: Option<i32>,
    deleted: bool,
    endpoint_state: Option<String>,
    pending: bool,
    due: Option<DateTime<Utc>>,
    why: Option<String>,
    ends_at: Option<DateTime<Utc>>,
    dead_letter: bool,
    attempts: i64,
    delivered_at: Option<DateTime<Utc>>,
    dead_verdict: bool,
    cancelled: bool,
    discarded: bool,
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

async fn fetch(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    event: EventId,
    scan: Scan<EndpointId>,
) -> Result<Vec<Record>, DatabaseError> {
    let (tenant, event) = (scope.tenant().uuid(), event.uuid());
    let (low, high) = (scan.low.uuid(), scan.high.uuid());
    let rows = if scan.upward {
        sqlx::query_file_as!(
            Record,
            "src/read/deliveries_upward.sql",
            tenant,
            event,
            low,
            high,
            scan.rows
        )
        .fetch_all(&mut **tx)
        .await?
    } else {
        sqlx::query_file_as!(
            Record,
            "src/read/deliveries_downward.sql",
            tenant,
            event,
            low,
            high,
            scan.rows
        )
        .fetch_all(&mut **tx)
        .await?
    };
    Ok(rows)
}

impl Record {
    /// The rule of a delivery's state: the first of these that holds.
    fn state(&self) -> DeliveryState {
        if self.delivered_at.is_some() {
            DeliveryState::Delivered
        } else if self.pending {
            match (self.due, self.attempts) {
                (None, _) => DeliveryState::Parked,
                (Some(_), 0) => DeliveryState::Waiting,
                (Some(_), _) => DeliveryState::Retrying,
            }
        } else if self.dead_letter || self.dead_verdict {
            DeliveryState::Dead
        } else if self.discarded {
            DeliveryState::Discarded
        } else if self.cancelled || self.deleted {
            DeliveryState::Cancelled
        } else {
            DeliveryState::Waiting
        }
    }

    /// Why a parked delivery waits. A replay keeps saying that it is one, so what holds it back is looked up.
    fn parked_cause(&self) -> Option<String> {
        if self.state() != DeliveryState::Parked {
            return None;
        }
        match (self.why.as_deref(), self.endpoint_state.as_deref()) {
            (Some("replay"), Some(state @ ("paused" | "disabled"))) => Some(state.to_owned()),
            (why, _) => why.map(str::to_owned),
        }
    }

    /// When the delivery is given up: as its pending row says, else by its endpoint, as long as it waits.
    fn expires_at(&self, state: DeliveryState, event: EventId) -> Option<DateTime<Utc>> {
        match state {
            DeliveryState::Waiting | DeliveryState::Retrying | DeliveryState::Parked => {
                self.ends_at.or_else(|| {
                    event
                        .minted_at()
                        .checked_add_signed(chrono::TimeDelta::seconds(i64::from(self.max_age_s?)))
                })
            }
            _ => None,
        }
    }

    fn told(self, event: EventId) -> Delivery {
        let id = DeliveryId {
            event,
            endpoint: EndpointId::from_uuid(self.endpoint_id),
        };
        let state = self.state();
        let open = state != DeliveryState::Delivered;
        Delivery {
            id,
            state,
            parked_cause: self.parked_cause(),
            attempt_count: u32::try_from(self.attempts).unwrap_or(u32::MAX),
            next_attempt_at: self.due.filter(|_| open),
            delivered_at: self.delivered_at,
            expires_at: self.expires_at(state, event),
            last_attempt: LastAttempt {
                n: self.last_n,
                id: self.last_id,
                at: self.last_at,
                trigger: self.last_trigger,
                outcome: self.last_outcome,
                status: self.last_status,
                error_kind: self.last_error_kind,
                error_detail: self.last_error_detail,
                duration_ms: self.last_duration_ms,
            }
            .told(id),
            event_type: self.event_type,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delivery about which nothing is on record yet.
    fn record() -> Record {
        Record {
            endpoint_id: Uuid::nil(),
            event_type: "invoice.paid".into(),
            max_age_s: Some(60),
            deleted: false,
            endpoint_state: Some("enabled".into()),
            pending: false,
            due: None,
            why: None,
            ends_at: None,
            dead_letter: false,
            attempts: 0,
            delivered_at: None,
            dead_verdict: false,
            cancelled: false,
            discarded: false,
            last_n: None,
            last_id: None,
            last_at: None,
            last_trigger: None,
            last_outcome: None,
            last_status: None,
            last_error_kind: None,
            last_error_detail: None,
            last_duration_ms: None,
        }
    }

    const AT: Option<DateTime<Utc>> = Some(DateTime::UNIX_EPOCH);

    #[test]
    fn a_delivery_without_any_record_waits() {
        assert_eq!(record().state(), DeliveryState::Waiting);
    }

    #[test]
    fn a_success_is_for_ever() {
        let delivered = Record {
            delivered_at: AT,
            pending: true,
            dead_letter: true,
            deleted: true,
            ..record()
        };
        assert_eq!(delivered.state(), DeliveryState::Delivered);
    }

    #[test]
    fn a_pending_row_comes_before_a_dead_letter() {
        let replayed = Record {
            pending: true,
            due: AT,
            attempts: 3,
            dead_letter: true,
            ..record()
        };
        assert_eq!(replayed.state(), DeliveryState::Retrying);
        assert_eq!(
            Record {
                due: None,
                ..replayed
            }
            .state(),
            DeliveryState::Parked
        );
    }

    #[test]
    fn a_pending_row_without_an_attempt_waits() {
        assert_eq!(
            Record {
                pending: true,
                due: AT,
                ..record()
            }
            .state(),
            DeliveryState::Waiting
        );
    }

    #[test]
    fn a_replay_that_a_paused_endpoint_holds_back_says_so() {
        let held = |state: &str| Record {
            pending: true,
            why: Some("replay".into()),
            endpoint_state: Some(state.into()),
            ..record()
        };
        assert_eq!(held("paused").parked_cause().as_deref(), Some("paused"));
        assert_eq!(held("enabled").parked_cause().as_deref(), Some("replay"));
    }

    #[test]
    fn a_dead_verdict_outlives_its_letter_and_its_endpoint() {
        assert_eq!(
            Record {
                dead_verdict: true,
                deleted: true,
                ..record()
            }
            .state(),
            DeliveryState::Dead
        );
    }

    #[test]
    fn a_deleted_endpoint_cancels_what_waited() {
        assert_eq!(
            Record {
                deleted: true,
                ..record()
            }
            .state(),
            DeliveryState::Cancelled
        );
        assert_eq!(
            Record {
                deleted: true,
                discarded: true,
                ..record()
            }
            .state(),
            DeliveryState::Discarded
        );
    }
}

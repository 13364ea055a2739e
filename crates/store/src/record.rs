//! Record: what attempts came to, in batches.
//!
//! One transaction of separate statements: attempts, then pending, then dead letters (inside one statement
//! of CTEs a delete cannot see what its sibling inserted). The attempt's row is the gate: only facts whose
//! row this transaction inserted have consequences, so that a batch that is sent again after an unknown
//! outcome changes nothing. Every change of `pending` is a compare-and-set on the attempt's own number (INV-5).
//!
//! A transaction waits for rows that another one holds, but not for long: whoever holds them may stand still, and other tenants'
//! results are in the same batch (INV-13).

mod apply;
mod fact;

use posthorn_domain::limits;
use sqlx::postgres::PgDatabaseError;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use self::apply::Sending;
pub use self::fact::{
    Attempt, AttemptError, Consequence, DeliveryKey, Fact, KeptResponse, Parked, Retry, Source,
};
use crate::database::{Database, DatabaseError, answered};
use crate::scope::TenantScope;

/// Why a batch is not on record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nothing was recorded, and the fault is in a row's data: each alone will tell which.
    #[error("the database refused a result")]
    Refused(#[source] DatabaseError),
    /// Nothing was recorded, for another transaction holds rows that some of the facts are about, or the gate of retention: the
    /// others alone will go on record.
    #[error("another transaction holds what results are about")]
    Locked(#[source] DatabaseError),
    /// It may have been recorded: to be sent again, unchanged, on a new connection.
    #[error("the database did not confirm")]
    Unknown(#[source] DatabaseError),
}

impl RecordError {
    fn of(error: DatabaseError) -> Self {
        let refusal = error.mild_refusal();
        let data = refusal.is_some_and(|refusal| {
            !is_missing_leaf(refusal)
                && ["22", "23", "54"]
                    .iter()
                    .any(|class| refusal.code().starts_with(class))
        });
        if data {
            Self::Refused(error)
        } else if refusal.is_some_and(|refusal| refusal.code() == LOCKED) {
            Self::Locked(error)
        } else {
            Self::Unknown(error)
        }
    }
}

/// SQLSTATE `unique_violation`.
const UNIQUE_VIOLATION: &str = "23505";

/// SQLSTATE `lock_not_available`.
const LOCKED: &str = "55P03";

/// How long a batch waits for what another transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// As long as its writer does: it is most often free soon.
    Some,
    /// [`limits::RECORD_LOCK_WAIT_AGAIN`]: it was held a moment ago.
    Hardly,
}

/// The recorder's side of the database: one connection of its own.
pub struct RecordWriter {
    database: Database,
    connection: Option<PgConnection>,
    impatient: bool,
}

impl RecordWriter {
    /// Connects at the first batch.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self {
            database,
            connection: None,
            impatient: false,
        }
    }

    /// A writer that waits for what another transaction holds for [`limits::RECORD_LOCK_WAIT`] at most, and no longer for
    /// [`limits::LOCK_TIMEOUT`]: for batches of many tenants' results.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self {
            impatient: true,
            connection: None,
            ..self
        }
    }

    /// A writer with another connection to the same database.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::new(self.database.clone())
    }

    /// Records a batch and its consequences in one transaction, durably. Sending the same facts again is harmless.
    ///
    /// # Errors
    /// [`RecordError`]; after `Unknown` the next call uses a new connection.
    pub async fn record(&mut self, facts: &[Fact]) -> Result<(), RecordError> {
        self.record_waiting(facts, LockWait::Some).await
    }

    /// The same, and says for how long locks are waited for.
    ///
    /// # Errors
    /// As above.
    pub async fn record_waiting(
        &mut self,
        facts: &[Fact],
        wait: LockWait,
    ) -> Result<(), RecordError> {
        let recording = self.first_or_again(facts, wait);
        let outcome = answered(limits::FLUSH_WAIT, recording)
            .await
            .map_err(RecordError::of);
        if matches!(outcome, Err(RecordError::Unknown(_))) {
            self.connection = None;
        }
        outcome
    }

    /// Only a batch that is on record already, whole or in part, meets rows with its ids: then nothing of the first
    /// transaction stands, and the second leaves those rows as they are.
    async fn first_or_again(
        &mut self,
        facts: &[Fact],
        wait: LockWait,
    ) -> Result<(), DatabaseError> {
        match self.in_one_transaction(facts, Sending::First, wait).await {
            Err(error) if is_there_already(&error) => {
                self.in_one_transaction(facts, Sending::Again, wait).await
            }
            Err(error) if has_no_leaf(&error) => self.without_those_gone(facts, error, wait).await,
            outcome => outcome,
        }
    }

    /// Some attempt met no leaf. One that retention has dropped will not come back, and nothing refers to what was in it:
    /// results of such a day are let go, so that they do not keep the others from being recorded. A leaf that is only
    /// missing is waited for.
    async fn without_those_gone(
        &mut self,
        facts: &[Fact],
        error: DatabaseError,
        wait: LockWait,
    ) -> Result<(), DatabaseError> {
        let Some(connection) = self.connection.as_mut() else {
            return Err(error);
        };
        let events: Vec<_> = facts.iter().map(|fact| fact.key().event.uuid()).collect();
        let gone = sqlx::query_scalar!(
            r#"SELECT e.id AS "id!"
               FROM unnest($1::uuid[]) AS e (id)
               CROSS JOIN LATERAL (SELECT (posthorn_uuid_time(e.id) AT TIME ZONE 'UTC')::date AS day) AS d
               WHERE e.id <= (SELECT kept_to FROM retention)
                 AND NOT posthorn_is_leaf('attempts', 'attempts_' || to_char(d.day, 'YYYYMMDD'), d.day)"#,
            &events,
        )
        .fetch_all(connection)
        .await?;
        if gone.is_empty() {
            return Err(error);
        }
        tracing::warn!(
            results = gone.len(),
            "results of events that retention has removed were let go"
        );
        let left: Vec<_> = facts
            .iter()
            .filter(|fact| !gone.contains(&fact.key().event.uuid()))
            .cloned()
            .collect();
        self.in_one_transaction(&left, Sending::Again, wait).await
    }

    async fn in_one_transaction(
        &mut self,
        facts: &[Fact],
        sending: Sending,
        wait: LockWait,
    ) -> Result<(), DatabaseError> {
        if self.connection.is_none() {
            let mut connection = self.database.dedicated().await?;
            if self.impatient {
                // Once, and not in each transaction, for the sake of those that meet no lock.
                let wait = limits::RECORD_LOCK_WAIT.as_millis();
                let wait = format!("SET lock_timeout = '{wait}ms'");
                connection.execute(AssertSqlSafe(wait)).await?;
            }
            self.connection = Some(connection);
        }
        let Some(connection) = self.connection.as_mut() else {
            return Err(DatabaseError::no_connection());
        };
        let mut tx = connection.begin().await?;
        if wait == LockWait::Hardly {
            sqlx::query!(
                "SELECT set_config('lock_timeout', $1, true) AS wait",
                format!("{}ms", limits::RECORD_LOCK_WAIT_AGAIN.as_millis()),
            )
            .fetch_one(&mut *tx)
            .await?;
        }
        apply::attempts_and_consequences(&mut tx, facts, sending).await?;
        apply::parked(&mut tx, facts).await?;
        Ok(tx.commit().await?)
    }
}

/// Records the attempt of a test send, as its tenant. It is of no delivery, so nothing follows from it.
///
/// # Errors
/// When the database does not answer, or refuses it.
pub async fn test_send(
    database: &Database,
    scope: TenantScope,
    key: DeliveryKey,
    attempt: &Attempt,
) -> Result<(), DatabaseError> {
    let mut tx = database.tenant_tx(&scope).await?;
    apply::attempt_alone(&mut tx, key, attempt).await?;
    tx.commit().await?;
    Ok(())
}

/// A missing partition is a 23514 without a constraint's name: the table's state, not a row's fault.
fn is_missing_leaf(refusal: &PgDatabaseError) -> bool {
    refusal.code() == "23514" && refusal.constraint().is_none()
}

fn has_no_leaf(error: &DatabaseError) -> bool {
    error.refusal().is_some_and(is_missing_leaf)
}

fn is_there_already(error: &DatabaseError) -> bool {
    error.code() == Some(UNIQUE_VIOLATION)
}

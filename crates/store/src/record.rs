//! Record: what attempts came to, in batches.
//!
//! One transaction of separate statements: attempts, then pending, then dead letters (inside one statement
//! of CTEs a delete cannot see what its sibling inserted). The attempt's row is the gate: only facts whose
//! row this transaction inserted have consequences, so that a batch that is sent again after an unknown
//! outcome changes nothing. Every change of `pending` is a compare-and-set on the attempt's own number (INV-5).

mod apply;
mod fact;

use posthorn_domain::limits;
use sqlx::postgres::{PgDatabaseError, PgSeverity};
use sqlx::{Connection as _, PgConnection};

use self::apply::Sending;
pub use self::fact::{
    Attempt, AttemptError, Consequence, DeliveryKey, Fact, KeptResponse, Parked, Retry, Source,
};
use crate::database::Database;

/// Why a batch is not on record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nothing was recorded, and the fault is in a row's data: each alone will tell which.
    #[error("the database refused a result")]
    Refused(#[source] sqlx::Error),
    /// It may have been recorded: to be sent again, unchanged, on a new connection.
    #[error("the database did not confirm")]
    Unknown(#[source] sqlx::Error),
}

impl RecordError {
    fn of(error: sqlx::Error) -> Self {
        let refusal = error
            .as_database_error()
            .and_then(|e| e.try_downcast_ref::<PgDatabaseError>());
        let data = refusal.is_some_and(|refusal| {
            let fatal = matches!(refusal.severity(), PgSeverity::Fatal | PgSeverity::Panic);
            !fatal
                && !is_missing_leaf(refusal)
                && ["22", "23", "54"]
                    .iter()
                    .any(|class| refusal.code().starts_with(class))
        });
        if data {
            Self::Refused(error)
        } else {
            Self::Unknown(error)
        }
    }
}

/// The recorder's side of the database: one connection of its own.
pub struct RecordWriter {
    database: Database,
    connection: Option<PgConnection>,
}

impl RecordWriter {
    /// Connects at the first batch.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self {
            database,
            connection: None,
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
        let outcome = tokio::time::timeout(limits::FLUSH_WAIT, self.first_or_again(facts))
            .await
            .unwrap_or(Err(sqlx::Error::PoolTimedOut))
            .map_err(RecordError::of);
        if matches!(outcome, Err(RecordError::Unknown(_))) {
            self.connection = None;
        }
        outcome
    }

    /// Only a batch that is on record already, whole or in part, meets rows with its ids: then nothing of the first
    /// transaction stands, and the second leaves those rows as they are.
    async fn first_or_again(&mut self, facts: &[Fact]) -> Result<(), sqlx::Error> {
        match self.in_one_transaction(facts, Sending::First).await {
            Err(error) if is_there_already(&error) => {
                self.in_one_transaction(facts, Sending::Again).await
            }
            Err(error) if has_no_leaf(&error) => self.without_those_gone(facts, error).await,
            outcome => outcome,
        }
    }

    /// Some attempt met no leaf. One that retention has dropped will not come back, and nothing refers to what was in it:
    /// results of such a day are let go, so that they do not keep the others from being recorded. A leaf that is only
    /// missing is waited for.
    async fn without_those_gone(
        &mut self,
        facts: &[Fact],
        error: sqlx::Error,
    ) -> Result<(), sqlx::Error> {
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
        self.in_one_transaction(&left, Sending::Again).await
    }

    async fn in_one_transaction(
        &mut self,
        facts: &[Fact],
        sending: Sending,
    ) -> Result<(), sqlx::Error> {
        if self.connection.is_none() {
            self.connection = Some(self.database.dedicated().await?);
        }
        let Some(connection) = self.connection.as_mut() else {
            return Err(sqlx::Error::PoolClosed);
        };
        let mut tx = connection.begin().await?;
        apply::attempts_and_consequences(&mut tx, facts, sending).await?;
        apply::parked(&mut tx, facts).await?;
        tx.commit().await
    }
}

/// A missing partition is a 23514 without a constraint's name: the table's state, not a row's fault.
fn is_missing_leaf(refusal: &PgDatabaseError) -> bool {
    refusal.code() == "23514" && refusal.constraint().is_none()
}

fn has_no_leaf(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
        .is_some_and(is_missing_leaf)
}

fn is_there_already(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

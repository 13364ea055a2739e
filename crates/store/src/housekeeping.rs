//! Housekeeping: what has to go, and what has to be there, away from the hot path.
//!
//! One node at a time does it ([`take`]): a row names the node and a time until which it has the turn. A node that hangs
//! loses its turn by that time alone; that two may then do it at once costs work and nothing else, since every step
//! states what it expects and may be repeated, begun by one node and ended by another.
//!
//! Retention, in this order, each step by statements that end by themselves:
//!
//! 1. [`Housekeeper::keep`] copies the events of old days that have a pending row or a dead letter to `kept_events`, so
//!    that little is left to copy in step 3;
//! 2. [`Housekeeper::raise_floor`]: from then on nothing becomes pending whose event is at or below the floor, unless it
//!    is in `kept_events`. The row of `retention` is the *gate*: whoever makes a delivery pending holds it FOR KEY SHARE
//!    until it commits, whoever removes what a pending row needs holds it FOR UPDATE, both behind a turnstile that lets
//!    nobody pass whoever waits;
//! 3. [`Housekeeper::keep`] once more, and then [`Housekeeper::kept`];
//! 4. [`Housekeeper::empty`] truncates the leaves that are wholly below;
//! 5. [`Housekeeper::drop_leaves`] drops those that nothing refers to any more.
//!
//! Guarantees: an event is there, in one place or the other, as long as a pending row or a dead letter refers to it
//! (INV-2); no insert waits behind a lock of this for longer than a tenth of a second. Does not: decide how long things
//! are kept ([`posthorn_domain::retention`]), delete keys ([`crate::idempotent`]) or make leaves ([`crate::partitions`]).

mod floor;
mod keep;
mod leaves;
mod remove;
mod trim;

use posthorn_domain::limits;

use crate::database::{BoundedConnection, BoundedTransaction, Database, DatabaseError};

pub use self::floor::Floor;
pub use self::keep::Kept;
pub use self::leaves::{Leaf, LeafOutcome};
pub use self::remove::Removed;

/// A node's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Another node has it.
    Anothers,
    /// This node has it, and the last whole round is recent.
    Ours,
    /// This node has it, and a round is due.
    OursWithRound,
}

/// Takes the turn for [`limits::HOUSEKEEPING_HOLD`], where nobody has it or this node has. `holder` is random, and the
/// node's own for as long as it runs.
///
/// # Errors
/// When the database does not answer.
pub async fn take(database: &Database, holder: i64) -> Result<Turn, DatabaseError> {
    let due = sqlx::query_scalar!(
        r#"UPDATE housekeeping SET holder = $1, held_until = now() + make_interval(secs => $2)
           WHERE held_until <= now() OR holder = $1
           RETURNING finished_at <= now() - make_interval(secs => $3) AS "due!""#,
        holder,
        limits::HOUSEKEEPING_HOLD.as_secs_f64(),
        limits::HOUSEKEEPING_EVERY.as_secs_f64(),
    )
    .fetch_optional(database.system())
    .await?;
    Ok(match due {
        None => Turn::Anothers,
        Some(false) => Turn::Ours,
        Some(true) => Turn::OursWithRound,
    })
}

/// Gives the turn back, if it is still this node's.
///
/// # Errors
/// When the database does not answer; then it ends by itself.
pub async fn give_back(database: &Database, holder: i64) -> Result<(), DatabaseError> {
    sqlx::query!(
        "UPDATE housekeeping SET held_until = now() WHERE holder = $1",
        holder
    )
    .execute(database.system())
    .await?;
    Ok(())
}

/// Notes that a whole round is done. Answers whether the turn was still this node's.
///
/// # Errors
/// When the database does not answer; then the next round comes sooner.
pub async fn finished(database: &Database, holder: i64) -> Result<bool, DatabaseError> {
    let done = sqlx::query!(
        "UPDATE housekeeping SET finished_at = now() WHERE holder = $1",
        holder
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected() == 1)
}

/// The steps of a round, over one connection that nothing else uses.
pub struct Housekeeper {
    connection: BoundedConnection,
}

impl Housekeeper {
    /// Connects.
    ///
    /// # Errors
    /// When no connection can be had in time.
    pub async fn connect(database: &Database) -> Result<Self, DatabaseError> {
        let connection = database.dedicated_bounded().await?;
        Ok(Self { connection })
    }
}

/// Nobody makes anything pending while this transaction lasts; whoever began to, has committed.
///
/// A lock on a row is not enough: PostgreSQL lets FOR KEY SHARE pass whoever waits FOR UPDATE, for as long as there is always
/// one who holds it. So there is a turnstile before the gate, an advisory lock that is handed out in the order in which it
/// is asked for: whoever makes something pending takes it shared, in the statement in which it then reads the row.
///
/// While this waits for those who are inside, the others wait behind it: no longer than [`limits::GATE_WAIT`]. Another node's
/// housekeeping is waited for before that, where nobody waits behind.
async fn close_gate(tx: &mut BoundedTransaction<'_>) -> Result<(), DatabaseError> {
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('posthorn_gatekeeper'))")
        .execute(tx.bounded())
        .await?;
    sqlx::query!(
        "SELECT set_config('lock_timeout', $1, true) AS wait",
        format!("{}ms", limits::GATE_WAIT.as_millis()),
    )
    .fetch_one(tx.bounded())
    .await?;
    sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('posthorn_gate'))")
        .execute(tx.bounded())
        .await?;
    sqlx::query_scalar!("SELECT one FROM retention FOR UPDATE")
        .fetch_one(tx.bounded())
        .await?;
    Ok(())
}

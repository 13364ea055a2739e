//! Sealing anew, under the first master key of the ring, what older keys have sealed, so that these can leave the ring.
//!
//! [`Resealer::run_once`] takes a batch of rows, opens and seals each, and writes those that are still as they were read: nodes
//! that change the same rows meanwhile lose nothing, and whoever stops half-way begins again with what is left. Nothing else of
//! a row changes, so no node loads anything again: what it has opened stays open.
//!
//! A node that lacks the first key could not read what was sealed anew, and one that seals with another would go on sealing with
//! it. So [`begin`] and [`free`] are refused while there is one, under a lock that a starting node's proof of its ring
//! ([`crate::master_key`]) waits for: a node proves it once more when its stream is open, and so is either seen here or sees.

mod batch;

use posthorn_domain::seal::{KeyRing, SealError};
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use self::batch::{Answers, Batch, Compats, Headers, Secrets};
use crate::database::{self, Database};
use crate::entropy::Entropy;
use crate::master_key::{self, MasterKeyError};
use crate::read::DatabaseError;

/// Why nothing more was sealed anew. What was is as good as before.
#[derive(Debug, thiserror::Error)]
pub enum ResealError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The ring is not the one that sealed here, or does not seal.
    #[error(transparent)]
    Ring(#[from] MasterKeyError),
    /// A text could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A node seals with another key.
    #[error(
        "the node `{node}` {seals}. Give every node the master keys with `{first}` in front, start it again, and repeat this"
    )]
    Node {
        /// Its name.
        node: String,
        /// What it seals with, in words.
        seals: String,
        /// The key that is to seal.
        first: String,
    },
}

impl From<database::DatabaseError> for ResealError {
    fn from(error: database::DatabaseError) -> Self {
        Self::Database(error.into())
    }
}

crate::database::from_driver!(ResealError);

/// What was sealed anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Signing secrets.
    pub secrets: u64,
    /// Headers of endpoints.
    pub headers: u64,
    /// Secrets of signatures in the form of others.
    pub compats: u64,
    /// Answers that are kept for their idempotency keys.
    pub answers: u64,
    /// What does not open with its key, and was left as it is.
    pub broken: u64,
}

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There may be.
    More,
    /// Everything was looked at.
    Done,
}

/// The way through everything that is sealed.
pub struct Resealer<'a> {
    database: &'a Database,
    ring: &'a KeyRing,
    entropy: Entropy,
    at: At,
    done: Resealed,
}

const NIL: Uuid = Uuid::nil();

/// Behind which row of which table to go on.
enum At {
    Secrets(Secrets),
    Headers(Headers),
    Compats(Compats),
    Answers(Answers),
    End,
}

impl<'a> Resealer<'a> {
    /// At the beginning.
    #[must_use]
    pub fn new(database: &'a Database, ring: &'a KeyRing, entropy: Entropy) -> Self {
        Self {
            database,
            ring,
            entropy,
            at: At::Secrets(Secrets(NIL, NIL, NIL)),
            done: Resealed::default(),
        }
    }

    /// What was done so far.
    #[must_use]
    pub const fn done(&self) -> Resealed {
        self.done
    }

    /// Seals one batch anew.
    ///
    /// # Errors
    /// When the database does not answer; the next call takes the same batch.
    pub async fn run_once(&mut self) -> Result<Step, ResealError> {
        let batch = Batch {
            database: self.database,
            ring: self.ring,
            entropy: self.entropy,
        };
        self.at = match &self.at {
            At::Secrets(after) => {
                let (last, count) = batch.run(*after).await?;
                self.done.secrets += count.sealed;
                self.done.broken += count.broken;
                last.map_or(At::Headers(Headers(NIL, NIL)), At::Secrets)
            }
            At::Headers(after) => {
                let (last, count) = batch.run(*after).await?;
                self.done.headers += count.sealed;
                self.done.broken += count.broken;
                last.map_or(At::Compats(Compats(NIL, NIL)), At::Headers)
            }
            At::Compats(after) => {
                let (last, count) = batch.run(*after).await?;
                self.done.compats += count.sealed;
                self.done.broken += count.broken;
                let first = Answers(NIL, String::new(), String::new());
                last.map_or(At::Answers(first), At::Compats)
            }
            At::Answers(after) => {
                let (last, count) = batch.run(after.clone()).await?;
                self.done.answers += count.sealed;
                self.done.broken += count.broken;
                last.map_or(At::End, At::Answers)
            }
            At::End => At::End,
        };
        Ok(match self.at {
            At::End => Step::Done,
            _ => Step::More,
        })
    }
}

/// Makes sure that every node has the ring's first key and seals with it, and that no node starts without it any more.
///
/// # Errors
/// When a node seals with another key, or the database does not answer. Nothing was changed.
pub async fn begin(
    database: &Database,
    ring: &KeyRing,
    entropy: Entropy,
) -> Result<(), ResealError> {
    let mut tx = locked(database).await?;
    refuse_other_nodes(&mut tx, ring).await?;
    master_key::remember(&mut tx, ring, entropy.bytes()).await?;
    tx.commit().await?;
    Ok(())
}

/// Forgets the keys, beside the ring's first, under which nothing is sealed any more, so that the program starts without them.
/// Answers their ids.
///
/// # Errors
/// When a node seals with another key, or the database does not answer. Nothing was changed.
pub async fn free(database: &Database, ring: &KeyRing) -> Result<Vec<String>, ResealError> {
    let mut tx = locked(database).await?;
    refuse_other_nodes(&mut tx, ring).await?;
    let freed = sqlx::query_scalar!(
        "DELETE FROM master_key_probe AS p
         WHERE p.key_id <> $1
           AND NOT EXISTS (SELECT 1 FROM endpoint_secrets AS s WHERE s.key_id = p.key_id)
           AND NOT EXISTS (SELECT 1 FROM endpoints AS e WHERE e.headers_key_id = p.key_id OR e.compat_key_id = p.key_id)
           AND NOT EXISTS (SELECT 1 FROM idempotent_answers AS a WHERE a.key_id = p.key_id)
         RETURNING p.key_id",
        ring.current_id(),
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(freed)
}

/// A transaction that nodes which prove their ring wait for.
async fn locked(
    database: &Database,
) -> Result<Transaction<'static, Postgres>, database::DatabaseError> {
    let mut tx = database.system_tx().await?;
    sqlx::query!("LOCK TABLE master_key_probe IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *tx)
        .await?;
    Ok(tx)
}

async fn refuse_other_nodes(
    tx: &mut Transaction<'static, Postgres>,
    ring: &KeyRing,
) -> Result<(), ResealError> {
    let other = sqlx::query!(
        "SELECT name, master_keys FROM nodes
         WHERE state = 'open' AND lease_until > clock_timestamp() AND master_keys[1] IS DISTINCT FROM $1
         ORDER BY name
         LIMIT 1",
        ring.current_id(),
    )
    .fetch_optional(&mut **tx)
    .await?;
    let Some(other) = other else { return Ok(()) };
    let seals = match other.master_keys.first() {
        Some(key) => format!("seals with the master key `{key}`"),
        None => "is of a version that does not say which master keys it has".to_owned(),
    };
    Err(ResealError::Node {
        node: other.name,
        seals,
        first: ring.current_id().to_owned(),
    })
}

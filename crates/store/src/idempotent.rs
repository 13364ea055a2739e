//! Keys of requests other than submitting an event: the first answer is kept, and given again.
//!
//! [`claim`] before the request runs, then [`Claim::keep`] with its answer, or [`Claim::release`] where it failed: failures
//! are not remembered. Two requests with one key never run at once, unless the first takes longer than
//! [`limits::IDEMPOTENCY_RUNNING`], after which it counts as crashed. The claim is a transaction of its own. The change marks it in
//! its own ([`Claim::cover`], [`mark`]): it stands or falls with the mark, so that after a crash nothing is done twice. Then the
//! answer is lost, and whoever asks again is told so.
//!
//! An answer may hold a secret that is shown once, so it is sealed, bound to tenant, route and key (INV-10), and given again to
//! the caller that it was given to, whatever others of its tenant may do. Keys of events are taken by the flush that writes the
//! event: [`crate::accept`]. [`expire`] deletes both kinds when their time is over.

mod expire;

use bytes::Bytes;
pub use expire::{Expired, expire};
use posthorn_domain::id::KeyId;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::limits;
use posthorn_domain::seal::SealError;
use secrecy::ExposeSecret as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::configure::Sealer;
use crate::database::{self, Database, TenantTransaction};
use crate::read::DatabaseError;
use crate::scope::TenantScope;

/// Why a key could be neither claimed nor settled.
#[derive(Debug, thiserror::Error)]
pub enum IdempotentError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An answer could not be sealed, or a sealed one not be opened.
    #[error("the master keys do not serve: {0}")]
    Seal(#[from] SealError),
    /// Headers could not be written or read.
    #[error("an answer's headers cannot be written or read")]
    Headers(#[from] serde_json::Error),
}

impl From<database::DatabaseError> for IdempotentError {
    fn from(error: database::DatabaseError) -> Self {
        Self::Database(error.into())
    }
}

crate::database::from_driver!(IdempotentError);

/// A request with a key.
#[derive(Clone, Debug)]
pub struct KeyedRequest {
    /// Whose.
    pub scope: TenantScope,
    /// Method and path, with the ids in it.
    pub route: String,
    /// The key.
    pub key: IdempotencyKey,
    /// SHA-256 of its body.
    pub body_hash: BodyHash,
}

impl KeyedRequest {
    /// What a sealed answer is bound to.
    fn associated_data(&self) -> Vec<u8> {
        bound_to(self.scope.tenant().uuid(), &self.route, self.key.as_str())
    }
}

/// What a kept answer is bound to.
pub(crate) fn bound_to(tenant: Uuid, route: &str, key: &str) -> Vec<u8> {
    // No route has a NUL, so no two pairs of route and key read the same.
    [tenant.as_bytes(), route.as_bytes(), b"\0", key.as_bytes()].concat()
}

/// An answer as it was given. It may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Those of its headers that belong to it, by name.
    pub headers: Vec<(String, String)>,
    /// Its body, byte for byte.
    pub body: Bytes,
}

/// How a key stands.
pub enum Claimed {
    /// Nobody had it: run the request, then settle the claim.
    Mine(Claim),
    /// Another request with it is under way.
    Running,
    /// Its request was done, and the server went down before the answer was kept.
    Lost,
    /// Its request was done, and its answer is for another caller.
    Withheld,
    /// It stands for a request with another body.
    Reused,
    /// The request was answered.
    Answered(Answer),
}

/// The right to run a request, until it is settled or its time is over.
pub struct Claim {
    request: KeyedRequest,
    number: i64,
}

/// Takes the key of a request of `caller`, an API key of the tenant, or says who has it.
///
/// # Errors
/// When the database does not answer, or a kept answer cannot be opened.
pub async fn claim(
    database: &Database,
    request: KeyedRequest,
    caller: KeyId,
    sealer: &Sealer<'_>,
) -> Result<Claimed, IdempotentError> {
    let number = i64::from_be_bytes(sealer.entropy.bytes());
    // A row may go between the two statements: by the end of its request, or of its time.
    for _ in 0..3 {
        let mut tx = database.tenant_tx(&request.scope).await?;
        if take(&mut tx, &request, caller, number).await? {
            tx.commit().await?;
            return Ok(Claimed::Mine(Claim { request, number }));
        }
        let held = held(&mut tx, &request, caller).await?;
        tx.commit().await?;
        if let Some(held) = held {
            return held.told(&request, sealer);
        }
    }
    Ok(Claimed::Running)
}

/// Whether the key of an event stands for a submission with another body: asked where a submission is refused for its
/// content, so that the refusal names the key first.
///
/// # Errors
/// When the database does not answer.
pub async fn event_key_is_reused(
    database: &Database,
    request: &KeyedRequest,
) -> Result<bool, DatabaseError> {
    let mut tx = database.tenant_tx(&request.scope).await?;
    let reused = sqlx::query_scalar!(
        r#"SELECT EXISTS (
               SELECT 1 FROM idempotency_keys AS k
               WHERE k.tenant_id = $1 AND k.route = $2 AND k.key = $3 AND k.body_hash <> $4 AND k.expires_at > now()
                 AND (EXISTS (SELECT 1 FROM events AS e WHERE e.tenant_id = k.tenant_id AND e.id = k.event_id)
                      OR EXISTS (SELECT 1 FROM kept_events AS e WHERE e.tenant_id = k.tenant_id AND e.id = k.event_id))
           ) AS "reused!""#,
        request.scope.tenant().uuid(),
        request.route,
        request.key.as_str(),
        request.body_hash.as_bytes().as_slice(),
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(reused)
}

/// Takes a key that nobody has, or nobody any more.
async fn take(
    tx: &mut TenantTransaction,
    request: &KeyedRequest,
    caller: KeyId,
    number: i64,
) -> Result<bool, database::DatabaseError> {
    let hit = sqlx::query!(
        "INSERT INTO idempotent_answers AS a (tenant_id, route, key, claim, caller, body_hash, running_until, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7), now() + make_interval(secs => $8))
         ON CONFLICT (tenant_id, route, key) DO UPDATE
         SET claim = excluded.claim, caller = excluded.caller, body_hash = excluded.body_hash, running_until = excluded.running_until,
             status = NULL, key_id = NULL, sealed = NULL, changed = false, expires_at = excluded.expires_at
         WHERE (a.running_until <= now() AND NOT a.changed) OR a.expires_at <= now()",
        request.scope.tenant().uuid(),
        request.route,
        request.key.as_str(),
        number,
        caller.uuid(),
        request.body_hash.as_bytes().as_slice(),
        limits::IDEMPOTENCY_RUNNING.as_secs_f64(),
        limits::IDEMPOTENCY_LIFE.as_secs_f64(),
    )
    .execute(&mut **tx)
    .await?;
    Ok(hit.rows_affected() == 1)
}

/// A key that somebody else has.
struct Held {
    body_hash: Vec<u8>,
    status: Option<i16>,
    key_id: Option<String>,
    sealed: Option<Vec<u8>>,
    /// It was the same caller's request.
    own: bool,
    /// Its change stands, and its time is over.
    lost: bool,
}

async fn held(
    tx: &mut TenantTransaction,
    request: &KeyedRequest,
    caller: KeyId,
) -> Result<Option<Held>, database::DatabaseError> {
    sqlx::query_as!(
        Held,
        r#"SELECT body_hash, status, key_id, sealed, caller IS NOT DISTINCT FROM $4 AS "own!",
                  coalesce(running_until <= now(), false) AND changed AS "lost!"
           FROM idempotent_answers
           WHERE tenant_id = $1 AND route = $2 AND key = $3"#,
        request.scope.tenant().uuid(),
        request.route,
        request.key.as_str(),
        caller.uuid(),
    )
    .fetch_optional(&mut **tx)
    .await
    .map_err(database::DatabaseError::from)
}

impl Held {
    fn told(self, request: &KeyedRequest, sealer: &Sealer<'_>) -> Result<Claimed, IdempotentError> {
        if self.body_hash != request.body_hash.as_bytes() {
            return Ok(Claimed::Reused);
        }
        let (Some(status), Some(key_id), Some(sealed)) = (self.status, self.key_id, self.sealed)
        else {
            return Ok(if self.lost {
                Claimed::Lost
            } else {
                Claimed::Running
            });
        };
        if !self.own {
            return Ok(Claimed::Withheld);
        }
        let plain = sealer
            .ring
            .open(&key_id, &sealed, &request.associated_data())?;
        let plain = plain.expose_secret();
        let end = plain
            .iter()
            .position(|byte| *byte == END_OF_HEADERS)
            .unwrap_or(plain.len());
        let (headers, body) = plain.split_at(end);
        Ok(Claimed::Answered(Answer {
            status: u16::try_from(status).unwrap_or_default(),
            headers: serde_json::from_slice(headers)?,
            body: Bytes::copy_from_slice(body.get(1..).unwrap_or_default()),
        }))
    }
}

/// What stands between the headers, a JSON text in one line, and the body.
const END_OF_HEADERS: u8 = b'\n';

impl Claim {
    /// Keeps the answer of the request for whoever sends it again. Where the claim was lost, since the request took
    /// longer than it may, the later one's answer is the one that counts.
    ///
    /// # Errors
    /// When the database does not answer or the answer cannot be sealed; then the key is free when the request's time
    /// is over.
    pub async fn keep(
        self,
        database: &Database,
        answer: &Answer,
        sealer: &Sealer<'_>,
    ) -> Result<(), IdempotentError> {
        let mut plain = serde_json::to_vec(&answer.headers)?;
        plain.push(END_OF_HEADERS);
        plain.extend_from_slice(&answer.body);
        let bound = self.request.associated_data();
        let sealed = sealer.ring.seal(&plain, &bound, sealer.entropy.bytes())?;
        let mut tx = database.tenant_tx(&self.request.scope).await?;
        let hit = sqlx::query!(
            "UPDATE idempotent_answers SET running_until = NULL, status = $5, key_id = $6, sealed = $7
             WHERE tenant_id = $1 AND route = $2 AND key = $3 AND claim = $4 AND running_until IS NOT NULL",
            self.request.scope.tenant().uuid(),
            self.request.route,
            self.request.key.as_str(),
            self.number,
            i16::try_from(answer.status).unwrap_or_default(),
            sealed.key_id,
            sealed.bytes,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if hit.rows_affected() == 0 {
            tracing::warn!(route = self.request.route, "a request outlived its claim");
        }
        Ok(())
    }

    /// Frees the key of a request that failed: the next one with it runs.
    ///
    /// # Errors
    /// When the database does not answer; then the key is free when the request's time is over.
    pub async fn release(self, database: &Database) -> Result<(), IdempotentError> {
        let mut tx = database.tenant_tx(&self.request.scope).await?;
        let hit = sqlx::query!(
            "DELETE FROM idempotent_answers
             WHERE tenant_id = $1 AND route = $2 AND key = $3 AND claim = $4 AND running_until IS NOT NULL AND NOT changed",
            self.request.scope.tenant().uuid(),
            self.request.route,
            self.request.key.as_str(),
            self.number,
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        if hit.rows_affected() == 0 {
            tracing::warn!(
                route = self.request.route,
                "a request outlived its claim, or its change stands"
            );
        }
        Ok(())
    }

    /// Runs the request: what it changes is marked as this claim's.
    pub async fn cover<F: Future>(&self, request: F) -> F::Output {
        let marked = Marked {
            tenant: self.request.scope.tenant().uuid(),
            route: self.request.route.clone(),
            key: self.request.key.as_str().to_owned(),
            number: self.number,
        };
        MARKED.scope(marked, request).await
    }
}

/// Which row a change marks.
#[derive(Clone)]
struct Marked {
    tenant: Uuid,
    route: String,
    key: String,
    number: i64,
}

tokio::task_local! {
    /// The claim of the request that this task runs. Beside every argument, since it is no part of any change: whoever changes
    /// something calls [`mark`], and whoever asks for a change need not know of keys.
    static MARKED: Marked;
}

/// Marks the claim of the request that is running, if it has one, as a part of the transaction that changes something. To be called by
/// each transaction that a POST may bring about, and only there.
///
/// # Errors
/// When the database does not answer, and where the request took longer than it may and its claim is another's: then the change
/// must not be made.
pub(crate) async fn mark(connection: &mut PgConnection) -> Result<(), database::DatabaseError> {
    let Ok(marked) = MARKED.try_with(Clone::clone) else {
        return Ok(());
    };
    let hit = sqlx::query!(
        "UPDATE idempotent_answers SET changed = true
         WHERE tenant_id = $1 AND route = $2 AND key = $3 AND claim = $4 AND running_until > now()",
        marked.tenant,
        marked.route,
        marked.key,
        marked.number,
    )
    .execute(connection)
    .await?;
    if hit.rows_affected() == 1 {
        Ok(())
    } else {
        tracing::warn!(route = marked.route, "a request outlived its claim");
        Err(database::DatabaseError::no_row())
    }
}

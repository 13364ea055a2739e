//! Whether the master keys that the program was given are those that sealed this database.
//!
//! The first time a key seals here, a known text sealed by it is kept beside. A wrong ring is so found at
//! start, with a clear word, and not at the first delivery. It proves the ring, and protects nothing.

use posthorn_domain::seal::{KeyRing, SealError};
use sqlx::PgConnection;

use crate::database::{Database, DatabaseError};
use crate::migrate::{Login, MigrateError};

/// What is sealed: nothing secret.
const KNOWN_TEXT: &[u8] = b"posthorn master key probe";

/// Bound to the sealed text, so that it opens as nothing else.
const BOUND_TO: &[u8] = b"posthorn/master-key-probe";

/// Why a ring is refused.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// The database could not be asked.
    #[error(transparent)]
    Database(#[from] MigrateError),
    /// Something here was sealed by a key that the ring lacks.
    #[error(
        "secrets in this database are sealed with the master key `{key_id}`, which POSTHORN_MASTER_KEYS (or the key file) \
         does not hold. Nothing was changed; start again with the keys that were in use before"
    )]
    Missing {
        /// The key's id.
        key_id: String,
    },
    /// The ring has another key under the same id.
    #[error(
        "the master key `{key_id}` is not the one that sealed the secrets in this database. \
         Nothing was changed; start again with the keys that were in use before"
    )]
    Wrong {
        /// The key's id.
        key_id: String,
    },
    /// The known text could not be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
}

impl From<DatabaseError> for MasterKeyError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error.into())
    }
}

crate::database::from_driver!(MasterKeyError);

/// The ids of the keys that sealed something here.
///
/// # Errors
/// When the database cannot be asked.
pub async fn known(login: &Login) -> Result<Vec<String>, MasterKeyError> {
    let mut connection = login.connect_as_system().await?;
    let ids = sqlx::query_scalar!("SELECT key_id FROM master_key_probe ORDER BY key_id")
        .fetch_all(&mut connection)
        .await?;
    Ok(ids)
}

/// Opens what each known key sealed, and changes nothing.
///
/// # Errors
/// When a key is missing from the ring or is another than the one that sealed.
pub async fn prove(login: &Login, ring: &KeyRing) -> Result<(), MasterKeyError> {
    let mut connection = login.connect_as_system().await?;
    prove_on(&mut connection, ring).await
}

/// As [`probe`], for a node whose stream is open by now: from then on whoever makes a key the first one, or lets go of one
/// ([`crate::reseal`]), sees which keys it has; what was done before it sees here.
///
/// # Errors
/// As [`prove`].
pub async fn prove_again(
    database: &Database,
    ring: &KeyRing,
    nonce: [u8; 12],
) -> Result<(), MasterKeyError> {
    let mut tx = database.system_tx().await?;
    prove_on(&mut tx, ring).await?;
    remember(&mut tx, ring, nonce).await?;
    tx.commit().await?;
    Ok(())
}

async fn prove_on(connection: &mut PgConnection, ring: &KeyRing) -> Result<(), MasterKeyError> {
    let rows = sqlx::query!("SELECT key_id, sealed FROM master_key_probe ORDER BY key_id")
        .fetch_all(connection)
        .await?;
    rows.iter()
        .try_for_each(|row| opens(ring, &row.key_id, &row.sealed))
}

/// The same, and remembers the ring's first key when it is new here. `nonce` must be fresh random bytes.
///
/// # Errors
/// As [`prove`].
pub async fn probe(login: &Login, ring: &KeyRing, nonce: [u8; 12]) -> Result<(), MasterKeyError> {
    prove(login, ring).await?;
    let mut connection = login.connect_as_system().await?;
    remember(&mut connection, ring, nonce).await
}

/// Remembers the ring's first key where it is new here.
pub(crate) async fn remember(
    connection: &mut PgConnection,
    ring: &KeyRing,
    nonce: [u8; 12],
) -> Result<(), MasterKeyError> {
    let sealed = ring.seal(KNOWN_TEXT, BOUND_TO, nonce)?;
    sqlx::query!(
        "INSERT INTO master_key_probe (key_id, sealed) VALUES ($1, $2) ON CONFLICT (key_id) DO NOTHING",
        sealed.key_id,
        sealed.bytes,
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn opens(ring: &KeyRing, key_id: &str, sealed: &[u8]) -> Result<(), MasterKeyError> {
    match ring.open(key_id, sealed, BOUND_TO) {
        Ok(_) => Ok(()),
        Err(SealError::UnknownKey(_)) => Err(MasterKeyError::Missing {
            key_id: key_id.to_owned(),
        }),
        Err(_) => Err(MasterKeyError::Wrong {
            key_id: key_id.to_owned(),
        }),
    }
}

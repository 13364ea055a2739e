//! Expire: keys and entries of the audit log whose time is over are deleted, away from everything that is in a hurry; and
//! endpoints that have been well for a while are forgotten.
//!
//! A key that has expired counts as unused already; this only makes room. Part of housekeeping, but every node may do it at
//! any time: rows that another one holds are skipped.

use posthorn_domain::limits;
use posthorn_store::audit;
use posthorn_store::database::Database;
use posthorn_store::health;
use posthorn_store::idempotent::{self, Expired};

/// Deletes keys whose time is over.
pub struct Expiry {
    database: Database,
}

impl Expiry {
    /// Nothing is deleted yet.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database }
    }

    /// Deletes what there is, batch by batch, up to [`limits::EXPIRE_BATCHES`]. Answers how much.
    pub async fn run_once(&self) -> Expired {
        if let Err(error) = health::forget(&self.database).await {
            tracing::warn!(%error, "endpoints that are well could not be forgotten");
        }
        self.expire_audit().await;
        let mut deleted = Expired::default();
        for _ in 0..limits::EXPIRE_BATCHES {
            match idempotent::expire(&self.database).await {
                Ok(Expired {
                    keys: 0,
                    answers: 0,
                }) => break,
                Ok(batch) => {
                    deleted.keys += batch.keys;
                    deleted.answers += batch.answers;
                }
                Err(error) => {
                    tracing::warn!(%error, "keys that have expired could not be deleted");
                    break;
                }
            }
        }
        deleted
    }

    async fn expire_audit(&self) {
        for _ in 0..limits::EXPIRE_BATCHES {
            match audit::expire(&self.database).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "old entries of the audit log could not be deleted");
                    break;
                }
            }
        }
    }
}

//! When API keys were last used: noted in memory by every call, written apart from it, at most once a minute a key.
//!
//! Guarantees: a call waits for no statement, whatever the database does; what is noted is bounded (INV-11), and so is
//! each statement; a time never goes back. Not guaranteed: the last minute. A key that was used again within a minute of
//! the time on record keeps that time, and what was noted when a node ends is not written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::limits;
use uuid::Uuid;

use crate::database::{Database, DatabaseError};

/// When each key was last used.
type Noted = HashMap<(TenantId, KeyId), DateTime<Utc>>;

/// Uses that are not on record yet. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeyUses {
    noted: Arc<Mutex<Noted>>,
}

/// One statement's rows, column by column.
#[derive(Default)]
struct Rows {
    tenants: Vec<Uuid>,
    keys: Vec<Uuid>,
    times: Vec<DateTime<Utc>>,
}

impl KeyUses {
    /// A key of this tenant was used `at`. Forgotten when more keys than [`limits::KEY_USES`] wait to be written; such a
    /// key is noted again by its next use.
    pub fn note(&self, tenant: TenantId, key: KeyId, at: DateTime<Utc>) {
        let mut noted = self.lock();
        let room = noted.len() < limits::KEY_USES;
        match noted.get_mut(&(tenant, key)) {
            Some(last) => *last = at.max(*last),
            None if room => {
                noted.insert((tenant, key), at);
            }
            None => {}
        }
    }

    /// Keys whose use is not on record yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what was noted up to now, in statements of at most [`limits::KEY_USE_ROWS`], and says how many keys have a
    /// newer time on record.
    ///
    /// # Errors
    /// When the database does not answer; what was not written stays noted.
    pub async fn run_once(&self, database: &Database) -> Result<u64, DatabaseError> {
        let mut due: Vec<_> = self.lock().iter().map(|(key, at)| (*key, *at)).collect();
        // Nodes that write the same keys lock them in the same order.
        due.sort_unstable();
        let mut written = 0;
        for batch in due.chunks(limits::KEY_USE_ROWS) {
            let mut rows = Rows::default();
            for ((tenant, key), at) in batch {
                rows.tenants.push(tenant.uuid());
                rows.keys.push(key.uuid());
                rows.times.push(*at);
            }
            written += write(database, &rows).await?;
            let mut noted = self.lock();
            for (key, at) in batch {
                if noted.get(key) == Some(at) {
                    noted.remove(key);
                }
            }
        }
        Ok(written)
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn write(database: &Database, rows: &Rows) -> Result<u64, DatabaseError> {
    let done = sqlx::query!(
        "WITH used AS MATERIALIZED (
             SELECT tenant_id, id, at
             FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS used (tenant_id, id, at)
         ),
         -- Locked in one order, so that two nodes never wait for one another.
         held AS MATERIALIZED (
             SELECT k.tenant_id, k.id, used.at
             FROM api_keys AS k
             JOIN used ON used.tenant_id = k.tenant_id AND used.id = k.id
             WHERE k.last_used_at IS NULL OR k.last_used_at <= used.at - make_interval(secs => $4)
             ORDER BY k.tenant_id, k.id
             FOR NO KEY UPDATE OF k
         )
         UPDATE api_keys AS k
         SET last_used_at = held.at
         FROM held
         WHERE k.tenant_id = held.tenant_id AND k.id = held.id",
        &rows.tenants,
        &rows.keys,
        &rows.times,
        limits::KEY_USE_EVERY.as_secs_f64(),
    )
    .execute(database.system())
    .await?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    fn key(number: u128) -> KeyId {
        KeyId::from_uuid(Uuid::from_u128(number))
    }

    const TENANT: TenantId = TenantId::from_uuid(Uuid::from_u128(1));

    /// INV-11.
    #[test]
    fn what_is_noted_is_bounded_and_known_keys_are_still_noted() {
        let uses = KeyUses::default();
        for number in 0..limits::KEY_USES as u128 + 10 {
            uses.note(TENANT, key(number), at(1));
        }
        assert_eq!(uses.len(), limits::KEY_USES);
        uses.note(TENANT, key(0), at(2));
        assert_eq!(uses.lock()[&(TENANT, key(0))], at(2));
    }

    #[test]
    fn a_noted_time_never_goes_back() {
        let uses = KeyUses::default();
        uses.note(TENANT, key(1), at(2));
        uses.note(TENANT, key(1), at(1));
        assert_eq!(uses.lock()[&(TENANT, key(1))], at(2));
    }
}

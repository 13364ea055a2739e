//! Health: what nodes tell one another about endpoints that are not well. Circuits, and floors that receivers asked for.
//!
//! A row of `endpoint_state` for each endpoint that is not well or was not until lately; most have none. Every node polls for
//! what changed. It is no part of the configuration: a circuit that opens has nothing matched again.
//!
//! Guarantees: each change states the revision or the state that it expects, so that two nodes never both move one circuit.
//! Does not: decide when a circuit opens; that is [`posthorn_domain::circuit`].

mod change;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_domain::limits;
use tokio::sync::Mutex;

use crate::database::{Database, DatabaseError};

pub(crate) use self::change::start_afresh;
pub use self::change::{Opening, Probed, close, floor, forget, open, probed, ramp, reopen};

/// Where an endpoint's circuit stands, for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedCircuit {
    /// Nothing is sent but probes.
    Open {
        /// Since when.
        opened_at: DateTime<Utc>,
        /// Probes that failed.
        probes: u32,
        /// When the next is made.
        next_probe_at: DateTime<Utc>,
    },
    /// The owner of its shard sends to it, more and more.
    Ramping,
}

/// What nodes know of an endpoint that is not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Counts the changes.
    pub revision: i64,
    /// Until then nothing is sent: the receiver said so.
    pub retry_after: Option<DateTime<Utc>>,
    /// `None`: closed.
    pub circuit: Option<SharedCircuit>,
}

impl Health {
    /// Whether it is well as far as all nodes know.
    fn is_well(&self, now: DateTime<Utc>) -> bool {
        self.circuit.is_none() && self.retry_after.is_none_or(|until| until <= now)
    }
}

/// The endpoints that are not well.
#[derive(Default)]
pub struct HealthSnapshot {
    /// Counts the snapshots.
    version: u64,
    /// The database's time when it was read.
    read_at: Option<DateTime<Utc>>,
    rows: HashMap<(TenantId, EndpointId), Health>,
}

impl HealthSnapshot {
    /// Which one it is: another one has another number.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Whether all endpoints are well.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The endpoints that are not well.
    pub fn endpoints(&self) -> impl Iterator<Item = (TenantId, EndpointId)> {
        self.rows.keys().copied()
    }

    /// Whether an endpoint of some tenant is among them.
    #[must_use]
    pub fn knows(&self, endpoint: EndpointId) -> bool {
        self.rows.keys().any(|(_, known)| *known == endpoint)
    }

    /// An endpoint that is not well.
    #[must_use]
    pub fn get(&self, tenant: TenantId, endpoint: EndpointId) -> Option<&Health> {
        self.rows.get(&(tenant, endpoint))
    }
}

/// The present snapshot and the way to a newer one. Cheap to clone.
#[derive(Clone)]
pub struct HealthCache {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    present: ArcSwap<HealthSnapshot>,
    /// One reading at a time: a later one would only find less to do.
    reading: Mutex<()>,
}

impl HealthCache {
    /// All are well until the first [`HealthCache::refresh`].
    #[must_use]
    pub fn new(database: Database) -> Self {
        let inner = Inner {
            database,
            present: ArcSwap::default(),
            reading: Mutex::new(()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The present snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Arc<HealthSnapshot> {
        self.inner.present.load_full()
    }

    /// Reads what changed. After a long time without an answer it reads everything: what returned to normal meanwhile may have
    /// been forgotten.
    ///
    /// # Errors
    /// When the database does not answer; the present snapshot stays.
    pub async fn refresh(&self) -> Result<(), DatabaseError> {
        let _one = self.inner.reading.lock().await;
        let present = self.snapshot();
        let since = present.read_at.map(|at| at - delta(limits::HEALTH_OVERLAP));
        let (now, changed) = read(&self.inner.database, since).await?;
        let anew = present
            .read_at
            .is_none_or(|at| now - at > delta(limits::HEALTH_KEPT / 2));
        let (now, changed) = if anew && since.is_some() {
            read(&self.inner.database, None).await?
        } else {
            (now, changed)
        };
        let mut rows = if anew {
            HashMap::new()
        } else {
            present.rows.clone()
        };
        for (of, health) in changed {
            rows.insert(of, health);
        }
        rows.retain(|_, health| !health.is_well(now));
        let version = present.version + u64::from(rows != present.rows);
        self.inner.present.store(Arc::new(HealthSnapshot {
            version,
            read_at: Some(now),
            rows,
        }));
        Ok(())
    }
}

fn delta(span: Duration) -> TimeDelta {
    TimeDelta::from_std(span).unwrap_or(TimeDelta::MAX)
}

type Changed = Vec<((TenantId, EndpointId), Health)>;

/// The database's time, and the rows that changed since. Rows commit a little later than they say, so whoever asks goes
/// back some seconds.
async fn read(
    database: &Database,
    since: Option<DateTime<Utc>>,
) -> Result<(DateTime<Utc>, Changed), DatabaseError> {
    let rows = sqlx::query!(
        r#"SELECT clock.now AS "now!", s.tenant_id AS "tenant_id?", s.endpoint_id AS "endpoint_id?", s.revision AS "revision?",
                  s.retry_after, s.circuit AS "circuit?", s.opened_at, s.probes AS "probes?", s.next_probe_at
           FROM (SELECT now() AS now) AS clock
           LEFT JOIN endpoint_state AS s ON s.changed_at > $1"#,
        since.unwrap_or(DateTime::UNIX_EPOCH),
    )
    .fetch_all(database.system())
    .await?;
    let now = rows.first().map_or(DateTime::UNIX_EPOCH, |row| row.now);
    let changed = rows.into_iter().filter_map(|row| {
        let of = (
            TenantId::from_uuid(row.tenant_id?),
            EndpointId::from_uuid(row.endpoint_id?),
        );
        let circuit = match (row.circuit?.as_str(), row.opened_at, row.next_probe_at) {
            ("open", Some(opened_at), Some(next_probe_at)) => Some(SharedCircuit::Open {
                opened_at,
                probes: u32::try_from(row.probes?).unwrap_or(0),
                next_probe_at,
            }),
            ("ramping", ..) => Some(SharedCircuit::Ramping),
            _ => None,
        };
        let health = Health {
            revision: row.revision?,
            retry_after: row.retry_after,
            circuit,
        };
        Some((of, health))
    });
    Ok((now, changed.collect()))
}

//! Whether this node should be sent requests, and if not, why.
//!
//! A node whose stream is not open, or whose lease lapsed, does nothing of what its roles say, so it is not ready.
//!
//! Looks at the database at most once a second, however often it is asked, and never for longer than two.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::migrate::{self, Login};
use posthorn_store::stream::{LeaseState, StreamKeeper};
use serde::Serialize;

use crate::settings::Role;

/// For how long an answer of the database is repeated.
const FRESH: Duration = Duration::from_secs(1);

/// Days after today that must have their partitions: with less, inserts would fail before the day is over
/// somewhere in the world.
const DAYS_AHEAD: i64 = 1;

/// One thing that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    /// A word for programs.
    pub(super) code: &'static str,
    /// A sentence for people; it names nothing that a stranger should not know.
    pub(super) detail: String,
}

/// What this node is doing, and what its database says.
#[derive(Clone)]
pub(super) struct Readiness {
    inner: Arc<Inner>,
}

struct Inner {
    clock: Clock,
    phase: Mutex<Phase>,
    login: Mutex<Option<Login>>,
    engine: OnceLock<(Arc<StreamKeeper>, BTreeSet<Role>)>,
    last: tokio::sync::Mutex<Option<(Instant, Vec<Reason>)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Running,
    Stopping,
}

impl Readiness {
    pub(super) fn new(clock: Clock) -> Self {
        let inner = Inner {
            clock,
            phase: Mutex::new(Phase::Starting),
            login: Mutex::new(None),
            engine: OnceLock::new(),
            last: tokio::sync::Mutex::new(None),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// From here on the database is looked at, too.
    pub(super) fn watch(&self, login: Login) {
        *self
            .inner
            .login
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(login);
    }

    /// From here on the engine's lease is looked at, too; the roles say what the node does while it is held.
    pub(super) fn follow(&self, keeper: Arc<StreamKeeper>, roles: BTreeSet<Role>) {
        // The engine is started once.
        let _ = self.inner.engine.set((keeper, roles));
    }

    /// What the node does, once it runs.
    pub(super) fn roles(&self) -> Vec<&'static str> {
        let engine = self.inner.engine.get();
        let roles = engine.map(|(_, roles)| roles.iter());
        roles
            .into_iter()
            .flatten()
            .map(|role| role.as_str())
            .collect()
    }

    pub(super) fn running(&self) {
        self.enter(Phase::Running);
    }

    pub(super) fn stopping(&self) {
        self.enter(Phase::Stopping);
    }

    /// Everything that is missing; nothing when the node is ready.
    pub(super) async fn reasons(&self) -> Vec<Reason> {
        let phase = *self
            .inner
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let own = match phase {
            Phase::Starting => Some(Reason {
                code: "starting",
                detail: "the node is starting".to_owned(),
            }),
            Phase::Stopping => Some(Reason {
                code: "stopping",
                detail: "the node is stopping".to_owned(),
            }),
            Phase::Running => None,
        };
        if phase == Phase::Stopping {
            return own.into_iter().collect();
        }
        let of_the_database = self.of_the_database().await;
        let engine = self.inner.engine.get();
        let lease = engine.and_then(|(keeper, roles)| missing_of(keeper.lease(), roles));
        // The database comes first: a lease that lapsed is often only what follows from it.
        own.into_iter()
            .chain(of_the_database)
            .chain(lease)
            .collect()
    }

    fn enter(&self, phase: Phase) {
        *self
            .inner
            .phase
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = phase;
    }

    async fn of_the_database(&self) -> Vec<Reason> {
        let login = self
            .inner
            .login
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(login) = login else {
            return Vec::new();
        };
        let mut last = self.inner.last.lock().await;
        let now = self.inner.clock.monotonic();
        if let Some((at, reasons)) = &*last
            && now.saturating_duration_since(*at) < FRESH
        {
            return reasons.clone();
        }
        let reasons = look(&login, last.as_ref().map(|(_, before)| before.as_slice())).await;
        *last = Some((self.inner.clock.monotonic(), reasons.clone()));
        reasons
    }
}

/// What the database lacks. Why it cannot be asked is told once, and not at each look.
async fn look(login: &Login, before: Option<&[Reason]>) -> Vec<Reason> {
    let unreachable = || {
        vec![Reason {
            code: "database_unreachable",
            detail: "the database does not answer".to_owned(),
        }]
    };
    match tokio::time::timeout(limits::READINESS_WAIT, migrate::inspect(login)).await {
        Err(_) => unreachable(),
        Ok(Err(error)) => {
            if before != Some(unreachable().as_slice()) {
                tracing::warn!(%error, "the database was looked at for readiness");
            }
            unreachable()
        }
        Ok(Ok(standing)) => missing_in(&standing),
    }
}

/// What is missing of the lease, and what a node of these roles does not do for it; nothing while it is held.
fn missing_of(lease: LeaseState, roles: &BTreeSet<Role>) -> Option<Reason> {
    let (code, missing) = match lease {
        LeaseState::Held => return None,
        LeaseState::Lapsed => ("lease_lapsed", "the node's lease could not be renewed"),
        LeaseState::NoStream => ("stream_closed", "the node has no open stream"),
    };
    let doing = Role::doing(roles);
    Some(Reason {
        code,
        detail: format!("{missing}, so it {doing} nothing"),
    })
}

fn missing_in(standing: &migrate::Standing) -> Vec<Reason> {
    let pending = &standing.pending.names;
    if !pending.is_empty() {
        let detail = format!(
            "{} migrations are missing: {}",
            pending.len(),
            pending.join(", ")
        );
        return vec![Reason {
            code: "migrations_pending",
            detail,
        }];
    }
    if standing.leaves_until.is_none() || standing.days_ahead < DAYS_AHEAD {
        let until = standing
            .leaves_until
            .map_or("none".to_owned(), |day| day.to_string());
        let detail = format!("partitions are made too few days ahead (last: {until})");
        return vec![Reason {
            code: "partitions_missing",
            detail,
        }];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;

    use super::*;

    fn standing(days_ahead: i64, pending: &[&str]) -> migrate::Standing {
        migrate::Standing {
            server_version: 180_000,
            now: chrono::DateTime::UNIX_EPOCH,
            pending: migrate::Pending {
                names: pending.iter().map(|name| (*name).to_owned()).collect(),
                unknown: None,
            },
            leaves_until: NaiveDate::from_ymd_opt(2026, 1, 1),
            days_ahead,
        }
    }

    #[test]
    fn less_than_a_day_of_partitions_ahead_is_not_ready() {
        assert_eq!(missing_in(&standing(1, &[])), Vec::new());
        assert_eq!(
            missing_in(&standing(0, &[])).first().unwrap().code,
            "partitions_missing"
        );
    }

    #[test]
    fn a_node_without_its_lease_is_not_ready_and_says_so() {
        let missing = |lease| missing_of(lease, &Role::ALL.into());
        assert_eq!(missing(LeaseState::Held), None);
        assert_eq!(missing(LeaseState::Lapsed).unwrap().code, "lease_lapsed");
        assert_eq!(missing(LeaseState::NoStream).unwrap().code, "stream_closed");
    }

    #[test]
    fn a_node_says_what_of_its_roles_it_does_not_do() {
        let detail = |role| {
            missing_of(LeaseState::Lapsed, &[role].into())
                .unwrap()
                .detail
        };
        assert!(detail(Role::Api).ends_with("so it accepts nothing"));
        assert!(detail(Role::Worker).ends_with("so it sends nothing"));
    }

    #[test]
    fn a_node_that_runs_goes_on_while_a_newer_one_has_migrated() {
        let mut standing = standing(7, &[]);
        standing.pending.unknown = Some(9999);
        assert_eq!(missing_in(&standing), Vec::new());
    }

    #[test]
    fn missing_migrations_are_named() {
        let reasons = missing_in(&standing(7, &["0003 walls"]));
        assert!(reasons.first().unwrap().detail.contains("0003 walls"));
    }

    #[tokio::test]
    async fn a_node_that_is_starting_or_stopping_is_not_ready() {
        let readiness = Readiness::new(Clock::start());
        assert_eq!(readiness.reasons().await.first().unwrap().code, "starting");
        readiness.running();
        assert_eq!(readiness.reasons().await, Vec::new());
        readiness.stopping();
        assert_eq!(readiness.reasons().await.first().unwrap().code, "stopping");
    }
}

//! Connections, and the roles that they act in.
//!
//! Two pools, and connections that serve one purpose: the batcher's, the recorder's, that of reading rows for sending, the
//! lease's and the scans', so that none of these ever waits behind other work. Engine connections act as `posthorn_system` from
//! the moment they connect (an autocommit flush cannot `SET LOCAL`); a tenant's work has its own pool, and
//! each of its transactions begins by taking the role `posthorn_tenant` and naming the tenant.

mod answered;
mod bounded;
mod error;
mod pool;
mod tenant;

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits;
use sqlx::postgres::PgConnectOptions;
use sqlx::{
    ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool, Postgres,
    Transaction,
};

pub use self::answered::{answered, unanswered};
pub(crate) use self::bounded::{Bounded, BoundedConnection, BoundedTransaction};
pub use self::error::DatabaseError;
pub(crate) use self::error::from_driver;
use self::pool::pool;
pub use self::tenant::TenantTransaction;
use self::tenant::Turns;
use crate::scope::TenantScope;

/// Connections of the due timer and of the sweep over parked rows.
const SCANS: u32 = 2;

/// Scans of `pending` read an index in its order and stop at their limit. A planner that expects little to be due would
/// rather gather all that is and sort it, which is ruinous in the hour in which much is.
const BY_INDEX_ORDER: [(&str, &str); 3] = [
    ("enable_bitmapscan", "off"),
    ("enable_seqscan", "off"),
    ("enable_sort", "off"),
];

/// How to reach the database.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// Host or socket, login, database.
    pub connect: PgConnectOptions,
    /// The login is not `posthorn_app` itself but may become it: every connection does so first.
    pub become_app: bool,
    /// Connections of the engine's scans and sweeps, beside those that serve one purpose.
    pub system_connections: u32,
    /// Connections of tenants' requests.
    pub tenant_connections: u32,
}

/// A reachable database: two pools and the way to dedicated connections. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    system: PgPool,
    tenant: PgPool,
    turns: Arc<Turns>,
    lease: PgPool,
    scans: PgPool,
    connect: PgConnectOptions,
    become_app: bool,
}

impl Database {
    /// Makes the pools. Connects on first use, so that a program can start while its database is away.
    #[must_use]
    pub fn new(options: DatabaseOptions) -> Self {
        let connect = bounded(options.connect);
        let become_app = options.become_app;
        let as_system = |connections, connect: &PgConnectOptions| {
            pool(connections)
                .after_connect(move |connection, _| {
                    Box::pin(async move {
                        enter(connection, become_app, Some("SET ROLE posthorn_system")).await
                    })
                })
                .connect_lazy_with(connect.clone())
        };
        let system = as_system(options.system_connections, &connect);
        let lease = as_system(1, &connect);
        let scans = as_system(SCANS, &connect.clone().options(BY_INDEX_ORDER));
        let tenant = pool(options.tenant_connections)
            .after_connect(move |connection, _| {
                Box::pin(async move { enter(connection, become_app, None).await })
            })
            .connect_lazy_with(connect.clone());
        let turns = Arc::new(Turns::of(options.tenant_connections));
        Self {
            system,
            tenant,
            turns,
            lease,
            scans,
            connect,
            become_app,
        }
    }

    /// Begins a transaction that sees one tenant's rows and no others. Of one tenant half of the connections at most are
    /// in use at once: what comes beyond waits, and the other tenants do not wait behind it (INV-13).
    ///
    /// # Errors
    /// When no connection can be had in time.
    pub async fn tenant_tx(&self, scope: &TenantScope) -> Result<TenantTransaction, DatabaseError> {
        answered(limits::DATABASE_WAIT, self.enter_tenant(scope)).await
    }

    async fn enter_tenant(&self, scope: &TenantScope) -> Result<TenantTransaction, DatabaseError> {
        let turn = self.turns.take(scope.tenant()).await;
        let mut tx = TenantTransaction::new(self.tenant.begin().await?, turn);
        sqlx::query!(
            "SELECT set_config('role', 'posthorn_tenant', true) AS role, set_config('posthorn.tenant', $1, true) AS tenant",
            scope.tenant().uuid().to_string(),
        )
        .fetch_one(&mut *tx)
        .await?;
        Ok(tx)
    }

    /// For one statement from the engine's pool. Connections act as `posthorn_system`.
    pub(crate) fn system(&self) -> Bounded<'_> {
        Bounded::Pool(&self.system)
    }

    /// Begins a transaction of the engine, for steps that are bounded as a whole.
    pub(crate) async fn system_tx(&self) -> Result<Transaction<'static, Postgres>, DatabaseError> {
        Ok(self.system.begin().await?)
    }

    /// For one statement on the lease's own connection, acting as `posthorn_system`: whatever else is going on, a lease is
    /// renewed in time.
    pub(crate) fn lease(&self) -> Bounded<'_> {
        Bounded::Pool(&self.lease)
    }

    /// Begins a transaction on that connection, for steps that are bounded as a whole.
    pub(crate) async fn lease_tx(&self) -> Result<Transaction<'static, Postgres>, DatabaseError> {
        Ok(self.lease.begin().await?)
    }

    /// For looking through `pending` by the clock: whatever else is going on, what is due is found in time.
    pub(crate) fn scans(&self) -> Bounded<'_> {
        Bounded::Pool(&self.scans)
    }

    /// A connection outside the pools, acting as `posthorn_system`, for long work of many statements: recovery's and
    /// housekeeping's own.
    pub(crate) async fn dedicated_bounded(&self) -> Result<BoundedConnection, DatabaseError> {
        self.dedicated().await.map(BoundedConnection::new)
    }

    /// A connection outside the pools, acting as `posthorn_system`: the batcher's, the recorder's, the sender's own, who bound
    /// each of their steps as a whole.
    pub(crate) async fn dedicated(&self) -> Result<PgConnection, DatabaseError> {
        answered(limits::DATABASE_WAIT, self.enter_dedicated()).await
    }

    async fn enter_dedicated(&self) -> Result<PgConnection, DatabaseError> {
        let mut connection = self.connect.connect().await?;
        enter(
            &mut connection,
            self.become_app,
            Some("SET ROLE posthorn_system"),
        )
        .await?;
        // Every statement of these connections looks rows up by key. Tables that are nearly empty in one minute and
        // full in the next would tempt the planner, which remembers the one it was asked in, to read them whole.
        connection
            .execute(
                "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off",
            )
            .await?;
        Ok(connection)
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// The error of the connection.
    pub async fn ping(&self) -> Result<(), DatabaseError> {
        let mut connection = self.system.acquire().await?;
        Ok(connection.ping().await?)
    }

    /// Closes the pools, letting statements under way end; not those that nobody answers.
    pub async fn close(&self) {
        self.close_within(limits::SHUTDOWN_CLOSE.longest).await;
    }

    /// The same in so long a time.
    pub async fn close_within(&self, time: Duration) {
        let closing = async {
            tokio::join!(
                self.system.close(),
                self.lease.close(),
                self.scans.close(),
                self.tenant.close()
            )
        };
        if tokio::time::timeout(time, closing).await.is_err() {
            tracing::warn!(
                "connections to the database that were still in use were left as they are"
            );
        }
    }
}

/// Bounds what a statement may wait for, whatever the cluster's own settings (INV-11).
fn bounded(connect: PgConnectOptions) -> PgConnectOptions {
    let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    connect
        .application_name("posthorn")
        .options([
            ("statement_timeout", milliseconds(limits::STATEMENT_TIMEOUT)),
            ("lock_timeout", milliseconds(limits::LOCK_TIMEOUT)),
            (
                "idle_in_transaction_session_timeout",
                milliseconds(limits::IDLE_IN_TRANSACTION),
            ),
            ("tcp_user_timeout", milliseconds(limits::SERVER_UNHEARD)),
            ("tcp_keepalives_idle", seconds(limits::SERVER_KEEPALIVE)),
            ("tcp_keepalives_interval", seconds(limits::SERVER_KEEPALIVE)),
        ])
        .options([
            // What each statement relies on to see, whatever the database's own default is.
            ("default_transaction_isolation", "read committed"),
            ("timezone", "UTC"),
            ("jit", "off"),
            ("client_connection_check_interval", "5s"),
        ])
        .log_slow_statements(tracing::log::LevelFilter::Warn, Duration::from_secs(2))
        .log_statements(tracing::log::LevelFilter::Trace)
}

async fn enter(
    connection: &mut PgConnection,
    become_app: bool,
    role: Option<&str>,
) -> Result<(), sqlx::Error> {
    if become_app {
        connection
            .execute("SET SESSION AUTHORIZATION posthorn_app")
            .await?;
    }
    if let Some(role) = role {
        connection
            .execute(sqlx::AssertSqlSafe(role.to_owned()))
            .await?;
    }
    Ok(())
}

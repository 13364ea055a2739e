//! A database of one test's own, in the cluster that the run names.
//!
//! Guarantees: the schema is made once per day by the program's own migrations, in a template that every test's database is a
//! copy of; a test sees nothing of another's; its database is dropped with it. Does not: start a cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::str::FromStr as _;
use std::thread;

use posthorn_store::database::{Database, DatabaseOptions};
use posthorn_store::migrate::{self, Login};
use secrecy::SecretString;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection};

use crate::environment;
use crate::proxy::Proxy;

/// The advisory lock under which the template is made: many processes may begin at once.
const LOCK: &str = "SELECT pg_advisory_lock(hashtext('posthorn_tests_template'))";

/// What every template's name begins with; a date and the migrations' hash follow.
const TEMPLATE: &str = "posthorn_tests_template";

/// A migrated database, dropped with this.
pub struct TestDatabase {
    cluster: PgConnectOptions,
    name: String,
}

impl TestDatabase {
    /// Copies the template, which is made where it is missing.
    pub async fn create() -> Self {
        let cluster = PgConnectOptions::from_str(&environment::database())
            .expect("POSTHORN_TEST_DATABASE is a URL");
        let mut connection = cluster.connect().await.expect("the cluster answers");
        connection.execute(LOCK).await.unwrap();
        let template = template(&mut connection).await;
        let name = format!("posthorn_tests_{}", environment::unique());
        let copy = format!("CREATE DATABASE {name} TEMPLATE {template} OWNER posthorn_owner");
        connection.execute(AssertSqlSafe(copy)).await.unwrap();
        connection.close().await.unwrap();
        Self { cluster, name }
    }

    /// A node's way to it, with these many connections for the engine and for tenants.
    #[must_use]
    pub fn pools(&self, system_connections: u32, tenant_connections: u32) -> Database {
        Database::new(DatabaseOptions {
            connect: self.options(),
            become_app: true,
            system_connections,
            tenant_connections,
        })
    }

    /// The same through a proxy, which may lose what is said.
    #[must_use]
    pub fn pools_through(&self, proxy: &Proxy) -> Database {
        self.few_pools_through(proxy, 4)
    }

    /// The same with so many connections for the engine.
    #[must_use]
    pub fn few_pools_through(&self, proxy: &Proxy, system_connections: u32) -> Database {
        let connect = self
            .options()
            .host(&proxy.address().ip().to_string())
            .port(proxy.address().port())
            .ssl_mode(PgSslMode::Disable);
        Database::new(DatabaseOptions {
            connect,
            become_app: true,
            system_connections,
            tenant_connections: 2,
        })
    }

    /// A proxy before the cluster.
    pub async fn proxy(&self) -> Proxy {
        let to = format!("{}:{}", self.cluster.get_host(), self.cluster.get_port());
        Proxy::start(to).await.unwrap()
    }

    /// A superuser's connection, for looking and for moving the time.
    pub async fn superuser(&self) -> PgConnection {
        self.options().connect().await.unwrap()
    }

    fn options(&self) -> PgConnectOptions {
        self.cluster.clone().database(&self.name)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (cluster, name) = (self.cluster.clone(), self.name.clone());
        // A runtime cannot wait inside another one's thread. What goes wrong leaves a database behind, no more.
        let _ = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?;
            runtime.block_on(async {
                let mut connection = cluster.connect().await.ok()?;
                let gone = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                connection.execute(AssertSqlSafe(gone)).await.ok()
            })
        })
        .join();
    }
}

/// The template of these migrations and this day, made if it is not there; older days' are dropped.
async fn template(connection: &mut PgConnection) -> String {
    let today: String = sqlx::query_scalar("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    let name = format!("{TEMPLATE}_{today}_{:x}", migrations());
    let there: Vec<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)")
            .bind(TEMPLATE)
            .fetch_all(&mut *connection)
            .await
            .unwrap();
    if there.contains(&name) {
        return name;
    }
    let of_today = format!("{TEMPLATE}_{today}");
    for old in there.iter().filter(|old| !old.starts_with(&of_today)) {
        let gone = format!("DROP DATABASE IF EXISTS {old} WITH (FORCE)");
        connection.execute(AssertSqlSafe(gone)).await.unwrap();
    }
    // Under another name until it is whole.
    let half = format!("{name}_half");
    for statement in [
        format!("DROP DATABASE IF EXISTS {half} WITH (FORCE)"),
        format!("CREATE DATABASE {half} TEMPLATE template0 ENCODING 'UTF8'"),
    ] {
        connection.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    let url = SecretString::from(environment::database());
    let login = Login::from_url(&url).unwrap().of_database(&half);
    migrate::prepare(&login).await.unwrap();
    let whole = format!("ALTER DATABASE {half} RENAME TO {name}");
    connection.execute(AssertSqlSafe(whole)).await.unwrap();
    name
}

/// Tells one set of migrations from another.
fn migrations() -> u64 {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        std::fs::read(file).unwrap().hash(&mut hasher);
    }
    hasher.finish()
}

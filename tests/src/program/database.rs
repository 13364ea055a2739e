//! The database of an installation.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "what goes wrong here is a failed test"
)]

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
};

use crate::environment;
use crate::proxy::Proxy;
use crate::wait::until;

/// A database, and whether it was made for one test.
pub(super) struct Database {
    url: String,
    /// Its name in the shared cluster, where it was made here.
    made: Option<String>,
}

impl Database {
    /// A new one in the cluster that the run of the tests names.
    pub(super) async fn fresh() -> Self {
        let name = format!("posthorn_test_{}", environment::unique());
        let mut admin = PgConnection::connect(&environment::database())
            .await
            .expect("the tests need the database that POSTHORN_TEST_DATABASE names");
        // Two at a time may find the template in use.
        until(
            "a database to be made",
            Duration::from_secs(30),
            async || {
                let sql = format!("CREATE DATABASE {name}");
                admin.execute(AssertSqlSafe(sql)).await.ok()
            },
        )
        .await;
        Self {
            url: of_database(&environment::database(), &name),
            made: Some(name),
        }
    }

    /// One that is there.
    pub(super) fn given(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            made: None,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Host and port; it must listen on TCP.
    pub(super) fn place(&self) -> (String, u16) {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        (options.get_host().to_owned(), options.get_port())
    }

    /// A proxy before it.
    pub(super) async fn proxy(&self) -> Proxy {
        let (host, port) = self.place();
        Proxy::start(format!("{host}:{port}")).await.unwrap()
    }

    /// Its URL by way of a proxy.
    pub(super) fn through(&self, proxy: &Proxy) -> String {
        let options = PgConnectOptions::from_str(&self.url).unwrap();
        let (host, port) = (proxy.address().ip().to_string(), proxy.address().port());
        options.host(&host).port(port).to_url_lossy().to_string()
    }

    /// The same, with the password that it has, or else with this one.
    pub(super) fn through_with(&self, proxy: &Proxy, password: &str) -> (String, String) {
        let login = self
            .url
            .split_once("://")
            .and_then(|(_, rest)| rest.split_once('@'));
        let own = login.and_then(|(login, _)| login.split_once(':'));
        let password = own.map_or(password, |(_, own)| own);
        let options = PgConnectOptions::from_str(&self.through(proxy)).unwrap();
        let url = options.password(password).to_url_lossy().to_string();
        (url, password.to_owned())
    }

    /// While this is held no other test migrates: roles belong to the whole cluster, and the program's own lock to
    /// one database.
    pub(super) async fn alone(&self) -> PgConnection {
        let mut admin = PgConnection::connect(&of_database(&self.url, "postgres"))
            .await
            .unwrap();
        admin
            .execute("SELECT pg_advisory_lock(hashtext('posthorn_tests'))")
            .await
            .unwrap();
        admin
    }

    /// A connection whose transaction has done `sql` and goes on; it ends with the connection.
    pub(super) async fn hold(&self, sql: &'static str) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        connection.execute("BEGIN").await.unwrap();
        connection.execute(sql).await.unwrap();
        connection
    }

    pub(super) async fn query(&self, sql: &'static str) -> Vec<String> {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let rows = connection.fetch_all(sql).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some(name) = self.made.take() else { return };
        // A thread of its own: the test's runtime may be ending. What fails leaves a database behind, no more.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let admin = PgConnection::connect(&environment::database()).await;
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                if let Ok(mut admin) = admin {
                    let _ = admin.execute(AssertSqlSafe(sql)).await;
                }
            });
            std::io::Result::Ok(())
        });
        let _ = dropping.join();
    }
}

/// The same cluster, another database.
fn of_database(url: &str, name: &str) -> String {
    let (base, query) = url
        .split_once('?')
        .map_or((url, None), |(base, query)| (base, Some(query)));
    let server = base.rsplit_once('/').map_or(base, |(server, _)| server);
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{server}/{name}{query}")
}

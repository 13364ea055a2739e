//! The real program, as its operator runs it: a database, settings, and `posthorn serve` as a child process.
//!
//! An [`Installation`] is a database and what every node of it is told; a [`Node`] is one running process, which a test
//! may stop, kill or freeze. Guarantees: nodes see nothing of the tests' own environment; waits have deadlines; a node
//! ends when dropped, and says what it logged when a test failed; a database made here is dropped with the last that
//! uses it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

mod client;
mod database;
mod node;

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use serde_json::Value;
use tokio::process::Command;

pub use client::{Answer, At, Client, submission};
pub use node::Node;

use crate::environment;
use crate::proxy::Proxy;
use database::Database;
use node::Told;

/// A database, and what all nodes on it have in common.
#[derive(Clone)]
pub struct Installation {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    master_keys: String,
    egress_allow: &'static str,
    /// A file of certificates that its nodes trust, besides.
    egress_ca: Option<PathBuf>,
    /// Logs of its nodes.
    folder: PathBuf,
}

/// A tenant, and a key of it with every scope.
pub struct Tenant {
    /// `ten_…`
    pub id: String,
    /// `key_…`
    pub key_id: String,
    /// `ph_live_…`
    pub key: String,
}

/// A lock in the database, held until dropped.
pub struct Held {
    _transaction: sqlx::PgConnection,
}

impl Installation {
    /// A fresh database of the shared cluster. Endpoints on the loopback are allowed.
    pub async fn new() -> Self {
        Self::make(Database::fresh().await, "127.0.0.0/8", None).await
    }

    /// The same, whose nodes trust the certificates in this PEM text, besides.
    pub async fn trusting(pem: &str) -> Self {
        Self::make(Database::fresh().await, "127.0.0.0/8", Some(pem)).await
    }

    /// A fresh database of the shared cluster, and the policy for addresses that it has unless an operator opens it.
    pub async fn with_closed_egress() -> Self {
        Self::make(Database::fresh().await, "", None).await
    }

    /// A database that somebody else looks after. Endpoints on the loopback are allowed.
    pub async fn on(url: &str) -> Self {
        Self::make(Database::given(url), "127.0.0.0/8", None).await
    }

    async fn make(database: Database, egress_allow: &'static str, trust: Option<&str>) -> Self {
        let folder = environment::scratch("logs");
        fs::create_dir(&folder).unwrap();
        let egress_ca = trust.map(|pem| {
            let path = folder.join("ca.pem");
            fs::write(&path, pem).unwrap();
            path
        });
        let mut inner = Inner {
            database,
            master_keys: String::new(),
            egress_allow,
            egress_ca,
            folder,
        };
        let key = ran(inner.command(&["keys", "generate", "--json"])).await;
        inner.master_keys = text(&key, "key");
        let _alone = inner.database.alone().await;
        ran(inner.command(&["migrate", "--json"])).await;
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Starts a node on a free port, and waits until it is ready.
    pub async fn serve(&self) -> Node {
        self.serve_as("api,worker,console").await
    }

    /// The same, with these roles.
    pub async fn serve_as(&self, roles: &'static str) -> Node {
        Node::start(Arc::clone(&self.inner), Told::roles(roles)).await
    }

    /// A node that reaches its database through a proxy.
    pub async fn serve_through(&self, proxy: &Proxy) -> Node {
        let url = self.inner.database.through(proxy);
        let told = Told::default().and("DATABASE_URL", url);
        Node::start(Arc::clone(&self.inner), told).await
    }

    /// A node with one more thing in its environment.
    pub async fn serve_with(&self, name: &'static str, value: impl Into<OsString>) -> Node {
        Node::start(Arc::clone(&self.inner), Told::default().and(name, value)).await
    }

    /// A node with more things in its environment.
    pub async fn serve_told(&self, environment: &[(&'static str, &str)]) -> Node {
        let told = environment
            .iter()
            .fold(Told::default(), |told, (name, value)| told.and(name, value));
        Node::start(Arc::clone(&self.inner), told).await
    }

    /// The URL of its database by way of a proxy, with a password in it, and the password: this one where the cluster trusts
    /// everybody, else the one that it wants.
    #[must_use]
    pub fn url_through(&self, proxy: &Proxy, password: &str) -> (String, String) {
        self.inner.database.through_with(proxy, password)
    }

    /// Where its database listens.
    #[must_use]
    pub fn database(&self) -> (String, u16) {
        self.inner.database.place()
    }

    /// A proxy before the database.
    pub async fn proxy(&self) -> Proxy {
        self.inner.database.proxy().await
    }

    /// Runs a verb of the command line with `--json`, and returns the object that it printed.
    pub async fn run(&self, arguments: &[&str]) -> Value {
        let mut command = self.inner.command(arguments);
        command.arg("--json");
        ran(command).await
    }

    /// The master keys that its nodes and verbs are given, unless told otherwise.
    #[must_use]
    pub fn master_keys(&self) -> &str {
        &self.inner.master_keys
    }

    /// Runs a verb with other master keys: the object that it printed, or its words where it failed.
    ///
    /// # Errors
    ///
    /// When the verb fails.
    pub async fn run_under(&self, arguments: &[&str], master_keys: &str) -> Result<Value, String> {
        let mut command = self.inner.command(arguments);
        command
            .arg("--json")
            .env("POSTHORN_MASTER_KEYS", master_keys);
        let said = command.output().await.unwrap();
        if said.status.success() {
            Ok(serde_json::from_slice(&said.stdout).expect("--json prints one object"))
        } else {
            Err(String::from_utf8_lossy(&said.stderr).into_owned())
        }
    }

    /// A new tenant with a key, made by the command line.
    pub async fn tenant(&self, name: &str) -> Tenant {
        let id = text(&self.run(&["tenant", "create", name]).await, "id");
        let key = self.run(&["key", "create", "--tenant", &id]).await;
        Tenant {
            id,
            key_id: text(&key, "id"),
            key: text(&key, "key"),
        }
    }

    /// What `posthorn doctor` finds wrong: questions and answers. Nothing is right (INV-2 is one of the questions).
    pub async fn complaints(&self) -> Vec<String> {
        let mut command = self.inner.command(&["doctor", "--json"]);
        let said = command.output().await.unwrap();
        let object: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| {
            let errors = String::from_utf8_lossy(&said.stderr);
            panic!("doctor printed no object ({error}): {errors}")
        });
        let findings = object.get("findings").and_then(Value::as_array).unwrap();
        findings
            .iter()
            .filter(|finding| finding.get("ok") != Some(&Value::Bool(true)))
            .map(ToString::to_string)
            .collect()
    }

    /// Takes a lock, such as `LOCK TABLE attempts IN SHARE MODE`, and holds it until dropped.
    pub async fn hold(&self, sql: &'static str) -> Held {
        Held {
            _transaction: self.inner.database.hold(sql).await,
        }
    }

    /// The first column of the rows of a query, as text; for what only the database tells.
    pub async fn query(&self, sql: &'static str) -> Vec<String> {
        self.inner.database.query(sql).await
    }
}

impl Inner {
    /// The program with these arguments, the settings of this installation, and nothing of the tests' own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(environment::program());
        command
            .args(arguments)
            .env_clear()
            .env("PATH", environment::path())
            .env("DATABASE_URL", self.database.url())
            .env("POSTHORN_MASTER_KEYS", &self.master_keys)
            .env("POSTHORN_EGRESS_ALLOW", self.egress_allow)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(path) = &self.egress_ca {
            command.env("POSTHORN_EGRESS_CA", path);
        }
        command
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn ran(mut command: Command) -> Value {
    let said = command.output().await.unwrap();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success(), "{command:?}: {errors}");
    serde_json::from_slice(&said.stdout).expect("--json prints one object")
}

/// The text of a field of an object.
fn text(object: &Value, field: &str) -> String {
    let found = object.get(field).and_then(Value::as_str);
    found
        .unwrap_or_else(|| panic!("no {field} in {object}"))
        .to_owned()
}

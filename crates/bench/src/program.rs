//! The server under measurement, and the sink, as child processes.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{client, cluster::free_port};

/// How the program is called in a run.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    database_url: String,
    master_keys: String,
}

impl Program {
    /// Makes a master key and prepares the database.
    pub(crate) fn prepare(path: &Path, database_url: &str) -> anyhow::Result<Self> {
        let mut program = Self {
            path: path.to_owned(),
            database_url: database_url.to_owned(),
            master_keys: String::new(),
        };
        let made = program.run(&["keys", "generate", "--json"])?;
        text(&made, "key")?.clone_into(&mut program.master_keys);
        program.run(&["migrate", "--json"])?;
        Ok(program)
    }

    /// Makes a tenant and a key for it; returns the key.
    fn tenant(&self, name: &str) -> anyhow::Result<String> {
        let tenant = self.run(&["tenant", "create", name, "--json"])?;
        let key = self.run(&["key", "create", "--tenant", text(&tenant, "id")?, "--json"])?;
        Ok(text(&key, "key")?.to_owned())
    }

    /// Makes tenants, four at a time; returns a key for each.
    pub(crate) async fn tenants(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut making = JoinSet::new();
        for lane in 0..4 {
            let program = self.clone();
            making.spawn_blocking(move || {
                (lane..count)
                    .step_by(4)
                    .map(|n| program.tenant(&format!("Bench {n}")))
                    .collect::<anyhow::Result<Vec<_>>>()
            });
        }
        let mut keys = Vec::with_capacity(count);
        while let Some(made) = making.join_next().await {
            keys.extend(made??);
        }
        Ok(keys)
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self
            .command()
            .args(arguments)
            .output()
            .context("running the server's program")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "posthorn {} failed: {said}",
            arguments.join(" ")
        );
        // What is printed beside the result, such as a line about the database, goes before it.
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let from = printed.find('{').unwrap_or(printed.len());
        serde_json::from_str(printed.get(from..).unwrap_or_default()).or_else(|_| {
            if from == printed.len() {
                Ok(Value::Null)
            } else {
                bail!("not JSON: {printed}")
            }
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        // It refuses a setting that it does not know, and what is measured must not depend on this shell.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name.to_string_lossy().starts_with("POSTHORN_")) {
            command.env_remove(name);
        }
        command
            .env("DATABASE_URL", &self.database_url)
            .env("POSTHORN_EGRESS_ALLOW", "127.0.0.0/8")
            .env("POSTHORN_LOG", "warn")
            .stdin(Stdio::null());
        if !self.master_keys.is_empty() {
            command.env("POSTHORN_MASTER_KEYS", &self.master_keys);
        }
        command
    }

    /// Starts the server on a free port and waits until it is ready.
    pub(crate) async fn serve(&self, log: &Path) -> anyhow::Result<Running> {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        self.serve_at(address, log).await
    }

    /// Starts the server there and waits until it is ready. Its log is appended to.
    pub(crate) async fn serve_at(
        &self,
        address: SocketAddr,
        log: &Path,
    ) -> anyhow::Result<Running> {
        let file = fs::File::options().create(true).append(true).open(log)?;
        let child = self
            .command()
            .arg("serve")
            .env("POSTHORN_LISTEN", address.to_string())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("starting the server")?;
        let mut running = Running { child, address };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(1) && running.child.try_wait()?.is_none() {
            if client::call::<Value>(address, Method::GET, "/readyz", None, "")
                .await
                .is_ok()
            {
                return Ok(running);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!(
            "the server did not become ready: {}",
            fs::read_to_string(log).unwrap_or_default()
        )
    }
}

/// Makes an endpoint; returns its id.
pub(crate) async fn endpoint(
    server: SocketAddr,
    key: &str,
    fields: &Value,
) -> anyhow::Result<String> {
    let body = fields.to_string();
    let made: Value = client::call(server, Method::POST, "/v1/endpoints", Some(key), &body).await?;
    Ok(text(&made, "id")?.to_owned())
}

fn text<'a>(value: &'a Value, name: &str) -> anyhow::Result<&'a str> {
    value
        .get(name)
        .and_then(Value::as_str)
        .with_context(|| format!("no `{name}` in {value}"))
}

/// A child process that listens; it ends with this value.
pub(crate) struct Running {
    child: Child,
    /// Where.
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Starts this very program as a sink.
    pub(crate) fn sink() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("sink")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().context("the sink has no output")?;
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .context("the sink did not print its address")?;
        Ok(Self { child, address })
    }

    /// Ends it as a crash would (SIGKILL).
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! The program `posthorn`, as `up` runs it: started, waited for, asked by its command line, stopped.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::http::Api;
use crate::place::Place;
use crate::process::{capture, signal, tail, wait_until};
use crate::say::Voice;
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

/// Loopback, for the demo's receiver; the server refuses its own listeners by itself.
const LOOPBACK: &str = "127.0.0.0/8,::1/128";

pub(super) struct Server {
    child: Child,
    program: PathBuf,
    settings: Vec<(&'static str, String)>,
    log: PathBuf,
    port: u16,
}

impl Server {
    pub(super) fn start(
        workspace: &Workspace,
        place: &Place,
        postgres: &Postgres,
        port: u16,
    ) -> Result<Self> {
        let program = workspace.program("quick", "posthorn");
        let log = workspace.logs()?.join("server.log");
        let output = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let settings = vec![
            ("POSTHORN_DATA_DIR", place.base().display().to_string()),
            ("POSTHORN_PG_BIN", postgres.bin.display().to_string()),
            ("POSTHORN_LISTEN", format!("127.0.0.1:{port}")),
            ("POSTHORN_EGRESS_ALLOW", egress_allow()),
        ];
        let child = command(&program, &settings)
            .args(["serve", "--managed"])
            // A group of its own: Ctrl-C reaches us, and we stop it in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self {
            child,
            program,
            settings,
            log,
            port,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// True when it is ready, false when `interrupted` said so first.
    pub(super) fn wait_ready(
        &mut self,
        within: Duration,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<bool> {
        let begun = Instant::now();
        let api = Api::new(self.port, None);
        while begun.elapsed() < within {
            if interrupted() {
                return Ok(false);
            }
            if let Some(why) = self.has_ended() {
                bail!("{why}");
            }
            if api.get("/readyz").is_ok_and(|answer| answer.status == 200) {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let why = api
            .get("/readyz")
            .map_or_else(|error| error.to_string(), |answer| answer.body.to_string());
        self.stop(Voice::new(true));
        bail!(
            "the server is not ready after {} s: {why}\n{}",
            within.as_secs(),
            self.last_words()
        )
    }

    /// Why it is no longer there, if it is not.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(format!(
            "the server ended ({status}):\n{}",
            self.last_words()
        ))
    }

    /// Runs a command of the program that answers with one JSON object.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<Value> {
        let text = capture(
            command(&self.program, &self.settings)
                .args(arguments)
                .arg("--json"),
        )?;
        serde_json::from_str(text.trim())
            .with_context(|| format!("posthorn {} answered {text:?}", arguments.join(" ")))
    }

    /// Stops it and, with it, its PostgreSQL. The data stays.
    pub(super) fn stop(&mut self, voice: Voice) {
        if self.has_ended().is_some() {
            return;
        }
        voice.line("stopping; the data is kept");
        signal(self.child.id(), "TERM");
        if !wait_until(Duration::from_secs(40), || self.has_ended().is_some()) {
            // A second one leaves at once.
            signal(self.child.id(), "TERM");
            if !wait_until(Duration::from_secs(5), || self.has_ended().is_some()) {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }

    fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("{}\n(all of it: {})", tail(&text, 20), self.log.display())
    }
}

impl Drop for Server {
    /// Whatever went wrong after it was started: nothing of ours is left behind.
    fn drop(&mut self) {
        self.stop(Voice::new(true));
    }
}

/// The caller's own settings stay out, his log level and proxies aside: a stray `DATABASE_URL` must not be written to.
fn command(program: &std::path::Path, settings: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let stray = text == "DATABASE_URL" || text == "PORT" || text.starts_with("POSTHORN_");
        if stray && text != "POSTHORN_LOG" {
            command.env_remove(&name);
        }
    }
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command
}

fn egress_allow() -> String {
    match std::env::var("POSTHORN_EGRESS_ALLOW") {
        Ok(more) if !more.trim().is_empty() => format!("{LOOPBACK},{more}"),
        _ => LOOPBACK.to_owned(),
    }
}

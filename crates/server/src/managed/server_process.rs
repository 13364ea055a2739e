//! PostgreSQL's own process: started, taken over when it runs already, stopped.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::migrate::{self, Answer};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::account::Account;
use super::error::ClusterError;
use super::folders::{self, Folders};
use super::programs::Programs;
use super::{BETWEEN_LOOKS, Cluster, tuning};

/// A postmaster that answers.
pub(super) struct ServerProcess {
    pid: Pid,
    /// `None` when it was taken over.
    child: Option<Child>,
}

/// How a wait ended.
enum Waited {
    Answers,
    Gone,
    Silent,
}

impl ServerProcess {
    /// Takes over the postmaster of this cluster if one runs and answers, else starts one.
    pub(super) async fn start_or_take_over(
        folders: &Folders,
        programs: &Programs,
        account: &Account,
        clock: &Clock,
    ) -> Result<Self, ClusterError> {
        if let Some(pid) = running_pid(folders) {
            let mut found = Self { pid, child: None };
            if let Waited::Answers = found.wait(folders, clock, limits::MANAGED_OURS_WAIT).await {
                tracing::info!(
                    pid = pid.as_raw_nonzero(),
                    "taking over the PostgreSQL that still runs"
                );
                return Ok(found);
            }
        }
        Self::start(folders, programs, account, clock).await
    }

    /// Whether it still runs.
    pub(super) fn runs(&mut self, folders: &Folders) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            None => running_pid(folders) == Some(self.pid),
        }
    }

    /// Ends all connections, writes everything out and stops.
    pub(super) async fn stop(
        mut self,
        folders: &Folders,
        clock: &Clock,
    ) -> Result<(), ClusterError> {
        if !self.runs(folders) {
            return Ok(());
        }
        // SIGINT is PostgreSQL's fast shutdown. An error means that it is gone already.
        let _ = kill_process(self.pid, Signal::INT);
        let begun = clock.monotonic();
        while self.runs(folders) {
            if clock.monotonic().saturating_duration_since(begun) > limits::MANAGED_STOP_WAIT {
                let pid = self.pid.as_raw_nonzero().get();
                return Err(ClusterError::NotStopped {
                    pid,
                    seconds: limits::MANAGED_STOP_WAIT.as_secs(),
                });
            }
            clock.sleep(BETWEEN_LOOKS).await;
        }
        Ok(())
    }

    async fn start(
        folders: &Folders,
        programs: &Programs,
        account: &Account,
        clock: &Clock,
    ) -> Result<Self, ClusterError> {
        let conf = tuning::write(&folders.cluster(), account);
        conf.map_err(|source| folders::unusable(&folders.cluster(), source))?;
        let mut started = spawn(folders, programs, account)?;
        match started
            .wait(folders, clock, limits::MANAGED_ANSWER_WAIT)
            .await
        {
            Waited::Answers => Ok(started),
            Waited::Gone => Err(ClusterError::NotStarted {
                said: last_words(folders),
            }),
            Waited::Silent => {
                // Left running it would be taken over half started by the next try.
                let _ = kill_process(started.pid, Signal::QUIT);
                let said = format!(
                    "it did not answer in {} s: {}",
                    limits::MANAGED_ANSWER_WAIT.as_secs(),
                    last_words(folders)
                );
                Err(ClusterError::NotStarted { said })
            }
        }
    }

    /// Waits until it answers. While it says that it is recovering, it has `limits::MANAGED_RECOVERY_WAIT`.
    async fn wait(&mut self, folders: &Folders, clock: &Clock, silence: Duration) -> Waited {
        let login = folders.login(Cluster::SUPERUSER, "postgres");
        let begun = clock.monotonic();
        let mut heard = begun;
        loop {
            let now = clock.monotonic();
            match migrate::answers(&login).await {
                Ok(Answer::Ready) => return Waited::Answers,
                Ok(Answer::NotYet) => heard = now,
                Ok(Answer::Nobody) | Err(_) => {}
            }
            if !self.runs(folders) {
                return Waited::Gone;
            }
            let too_long = now.saturating_duration_since(begun) > limits::MANAGED_RECOVERY_WAIT;
            if too_long || now.saturating_duration_since(heard) > silence {
                return Waited::Silent;
            }
            clock.sleep(BETWEEN_LOOKS).await;
        }
    }
}

/// Starts the postmaster in a process group of its own: a Ctrl-C in our terminal is not for it.
fn spawn(
    folders: &Folders,
    programs: &Programs,
    account: &Account,
) -> Result<ServerProcess, ClusterError> {
    let log = folders.start_log();
    let output = File::create(&log).map_err(|source| folders::unusable(&log, source))?;
    let errors = output
        .try_clone()
        .map_err(|source| folders::unusable(&log, source))?;
    let mut command = account.command(&programs.postgres(), &folders.cluster());
    command.arg("-D").arg(folders.cluster());
    for (name, value) in tuning::fixed(folders.socket_dir()) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    command.stdout(output).stderr(errors).process_group(0);
    let not_started = |said: String| ClusterError::NotStarted { said };
    let child = command
        .spawn()
        .map_err(|error| not_started(error.to_string()))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| not_started("its process id is out of range".to_owned()))?;
    Ok(ServerProcess {
        pid,
        child: Some(child),
    })
}

/// The process that `postmaster.pid` names, if there is such a process.
fn running_pid(folders: &Folders) -> Option<Pid> {
    let text = fs::read_to_string(folders.postmaster_pid()).ok()?;
    let pid = Pid::from_raw(
        text.lines()
            .next()?
            .trim()
            .parse()
            .ok()
            .filter(|pid| *pid > 0)?,
    )?;
    match test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => Some(pid),
        Err(_) => None,
    }
}

/// The end of what PostgreSQL said: before its log was opened, and in its log.
fn last_words(folders: &Folders) -> String {
    let mut lines = lines_of(&folders.start_log());
    if let Some(log) = newest_in(&folders.cluster().join("log")) {
        lines.extend(lines_of(&log));
    }
    let from = lines.len().saturating_sub(limits::MANAGED_LOG_LINES);
    lines.split_off(from).join("\n  ")
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn newest_in(folder: &Path) -> Option<PathBuf> {
    let modified = |entry: &fs::DirEntry| -> io::Result<std::time::SystemTime> {
        entry.metadata()?.modified()
    };
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    entries
        .filter_map(|entry| Some((modified(&entry).ok()?, entry.path())))
        .max()
        .map(|(_, path)| path)
}

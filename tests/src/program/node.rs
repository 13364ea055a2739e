//! One running process of the program.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use super::{Client, Inner};
use crate::wait::until;

/// How long a node may take to be ready, on a machine that is busy with other tests.
const START: Duration = Duration::from_mins(1);

/// Ports that the system does not give to outgoing connections, so that a node finds its own again after a restart.
const PORTS: std::ops::Range<u16> = 18_000..32_000;

/// Lines of a node's log that a failed test shows.
const LAST_WORDS: usize = 60;

/// What one node is told that others are not.
pub(super) struct Told {
    roles: &'static str,
    environment: Vec<(&'static str, OsString)>,
}

impl Default for Told {
    fn default() -> Self {
        Self::roles("api,worker,console")
    }
}

impl Told {
    /// These roles.
    pub(super) const fn roles(roles: &'static str) -> Self {
        Self {
            roles,
            environment: Vec::new(),
        }
    }

    /// And this in its environment, in place of what all nodes are told.
    pub(super) fn and(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.environment.push((name, value.into()));
        self
    }
}

/// A running node; it ends when dropped.
pub struct Node {
    inner: Arc<Inner>,
    told: Told,
    address: SocketAddr,
    log: PathBuf,
    child: Child,
}

impl Node {
    pub(super) async fn start(inner: Arc<Inner>, told: Told) -> Self {
        let address = free_address();
        let log = inner.folder.join(format!("node-{}.log", address.port()));
        let child = spawn(&inner, &told, address, &log);
        let mut node = Self {
            inner,
            told,
            address,
            log,
            child,
        };
        node.ready().await;
        node
    }

    /// Starts a node in place of one that ended, on the same port, without waiting for it.
    pub fn start_again(&mut self) {
        self.child = spawn(&self.inner, &self.told, self.address, &self.log);
    }

    /// Waits until it is ready.
    pub async fn ready(&mut self) {
        let anybody = self.client("");
        until("the node to be ready", START, async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("the node ended with {status}:\n{}", self.last_words());
            }
            let answer = anybody.try_get("/readyz").await?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client with a key.
    #[must_use]
    pub fn client(&self, key: &str) -> Client {
        Client::new(self.address, key)
    }

    /// SIGKILL: it ends where it stands.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM: it is asked to end.
    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: it stands still, and does not know.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: it goes on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits for its end.
    pub async fn ended(&mut self, within: Duration) -> ExitStatus {
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        let Ok(status) = ended else {
            panic!(
                "the node has not ended in {within:?}:\n{}",
                self.last_words()
            )
        };
        status.unwrap()
    }

    /// Everything that it and those before it on this port have logged.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Bytes of memory that it holds (Linux: its resident set).
    #[must_use]
    pub fn memory(&self) -> u64 {
        let id = self.child.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap() * 1024
    }

    /// Ticks of the processor (Linux: usually hundredths of a second) that its threads of this name have used.
    #[must_use]
    pub fn ticks(&self, threads: &str) -> u64 {
        let id = self.child.id().unwrap();
        let entries = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
        // A thread may end meanwhile.
        let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        stats
            .filter_map(|stat| {
                let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
                // The fields 14 and 15 of proc(5), utime and stime; the first of the rest is the third.
                let used = rest.split_whitespace().skip(11).take(2);
                let used: Option<u64> = used.map(|ticks| ticks.parse::<u64>().ok()).sum();
                used.filter(|_| name == threads)
            })
            .sum()
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LAST_WORDS);
        lines.get(from..).unwrap_or_default().join("\n")
    }

    fn signal(&self, signal: Signal) {
        let pid = self
            .child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        kill_process(pid.unwrap(), signal).unwrap();
    }
}

impl Drop for Node {
    #[expect(
        clippy::print_stderr,
        reason = "a failed test shows what the node said"
    )]
    fn drop(&mut self) {
        // It may have ended already; a frozen one ends by this, too.
        let _ = self.child.start_kill();
        if std::thread::panicking() {
            eprintln!("the node at {} said:\n{}", self.address, self.last_words());
        }
    }
}

fn spawn(inner: &Inner, told: &Told, address: SocketAddr, log: &PathBuf) -> Child {
    let log = File::options().create(true).append(true).open(log).unwrap();
    let listen = address.to_string();
    inner
        .command(&["serve", "--listen", &listen, "--roles", told.roles])
        .envs(told.environment.iter().map(|(name, value)| (name, value)))
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// An address that nobody listens on, and that no outgoing connection will be given.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let all = PORTS.end - PORTS.start;
    // Other test processes begin elsewhere.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "less than the ports that there are"
    )]
    let begin = (std::process::id().wrapping_mul(97) % u32::from(all)) as u16;
    for _ in 0..all {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % all;
        let port = PORTS.start + (begin + step) % all;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
    panic!("every port of {PORTS:?} is taken");
}

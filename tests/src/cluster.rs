//! A PostgreSQL of one test's own, which it may kill.
//!
//! Guarantees: it listens on a socket in a folder that only its owner walks (and root), so that `trust` is safe; it and
//! everything of it are gone when dropped. fsync is off: processes are killed here, never the machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process, kill_process_group};

use crate::environment;
use crate::wait::until;

/// Names the socket's file.
const PORT: u16 = 5432;

/// How long a cluster may take to answer after a start, or to end.
const AMPLE: Duration = Duration::from_mins(1);

/// Megabytes of a small disk: what a cluster and a schema take, and some.
const SMALL_DISK: usize = 160;

/// A running, or killed, cluster.
pub struct Cluster {
    folder: PathBuf,
    account: Option<(u32, u32)>,
    server: Option<Child>,
    disk: Option<SmallDisk>,
}

/// A file system in memory, mounted where a cluster lies. Unmounted when dropped.
struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    fn mount(at: &Path) -> Self {
        let size = format!("size={SMALL_DISK}m,mode=0700");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "posthorn-test"]);
        let mounted = mount.arg(at).output().unwrap();
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success(), "{said}");
        Self { at: at.to_owned() }
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process of the cluster may be at its end.
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}

impl Cluster {
    /// Makes one and starts it.
    pub async fn start() -> Self {
        Self::make(None, environment::scratch("pg")).await
    }

    /// The same on a disk of its own that can be filled. Only root may mount one: `None` for others, who cannot ask.
    pub async fn start_on_a_small_disk() -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let folder = environment::scratch("pg");
        fs::create_dir(&folder).unwrap();
        let disk = SmallDisk::mount(&folder);
        Some(Self::make(Some(disk), folder).await)
    }

    async fn make(disk: Option<SmallDisk>, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        // initdb refuses root.
        let account = geteuid().is_root().then(database_account);
        if let Some((uid, gid)) = account {
            chown(&folder, Some(uid), Some(gid)).unwrap();
        }
        let mut cluster = Self {
            folder,
            account,
            server: None,
            disk,
        };
        let mut initdb = cluster.command("initdb");
        // Small segments: a small disk holds some of them.
        initdb
            .args([
                "--auth=trust",
                "--no-sync",
                "--no-locale",
                "--wal-segsize=1",
            ])
            .args(["--encoding=UTF8", "--username=postgres", "-D"])
            .arg(cluster.data());
        let made = initdb.output().unwrap();
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        cluster.start_again().await;
        cluster
    }

    /// A superuser's URL of one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let host = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}:{PORT}/{database}")
    }

    /// Starts it after it was killed, and waits until it answers.
    pub async fn start_again(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .unwrap();
        let mut server = self.command("postgres");
        server
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.folder);
        for setting in ["listen_addresses=", "fsync=off", "max_connections=100"] {
            server.args(["-c", setting]);
        }
        if self.disk.is_some() {
            server.args(["-c", "max_wal_size=16MB", "-c", "min_wal_size=2MB"]);
        }
        server
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.server = Some(server.process_group(0).spawn().unwrap());
        until("PostgreSQL to answer", AMPLE, async || {
            self.answers().then_some(())
        })
        .await;
    }

    /// Immediate shutdown: every backend is cut where it stands, nothing is written down in order.
    pub async fn stop_immediately(&mut self) {
        self.signal(Signal::QUIT);
        self.ended().await;
    }

    /// Kills the server and all its backends at the same moment, as the system does when memory runs out.
    pub async fn kill(&mut self) {
        if let Some(pid) = self.pid() {
            kill_process_group(pid, Signal::KILL).unwrap();
        }
        self.ended().await;
    }

    /// Fills its disk to the last byte.
    pub fn fill_disk(&self) {
        let disk = self.disk.as_ref().unwrap();
        let mut ballast = fs::File::create(disk.ballast()).unwrap();
        let piece = vec![0; 64 * 1024];
        while std::io::Write::write(&mut ballast, &piece).is_ok_and(|written| written > 0) {}
    }

    /// Makes room again, and starts the server where it has given up for want of it.
    pub async fn free_disk(&mut self) {
        fs::remove_file(self.disk.as_ref().unwrap().ballast()).unwrap();
        let gone = self
            .server
            .as_mut()
            .is_none_or(|server| server.try_wait().is_ok_and(|status| status.is_some()));
        if gone {
            self.start_again().await;
        }
        until("PostgreSQL to answer", AMPLE, async || {
            self.answers().then_some(())
        })
        .await;
    }

    async fn ended(&mut self) {
        until("PostgreSQL to end", AMPLE, async || {
            let ended = self
                .server
                .as_mut()
                .is_none_or(|server| server.try_wait().is_ok_and(|status| status.is_some()));
            ended.then_some(())
        })
        .await;
        self.server = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // It may have ended by itself.
            let _ = kill_process(pid, signal);
        }
    }

    fn pid(&self) -> Option<Pid> {
        self.server.as_ref().map(Pid::from_child)
    }

    fn answers(&self) -> bool {
        let mut psql = self.command("psql");
        psql.arg("-h").arg(&self.folder);
        psql.args(["-p", &PORT.to_string(), "-U", "postgres"])
            .args(["-d", "postgres", "-qXAtc", "SELECT 1"]);
        psql.output().is_ok_and(|said| said.status.success())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(environment::postgres().join(program));
        command.current_dir(&self.folder).env("LC_ALL", "C");
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid).env("HOME", &self.folder);
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
        drop(self.disk.take());
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whom PostgreSQL runs as where the tests run as root: the account of its package.
fn database_account() -> (u32, u32) {
    let accounts = fs::read_to_string(Path::new("/etc/passwd")).unwrap();
    let found = accounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            ["postgres" | "posthorn", _, uid, gid, ..] => {
                Some((uid.parse().ok()?, gid.parse().ok()?))
            }
            _ => None,
        }
    });
    found.expect("PostgreSQL does not run as root, and there is no account postgres")
}

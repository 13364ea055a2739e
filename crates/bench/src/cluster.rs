//! A private PostgreSQL for one run, with durable settings: what is measured includes its fsync.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// Durable, and sized so that neither checkpoints nor connections are what is measured.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "fsync=on",
    "full_page_writes=on",
    "synchronous_commit=on",
    "max_connections=100",
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    // As the managed cluster has it: what is measured is what is run.
    "wal_compression=on",
    "log_min_messages=warning",
    "logging_collector=off",
];

/// A running cluster; it is stopped and removed with this value.
pub(crate) struct Cluster {
    bin: PathBuf,
    folder: PathBuf,
    port: u16,
    server: Child,
    /// PostgreSQL counts statements.
    pub(crate) counts_statements: bool,
}

/// Whom PostgreSQL runs as: it refuses root.
struct User {
    uid: u32,
    gid: u32,
}

impl Cluster {
    /// Makes and starts one in a new folder under `parent`, with the programs in `bin`.
    pub(crate) fn start(bin: &Path, parent: &Path) -> anyhow::Result<Self> {
        let folder = parent.join(format!("posthorn-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let user = unprivileged()?;
        if let Some(user) = &user {
            std::os::unix::fs::chown(&folder, Some(user.uid), Some(user.gid))?;
        }
        let data = folder.join("data");
        let mut initdb = command(bin, "initdb", user.as_ref(), &folder);
        initdb.args([
            "--auth=trust",
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--username=postgres",
            "-D",
        ]);
        let output = initdb.arg(&data).output().context("running initdb")?;
        ensure!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let port = free_port()?;
        let counts_statements = has_statement_counter(bin);
        let server = serve(bin, &folder, port, counts_statements)?;
        let mut cluster = Self {
            bin: bin.to_owned(),
            folder,
            port,
            server,
            counts_statements,
        };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// Ends it as a crash would, and starts it again.
    pub(crate) fn crash(&mut self) -> anyhow::Result<()> {
        self.stop_at_once();
        self.server = serve(&self.bin, &self.folder, self.port, self.counts_statements)?;
        self.wait_until_ready()
    }

    /// PostgreSQL's immediate shutdown: no checkpoint, and a recovery at the next start.
    fn stop_at_once(&mut self) {
        let pid = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw);
        let _ = pid.map(|pid| kill_process(pid, Signal::QUIT));
        let _ = self.server.wait();
    }

    /// Where a superuser connects.
    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The same by its socket.
    pub(crate) fn socket_url(&self, database: &str) -> String {
        let folder = self.folder.display();
        format!(
            "postgres://postgres@localhost/{database}?host={folder}&port={}",
            self.port
        )
    }

    /// The postmaster, whose children all other processes of the cluster are.
    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    /// The run's own folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_mins(1) {
            let mut ready = Command::new(self.bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            // Without that program (the wheel lacks it) an open port has to do.
            let answers = match ready.status() {
                Ok(status) => status.success(),
                Err(_) => std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
            };
            if answers {
                return Ok(());
            }
            if self.server.try_wait()?.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let log = fs::read_to_string(self.folder.join("postgres.log")).unwrap_or_default();
        bail!("PostgreSQL did not start: {log}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing of it is kept. What fails here leaves a folder behind, no more.
        self.stop_at_once();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn serve(bin: &Path, folder: &Path, port: u16, counts_statements: bool) -> anyhow::Result<Child> {
    let user = unprivileged()?;
    let mut server = command(bin, "postgres", user.as_ref(), folder);
    server
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-p", &port.to_string()]);
    for setting in SETTINGS {
        server.args(["-c", setting]);
    }
    if counts_statements {
        server.args(["-c", "shared_preload_libraries=pg_stat_statements"]);
    }
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("postgres.log"))?;
    server
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    server.spawn().context("starting PostgreSQL")
}

fn command(bin: &Path, program: &str, user: Option<&User>, folder: &Path) -> Command {
    let mut command = Command::new(bin.join(program));
    command.current_dir(folder);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// The account `postgres` when this runs as root, else none.
fn unprivileged() -> anyhow::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let accounts = fs::read_to_string("/etc/passwd")?;
    let account = accounts
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .context("as root a bench needs the system user postgres")?;
    let mut numbers = account.split(':').skip(2);
    let mut number = || -> anyhow::Result<u32> {
        Ok(numbers
            .next()
            .context("a short line in /etc/passwd")?
            .parse()?)
    };
    Ok(Some(User {
        uid: number()?,
        gid: number()?,
    }))
}

fn has_statement_counter(bin: &Path) -> bool {
    let output = Command::new(bin.join("pg_config"))
        .arg("--pkglibdir")
        .output();
    output.is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        output.status.success() && folder.join("pg_stat_statements.so").exists()
    })
}

/// A port that nobody listens on; somebody may take it before it is used, and then the start says so.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

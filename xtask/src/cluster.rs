//! A private PostgreSQL for one run of a task: made, started, used and thrown away.
//!
//! Its socket lies in a folder that only its owner walks (and root), so `trust` is safe there. Tests put a proxy between
//! themselves and the database, so it listens on loopback TCP as well, behind a password of that run alone.
//! fsync is off: the runs that use it are thrown away with it.

use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::place::{Place, User, make_owned};
use crate::process::{capture, end, signal, tail, wait_until};
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

/// Settings of a cluster that only tests use.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "max_connections=400",
    "shared_buffers=128MB",
    "unix_socket_permissions=0777",
    "log_min_messages=warning",
    "logging_collector=off",
];

/// A running cluster; it ends with this value.
pub(crate) struct Cluster {
    postgres: Postgres,
    folder: PathBuf,
    socket: PathBuf,
    port: u16,
    password: String,
    server: Child,
}

impl Cluster {
    /// Makes a fresh one. `name` tells clusters of one checkout apart.
    pub(crate) fn start(
        workspace: &Workspace,
        place: &Place,
        postgres: &Postgres,
        name: &str,
    ) -> Result<Self> {
        let folder = place.base().join(format!("cluster-{name}"));
        end_left_over(&folder)?;
        make_owned(&folder, place.user())?;
        let socket = place.socket_folder(&format!("sockets-{name}"))?;
        let data = folder.join("data");
        let (port, password) = (free_port()?, password()?);
        let secret = folder.join("password");
        std::fs::write(&secret, &password).context("writing the password of a private cluster")?;
        give(&secret, place.user())?;
        let mut initdb = as_user(postgres.command("initdb"), place.user());
        initdb.args([
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--username=postgres",
        ]);
        initdb.arg("--pwfile").arg(&secret).arg("-D").arg(&data);
        capture(initdb.current_dir(&folder)).context("making a private PostgreSQL cluster")?;
        let log = workspace.logs()?.join(format!("postgres-{name}.log"));
        let output = File::create(&log)?;
        let mut server = as_user(postgres.command("postgres"), place.user());
        server
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(&socket)
            .args(["-p", &port.to_string()]);
        for setting in SETTINGS {
            server.args(["-c", setting]);
        }
        let server = server
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting PostgreSQL")?;
        let mut cluster = Self {
            postgres: postgres.clone(),
            folder,
            socket,
            port,
            password,
            server,
        };
        if !wait_until(Duration::from_mins(1), || {
            cluster.answers() || cluster.has_ended()
        }) || cluster.has_ended()
        {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the private PostgreSQL did not start:\n{}", tail(&text, 20));
        }
        Ok(cluster)
    }

    /// Where a superuser connects.
    pub(crate) fn url(&self, database: &str) -> String {
        let Self { port, password, .. } = self;
        format!("postgres://postgres:{password}@127.0.0.1:{port}/{database}")
    }

    /// The folder of its programs.
    pub(crate) fn bin(&self) -> &Path {
        &self.postgres.bin
    }

    /// Runs SQL as superuser; an error ends it.
    pub(crate) fn psql(&self, database: &str, sql: &str) -> Result<String> {
        capture(&mut self.client(
            "psql",
            database,
            &["-qXAt", "-v", "ON_ERROR_STOP=1", "-c", sql],
        ))
    }

    /// `program` with the options that reach this cluster.
    pub(crate) fn client(&self, program: &str, database: &str, arguments: &[&str]) -> Command {
        let mut client = self.postgres.command(program);
        client.arg("-h").arg(&self.socket).args([
            "-p",
            &self.port.to_string(),
            "-U",
            "postgres",
            "-d",
            database,
        ]);
        client
            .args(arguments)
            .env_remove("PGOPTIONS")
            .env_remove("PGSERVICE");
        client
    }

    /// A new database with the roles and every migration of this checkout, as the program's own runner leaves it
    /// (without a program: the queries are checked against it before anything compiles).
    pub(crate) fn migrated(&self, workspace: &Workspace, database: &str) -> Result<()> {
        self.psql("postgres", include_str!("cluster/roles.sql"))?;
        self.psql(
            "postgres",
            &format!("CREATE DATABASE {database} OWNER posthorn_owner"),
        )?;
        for file in migrations(workspace)? {
            let sql = std::fs::read_to_string(&file)
                .with_context(|| format!("reading {}", file.display()))?;
            self.psql(database, &format!("SET ROLE posthorn_owner;\n{sql}"))
                .with_context(|| format!("applying {}", file.display()))?;
        }
        Ok(())
    }

    fn answers(&self) -> bool {
        self.psql("postgres", "SELECT 1").is_ok()
    }

    fn has_ended(&mut self) -> bool {
        self.server.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SIGINT is PostgreSQL's fast shutdown.
        signal(self.server.id(), "INT");
        if !wait_until(Duration::from_secs(20), || self.has_ended()) {
            signal(self.server.id(), "QUIT");
            let _ = self.server.wait();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_dir_all(&self.socket);
    }
}

/// The files of `migrations/`, in order.
pub(crate) fn migrations(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(workspace.join("migrations")).context("reading migrations/")?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "sql"));
    files.sort();
    Ok(files)
}

/// Ends the server of an earlier run that was killed, and removes its data.
fn end_left_over(folder: &Path) -> Result<()> {
    if let Ok(text) = std::fs::read_to_string(folder.join("data/postmaster.pid"))
        && let Some(pid) = text
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok())
    {
        end(pid, "postgres", "INT", Duration::from_secs(20));
    }
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

fn as_user(mut command: Command, user: Option<&User>) -> Command {
    use std::os::unix::process::CommandExt as _;
    if let Some(user) = user {
        command
            .uid(user.uid)
            .gid(user.gid)
            .env("HOME", "/")
            .env("USER", &user.name);
    }
    // A message of PostgreSQL's is looked for in its logs; keep it in one language.
    command.env("LC_ALL", "C");
    command
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?.port())
}

/// 128 bits as hexadecimal digits.
fn password() -> Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("reading randomness")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// A file for the cluster's user alone.
fn give(file: &Path, user: Option<&User>) -> Result<()> {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))?;
    if let Some(user) = user {
        std::os::unix::fs::chown(file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

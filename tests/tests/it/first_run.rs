//! The first minutes with the program: a PostgreSQL of its own, a key file, and words that help when something is in
//! the way. Every test has a data folder of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use posthorn_tests::environment;
use posthorn_tests::program::Client;
use posthorn_tests::wait::until;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

/// Longer than a cluster takes to be made, on a machine that is busy with other tests.
const AMPLE: Duration = Duration::from_secs(90);

/// Half of what a start waits for its database.
const SOON: Duration = Duration::from_secs(15);

/// For a start that is refused anyway.
const ANY: &str = "127.0.0.1:0";

/// A data folder; with it goes whatever still runs there.
struct DataDir {
    path: PathBuf,
}

/// `posthorn serve` on a data folder.
struct Serving {
    child: Child,
    anybody: Client,
    log: PathBuf,
}

impl DataDir {
    fn new() -> Self {
        Self {
            path: environment::scratch("first"),
        }
    }

    /// One whose path is too long for a socket in it.
    fn with_a_long_path() -> Self {
        let path = environment::scratch("first");
        Self {
            path: path.join("a".repeat(60)).join("b c".repeat(20)),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).arg("--data-dir").arg(&self.path);
        command
    }

    /// Starts a server and waits until it is ready.
    async fn serve(&self) -> Serving {
        let address = free_address();
        let log = self.path.with_extension("log");
        let file = fs::File::create(&log).unwrap();
        let mut command = self.command(&["serve", "--listen", &address]);
        let child = command.stderr(file).spawn().unwrap();
        let mut serving = Serving {
            child,
            anybody: Client::new(address.parse().unwrap(), ""),
            log,
        };
        serving.ready().await;
        serving
    }

    fn postgres(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path.join("pg/postmaster.pid")).ok()?;
        let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?)?;
        test_kill_process(pid).is_ok().then_some(pid)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if let Some(pid) = self.postgres() {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let scratch = self
            .path
            .ancestors()
            .find(|folder| folder.parent() == Some(Path::new("/tmp")));
        let _ = fs::remove_dir_all(scratch.unwrap());
        let _ = fs::remove_file(self.path.with_extension("log"));
    }
}

impl Serving {
    async fn ready(&mut self) {
        until("the server to be ready", AMPLE, async || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "it ended: {}", self.log());
            let answer = self.anybody.try_get("/readyz").await?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    async fn stop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let ended = tokio::time::timeout(AMPLE, self.child.wait()).await;
        let status = ended.expect("it stops in time").unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The program, without anything of the tests' own environment but where programs are.
fn program() -> Command {
    let mut command = Command::new(environment::program());
    command
        .env_clear()
        .env("PATH", environment::path())
        .env("POSTHORN_PG_BIN", environment::postgres())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

fn free_address() -> String {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    free.local_addr().unwrap().to_string()
}

async fn output(mut command: Command) -> Output {
    let output = tokio::time::timeout(AMPLE, command.output()).await;
    output.expect("it ends by itself").unwrap()
}

/// What the program says when it refuses to go on.
async fn refusal(command: Command) -> String {
    let output = output(command).await;
    assert!(!output.status.success(), "it was to fail");
    assert!(
        output.stdout.is_empty(),
        "what went wrong is not for standard output"
    );
    String::from_utf8(output.stderr).unwrap()
}

async fn printed(command: Command) -> Value {
    let output = output(command).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[tokio::test]
async fn without_a_database_it_refuses_and_names_both_ways() {
    let mut command = program();
    command.arg("serve");
    assert_says(
        &refusal(command).await,
        &["DATABASE_URL", "POSTHORN_DATA_DIR"],
    );
}

#[tokio::test]
async fn with_two_databases_it_refuses_and_names_both() {
    let mut command = DataDir::new().command(&["serve", "--listen", ANY]);
    command.env(
        "DATABASE_URL",
        "postgres://posthorn_app:hunter2@127.0.0.1/posthorn",
    );
    let said = refusal(command).await;
    assert_says(&said, &["DATABASE_URL", "--data-dir"]);
    assert!(!said.contains("hunter2"), "{said}");
}

#[tokio::test]
async fn a_given_database_without_master_keys_is_refused() {
    let mut command = program();
    command
        .arg("serve")
        .env("DATABASE_URL", "postgres://posthorn_app@127.0.0.1/posthorn");
    assert_says(&refusal(command).await, &["POSTHORN_MASTER_KEYS"]);
}

/// The address takes connections and says nothing, as one behind a firewall does.
#[tokio::test]
async fn a_start_that_waits_for_its_database_ends_when_it_is_told_to() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let database = silent.local_addr().unwrap();
    let (data, address) = (DataDir::new(), free_address());
    let log = data.path.with_extension("log");
    let mut command = program();
    command
        .args(["serve", "--listen", &address])
        .env(
            "DATABASE_URL",
            format!("postgres://posthorn_app@{database}/posthorn"),
        )
        .env(
            "POSTHORN_MASTER_KEYS",
            "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        )
        .stderr(fs::File::create(&log).unwrap());
    let mut starting = Serving {
        child: command.spawn().unwrap(),
        anybody: Client::new(address.parse().unwrap(), ""),
        log,
    };
    until("a probe to be answered", AMPLE, async || {
        let answer = starting.anybody.try_get("/readyz").await?;
        (answer.status == 503).then_some(())
    })
    .await;
    let stopped = tokio::time::timeout(SOON, starting.stop()).await;
    assert!(stopped.is_ok(), "{}", starting.log());
}

#[tokio::test]
async fn a_taken_port_is_told_before_anything_is_made() {
    let data = DataDir::new();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refusal(data.command(&["serve", "--listen", &address])).await;
    assert_says(&said, &["POSTHORN_LISTEN", &address, "in use"]);
    assert!(!data.path.exists());
}

#[tokio::test]
async fn a_data_folder_that_cannot_be_made_is_named_with_its_setting() {
    let data = DataDir {
        path: environment::scratch("first"),
    };
    fs::write(&data.path, "a file, where a folder was to be").unwrap();
    let inside = DataDir {
        path: data.path.join("inside"),
    };
    let said = refusal(inside.command(&["serve", "--listen", ANY])).await;
    assert_says(&said, &["POSTHORN_DATA_DIR", inside.path.to_str().unwrap()]);
    fs::remove_file(&data.path).unwrap();
}

#[tokio::test]
async fn a_data_folder_that_the_databases_user_may_not_enter_is_named_with_its_setting() {
    if !rustix::process::geteuid().is_root() {
        // Anybody else runs PostgreSQL as themselves, and enters what they may enter.
        return;
    }
    let closed = DataDir::new();
    fs::create_dir(&closed.path).unwrap();
    fs::set_permissions(&closed.path, fs::Permissions::from_mode(0o700)).unwrap();
    let inside = DataDir {
        path: closed.path.join("inside"),
    };
    let said = refusal(inside.command(&["serve", "--listen", ANY])).await;
    assert_says(
        &said,
        &[
            "POSTHORN_DATA_DIR",
            closed.path.to_str().unwrap(),
            "may not enter",
        ],
    );
}

#[tokio::test]
async fn a_cluster_of_another_major_version_is_refused_with_the_way_out() {
    let data = DataDir::new();
    fs::create_dir_all(data.path.join("pg")).unwrap();
    fs::set_permissions(&data.path, fs::Permissions::from_mode(0o711)).unwrap();
    fs::write(data.path.join("pg/PG_VERSION"), "14\n").unwrap();
    let said = refusal(data.command(&["serve", "--listen", ANY])).await;
    assert_says(&said, &["PostgreSQL 14", "POSTHORN_PG_BIN", "pg_dumpall"]);
}

#[tokio::test]
async fn the_first_start_makes_a_cluster_and_a_key_and_a_stop_leaves_nothing_running() {
    let data = DataDir::new();
    let mut serving = data.serve().await;
    let keys = data.path.join("master.keys");
    assert_eq!(
        fs::metadata(&keys).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_says(
        &serving.log(),
        &["database managed", "keep a copy", keys.to_str().unwrap()],
    );
    assert!(data.postgres().is_some());
    serving.stop().await;
    assert!(data.postgres().is_none());
}

#[tokio::test]
async fn after_a_kill_the_next_start_takes_over_the_postgresql_that_still_runs() {
    let data = DataDir::new();
    let mut killed = data.serve().await;
    killed.child.kill().await.unwrap();
    let left = data.postgres().expect("PostgreSQL goes on");
    let mut serving = data.serve().await;
    assert_eq!(data.postgres(), Some(left));
    serving.stop().await;
    assert!(data.postgres().is_none());
}

#[tokio::test]
async fn a_postgresql_that_is_killed_is_started_again() {
    let data = DataDir::new();
    let mut serving = data.serve().await;
    let killed = data.postgres().unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    until("another PostgreSQL", AMPLE, async || {
        data.postgres().filter(|pid| *pid != killed)
    })
    .await;
    serving.ready().await;
    serving.stop().await;
}

#[tokio::test]
async fn a_lost_key_file_is_not_made_anew_where_something_is_sealed() {
    let data = DataDir::new();
    data.serve().await.stop().await;
    let (keys, copy) = (data.path.join("master.keys"), data.path.join("copy"));
    fs::rename(&keys, &copy).unwrap();
    let said = refusal(data.command(&["serve", "--listen", &free_address()])).await;
    assert_says(&said, &[keys.to_str().unwrap(), "Put the file back"]);
    symlink(&copy, &keys).unwrap();
    data.serve().await.stop().await;
}

#[tokio::test]
async fn other_master_keys_than_those_that_sealed_are_refused_by_name() {
    let data = DataDir::new();
    data.serve().await.stop().await;
    let text = fs::read_to_string(data.path.join("master.keys")).unwrap();
    let (id, _) = text.split_once(':').unwrap();
    let mut generate = program();
    generate.args(["keys", "generate", "--id", id, "--json"]);
    let other = printed(generate).await;
    let other = other.get("key").and_then(Value::as_str).unwrap();
    let mut command = data.command(&["serve", "--listen", &free_address()]);
    command.env("POSTHORN_MASTER_KEYS", other);
    let said = refusal(command).await;
    assert_says(&said, &["master key", id, "not the one"]);
    assert!(!said.contains(other), "{said}");
}

#[tokio::test]
async fn the_command_line_runs_a_cluster_for_itself_wherever_it_lies() {
    let data = DataDir::with_a_long_path();
    let tenant = printed(data.command(&["tenant", "create", "Acme", "--test", "--json"])).await;
    let tenant = tenant.get("id").and_then(Value::as_str).unwrap();
    assert!(data.postgres().is_none(), "it was for that run alone");
    let key = printed(data.command(&["key", "create", "--tenant", tenant, "--json"])).await;
    let key = key.get("key").and_then(Value::as_str).unwrap();
    assert!(key.starts_with("ph_test_"), "a test tenant's key says so");
}

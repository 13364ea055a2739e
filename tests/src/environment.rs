//! What the run of the tests says: which database, which programs, where captured requests go.

#![expect(
    clippy::disallowed_methods,
    reason = "tests have no settings but these, and read them here alone"
)]

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Where PostgreSQL is looked for when nobody says.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A superuser's URL of the cluster that tests make their databases in.
#[must_use]
pub fn database() -> String {
    env::var("POSTHORN_TEST_DATABASE")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:54329/postgres".to_owned())
}

/// The program under test: the one that the run names, else the one that lies beside the tests.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn program() -> PathBuf {
    let named = env::var_os("POSTHORN_TEST_BIN")
        .map(PathBuf::from)
        .filter(|path| path.is_file());
    let found = named.or_else(|| {
        // target/debug/deps/it-… → target/debug/posthorn
        let tests = env::current_exe().ok()?;
        let beside = tests.parent()?.parent()?.join("posthorn");
        beside.is_file().then_some(beside)
    });
    assert!(
        found.is_some(),
        "there is no program to test: `cargo build --workspace --bin posthorn` makes it"
    );
    found.unwrap_or_default()
}

/// The folder of PostgreSQL's programs.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn postgres() -> PathBuf {
    let named = env::var_os("POSTHORN_TEST_PG_BIN").map(PathBuf::from);
    let found = named.or_else(|| {
        let versions = std::fs::read_dir(DEBIAN).ok()?.flatten();
        let mut folders: Vec<_> = versions.map(|entry| entry.path().join("bin")).collect();
        folders.retain(|folder| folder.join("initdb").is_file());
        folders.sort();
        folders.into_iter().next()
    });
    assert!(
        found.is_some(),
        "there is no PostgreSQL: POSTHORN_TEST_PG_BIN names the folder of its programs"
    );
    found.unwrap_or_default()
}

/// Where requests are left for the verifiers that are not ours; none: nobody asks for them.
#[must_use]
pub fn captures() -> Option<PathBuf> {
    env::var_os("POSTHORN_CAPTURE_DIR").map(PathBuf::from)
}

/// Where programs are looked for, for the program under test: all of this environment that it sees.
#[must_use]
pub fn path() -> OsString {
    env::var_os("PATH").unwrap_or_default()
}

/// A number from the environment, such as `POSTHORN_KILLS`, or `otherwise`.
#[must_use]
pub fn number(name: &str, otherwise: usize) -> usize {
    env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

/// A folder for things of this run that no other process uses; its path is short enough for a socket.
#[must_use]
pub fn scratch(name: &str) -> PathBuf {
    Path::new("/tmp").join(format!("posthorn-{name}-{}", unique()))
}

/// A word that no other test, process or run of this machine has.
#[must_use]
pub fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_micros());
    format!(
        "{}_{}_{:x}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed),
        started & 0xff_ffff_ffff
    )
}

/// Raises this process's soft limit of open files to the hard one, as the program does at its start. Both ends of
/// thousands of requests are in one process here, and the usual soft limit of a user is 1,024.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Where it is refused the lower limit stands, and few tests need more.
    let _ = setrlimit(Resource::Nofile, raised);
}

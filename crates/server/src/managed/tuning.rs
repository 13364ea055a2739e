//! How the cluster is set up: durable, quiet, and sized for the machine.
//!
//! `posthorn.conf` is written at every start; `local.conf` beside it is the operator's and wins. What keeps
//! the cluster private is on PostgreSQL's command line, where no file can change it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::account::Account;
use super::folders::PORT;

const MIB: u64 = 1024 * 1024;

/// Lines that the cluster's own `postgresql.conf` ends with.
const INCLUDES: &str = "\n# Written by Posthorn at every start:\ninclude_if_exists 'posthorn.conf'\n\
                        # Yours; what it says wins:\ninclude_if_exists 'local.conf'\n";

/// What no file may change: reachable by nothing but the private socket.
pub(super) fn fixed(socket_dir: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("listen_addresses", String::new()),
        ("port", PORT.to_string()),
        ("unix_socket_directories", quoted_path(socket_dir)),
    ]
}

/// Makes the cluster read our settings and the operator's.
pub(super) fn include_in(cluster: &Path) -> io::Result<()> {
    let mut conf = OpenOptions::new()
        .append(true)
        .open(cluster.join("postgresql.conf"))?;
    conf.write_all(INCLUDES.as_bytes())?;
    conf.sync_all()
}

/// Writes `posthorn.conf` for this machine.
pub(super) fn write(cluster: &Path, account: &Account) -> io::Result<()> {
    let path = cluster.join("posthorn.conf");
    fs::write(&path, text(memory_bytes()))?;
    account.own_file(&path)
}

fn text(memory: Option<u64>) -> String {
    // An eighth of the machine: Posthorn, the page cache and everything else live here, too.
    let buffers = memory.map_or(128, |bytes| (bytes / 8 / MIB).clamp(64, 1024));
    let settings = [
        ("fsync", "on".to_owned()),
        ("full_page_writes", "on".to_owned()),
        ("synchronous_commit", "on".to_owned()),
        ("max_connections", "100".to_owned()),
        ("shared_buffers", format!("{buffers}MB")),
        ("wal_compression", "on".to_owned()),
        ("min_wal_size", "256MB".to_owned()),
        ("max_wal_size", "2GB".to_owned()),
        ("checkpoint_timeout", "15min".to_owned()),
        // A log of appended rows and a small table that changes much: look at it often, freeze in good time.
        ("autovacuum_naptime", "15s".to_owned()),
        ("random_page_cost", "1.1".to_owned()),
        ("jit", "off".to_owned()),
        ("logging_collector", "on".to_owned()),
        ("log_directory", "'log'".to_owned()),
        // One file a weekday, each begun anew: a week is kept.
        ("log_filename", "'postgresql-%a.log'".to_owned()),
        ("log_rotation_age", "1d".to_owned()),
        ("log_rotation_size", "0".to_owned()),
        ("log_truncate_on_rotation", "on".to_owned()),
        ("log_checkpoints", "off".to_owned()),
        ("log_autovacuum_min_duration", "-1".to_owned()),
        // A failed statement's text holds payloads: it is not logged.
        ("log_min_error_statement", "panic".to_owned()),
        ("log_error_verbosity", "terse".to_owned()),
        ("log_parameter_max_length_on_error", "0".to_owned()),
    ];
    let mut text =
        "# Written by Posthorn at every start. Put your own settings into local.conf.\n".to_owned();
    for (name, value) in settings {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}

/// A folder in a list of folders: quoted, since it may hold blanks and commas.
fn quoted_path(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', "\"\""))
}

/// Memory that we may use: the machine's, or the container's if that is less. `None` where it is not told.
fn memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_in(&text));
    let container = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(container).min()
}

fn total_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_machine_within_bounds() {
        for (memory, line) in [
            (None, "shared_buffers = 128MB"),
            (Some(256 * MIB), "shared_buffers = 64MB"),
            (Some(4096 * MIB), "shared_buffers = 512MB"),
            (Some(1024 * 1024 * MIB), "shared_buffers = 1024MB"),
        ] {
            assert!(text(memory).contains(line), "{memory:?}");
        }
    }

    #[test]
    fn durability_is_not_traded_away() {
        let text = text(None);
        for line in [
            "fsync = on",
            "full_page_writes = on",
            "synchronous_commit = on",
        ] {
            assert!(text.contains(line));
        }
    }

    #[test]
    fn the_machines_memory_is_read_in_bytes() {
        assert_eq!(total_in("MemFree: 1 kB\n"), None);
        assert_eq!(
            total_in("MemTotal:       24576 kB\nMemFree: 1 kB\n"),
            Some(24576 * 1024)
        );
    }

    #[test]
    fn a_socket_folder_with_blanks_and_quotes_is_one_folder() {
        assert_eq!(
            quoted_path(Path::new("/a b/\"c\",d")),
            "\"/a b/\"\"c\"\",d\""
        );
    }
}

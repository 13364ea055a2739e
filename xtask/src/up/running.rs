//! Who runs in this checkout: a lock that ends with its holder, and a note of what it started.

use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::process::{end, runs};
use crate::workspace::{Workspace, write_private};

/// What an `up` has started. Written once it begins, and again when it is ready.
pub(crate) struct Running {
    /// Of `up` itself.
    pub(crate) pid: u32,
    pub(crate) server_pid: u32,
    pub(crate) api_port: u16,
    pub(crate) receiver_port: u16,
    pub(crate) ready: bool,
}

impl Running {
    pub(super) fn new(api_port: u16, receiver_port: u16) -> Self {
        Self {
            pid: std::process::id(),
            server_pid: 0,
            api_port,
            receiver_port,
            ready: false,
        }
    }

    /// The note, if there is one that can be read.
    pub(crate) fn read(workspace: &Workspace) -> Option<Self> {
        let text = std::fs::read_to_string(note(workspace)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        let number = |key: &str| value.get(key)?.as_u64();
        Some(Self {
            pid: number("pid")?.try_into().ok()?,
            server_pid: number("server_pid")?.try_into().ok()?,
            api_port: number("api_port")?.try_into().ok()?,
            receiver_port: number("receiver_port")?.try_into().ok()?,
            ready: value.get("ready")?.as_bool()?,
        })
    }

    fn to_json(&self) -> String {
        json!({
            "pid": self.pid,
            "server_pid": self.server_pid,
            "api_port": self.api_port,
            "receiver_port": self.receiver_port,
            "ready": self.ready,
        })
        .to_string()
    }
}

/// The lock of this checkout; whoever holds it is `up`. The system lets go of it when the holder dies.
pub(crate) struct Guard {
    _lock: File,
    note: PathBuf,
    /// Whether the note is ours; one of an earlier holder is wanted by whoever comes after us.
    wrote: Cell<bool>,
}

impl Guard {
    /// None when another holds it.
    pub(crate) fn take(workspace: &Workspace) -> Result<Option<Self>> {
        let path = workspace.private()?.join("up.lock");
        let lock = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .context("opening .posthorn/up.lock")?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self {
                _lock: lock,
                note: note(workspace),
                wrote: Cell::new(false),
            })),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => {
                Err(error).context("locking .posthorn/up.lock")
            }
        }
    }

    pub(crate) fn is_taken(workspace: &Workspace) -> bool {
        matches!(Self::take(workspace), Ok(None))
    }

    pub(crate) fn write(&self, running: &Running) -> Result<()> {
        self.wrote.set(true);
        write_private(&self.note, &running.to_json())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.wrote.get() {
            let _ = std::fs::remove_file(&self.note);
        }
    }
}

/// Ends a server whose `up` was killed, and tells whether there was one. Its PostgreSQL is taken over by the next one.
pub(crate) fn end_left_over(workspace: &Workspace) -> bool {
    let old = Running::read(workspace);
    let found = old
        .as_ref()
        .is_some_and(|old| runs(old.server_pid, "posthorn"));
    if let Some(old) = old.filter(|_| found)
        && !end(old.server_pid, "posthorn", "TERM", Duration::from_secs(30))
    {
        end(old.server_pid, "posthorn", "KILL", Duration::from_secs(5));
    }
    let _ = std::fs::remove_file(note(workspace));
    found
}

fn note(workspace: &Workspace) -> PathBuf {
    workspace.join(".posthorn/up.json")
}

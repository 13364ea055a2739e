//! `cargo xtask down`: stops what `up` started; with `--reset` deletes its data as well.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::place::Place;
use crate::process::{end, is_root, runs, signal, wait_until};
use crate::say::{ask_before_loss, tell};
use crate::up::running::{Guard, Running, end_left_over};
use crate::workspace::Workspace;

/// What `cargo xtask down --help` prints.
pub(crate) const HELP: &str = "\
cargo xtask down: stops what `cargo xtask up` started in this checkout, and keeps the data.

  --reset   delete the data, too: the database, its keys, the demo tenant. It asks first; what was fetched stays
  --yes     do not ask";

/// The server waits for its requests, then for PostgreSQL.
const STOPPED_WITHIN: Duration = Duration::from_mins(1);

/// Folders that a reset keeps: they were fetched, not made.
const KEPT: &[&str] = &["tools", "logs"];

/// Whether a reset may delete. Unlike installing, it is never presumed: not for root, and not because of `CI`.
#[derive(Clone, Copy, Debug)]
enum Leave {
    /// By `--yes`.
    Given,
    /// By a person at a terminal.
    ToBeAsked,
}

impl Leave {
    fn of(yes: bool, stdin: &impl IsTerminal) -> Result<Self> {
        if yes {
            Ok(Self::Given)
        } else if stdin.is_terminal() {
            Ok(Self::ToBeAsked)
        } else {
            bail!(
                "nobody is here to be asked, and a reset deletes data: cargo xtask down --reset --yes"
            );
        }
    }
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let reset = args.flag("--reset");
    let yes = args.flag("--yes");
    args.finish()?;
    let leave = reset
        .then(|| Leave::of(yes, &std::io::stdin()))
        .transpose()?;
    let running = Running::read(workspace).filter(|_| Guard::is_taken(workspace));
    if running.is_none() && Guard::is_taken(workspace) {
        bail!("`cargo xtask up` is still building in this checkout: stop it where it runs");
    }
    let Some(leave) = leave else {
        tell(stop(workspace, running.as_ref())?.told());
        return Ok(ExitCode::SUCCESS);
    };
    let noted = Place::noted(workspace);
    let private = workspace.private()?;
    let doomed = || {
        let for_root = is_root().then(|| Place::for_root(workspace));
        doomed(&private, noted.clone().into_iter().chain(for_root))
    };
    agree(&doomed()?, leave, ask_before_loss)?;
    stop(workspace, running.as_ref())?;
    // Read again: what ran may have made or removed files until it was stopped.
    delete(&doomed()?)?;
    tell("stopped and deleted");
    Ok(ExitCode::SUCCESS)
}

/// What was there to stop.
enum Stopped {
    Up,
    LeftOver,
    Nothing,
}

impl Stopped {
    fn told(&self) -> &'static str {
        match self {
            Self::Up => "stopped; the data is kept",
            Self::LeftOver => "stopped what a crash had left; the data is kept",
            Self::Nothing => "nothing runs",
        }
    }
}

fn stop(workspace: &Workspace, running: Option<&Running>) -> Result<Stopped> {
    if let Some(running) = running {
        signal(running.pid, "TERM");
        if !wait_until(STOPPED_WITHIN, || !Guard::is_taken(workspace)) {
            bail!("`cargo xtask up` (process {}) does not stop", running.pid);
        }
    }
    let place = Place::of(workspace)?;
    let left_over = end_left_over(workspace) | end_postgres(place.base());
    Ok(match (running, left_over) {
        (Some(_), _) => Stopped::Up,
        (None, true) => Stopped::LeftOver,
        (None, false) => Stopped::Nothing,
    })
}

/// Ends a PostgreSQL that outlived a crash, and tells whether there was one.
fn end_postgres(base: &Path) -> bool {
    let text = std::fs::read_to_string(base.join("pg/postmaster.pid")).unwrap_or_default();
    let pid = text
        .lines()
        .next()
        .and_then(|line| line.trim().parse().ok());
    let Some(pid) = pid.filter(|pid| runs(*pid, "postgres")) else {
        return false;
    };
    // SIGINT is its fast shutdown.
    end(pid, "postgres", "INT", STOPPED_WITHIN);
    true
}

/// Everything that a reset deletes: root's folder as a whole, and first, for `.posthorn/where` names it; then what lies
/// in `.posthorn/`, but for what was fetched.
fn doomed(private: &Path, outside: impl IntoIterator<Item = PathBuf>) -> Result<Vec<PathBuf>> {
    let mut paths: Vec<_> = outside.into_iter().filter(|path| path.exists()).collect();
    paths.sort();
    paths.dedup();
    let entries =
        std::fs::read_dir(private).with_context(|| format!("reading {}", private.display()))?;
    let mut inside = Vec::new();
    for entry in entries {
        let entry = entry?;
        if KEPT.iter().all(|kept| entry.file_name() != *kept) {
            inside.push(entry.path());
        }
    }
    inside.sort();
    paths.extend(inside);
    Ok(paths)
}

/// Names what a reset deletes, and fails without a yes. Until then nothing is touched, and what runs goes on.
fn agree(paths: &[PathBuf], leave: Leave, ask: impl FnOnce(&str) -> bool) -> Result<()> {
    tell(
        "a reset stops what runs, and deletes the database, its keys and the demo tenant of this checkout:",
    );
    for path in paths {
        tell(format_args!("  {}", path.display()));
    }
    let agreed = match leave {
        Leave::Given => true,
        Leave::ToBeAsked => ask("Delete them?"),
    };
    if !agreed {
        bail!("nothing was stopped or deleted");
    }
    Ok(())
}

fn delete(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        let removed = if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// A folder that is removed with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn make(name: &str) -> Self {
            let name = format!("posthorn-down-{}-{name}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir(&folder).unwrap();
            Self(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_reset_without_a_terminal_and_without_a_yes_is_refused_with_the_line_to_run() {
        let nobody = File::open("/dev/null").unwrap();
        let refused = Leave::of(false, &nobody).unwrap_err().to_string();
        assert!(
            refused.contains("cargo xtask down --reset --yes"),
            "{refused}"
        );
        assert!(matches!(Leave::of(true, &nobody), Ok(Leave::Given)));
    }

    #[test]
    fn a_reset_deletes_the_folder_outside_and_keeps_what_was_fetched() {
        let folder = Scratch::make("delete");
        let (private, outside) = (folder.0.join("private"), folder.0.join("outside"));
        for made in ["private/pg", "private/tools", "private/logs", "outside/pg"] {
            std::fs::create_dir_all(folder.0.join(made)).unwrap();
        }
        std::fs::write(private.join("where"), "").unwrap();
        let twice = [outside.clone(), outside.clone(), folder.0.join("gone")];
        let paths = doomed(&private, twice).unwrap();
        assert_eq!(
            paths,
            [outside.clone(), private.join("pg"), private.join("where")]
        );
        agree(&paths, Leave::Given, |_| false).unwrap();
        delete(&paths).unwrap();
        assert!(!outside.exists() && private.join("tools").exists());
    }

    #[test]
    fn a_reset_that_nobody_agreed_to_is_over_before_anything_is_stopped() {
        let folder = Scratch::make("keep");
        let paths = [folder.0.clone()];
        assert!(agree(&paths, Leave::ToBeAsked, |_| false).is_err());
        assert!(agree(&paths, Leave::ToBeAsked, |_| true).is_ok());
        assert!(folder.0.exists());
    }
}

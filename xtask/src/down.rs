//! `cargo xtask down`: stops what `up` started; with `--reset` deletes its data as well.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::place::Place;
use crate::process::{end, runs, signal, wait_until};
use crate::say::{ask_before_loss, tell};
use crate::up::running::{Guard, Running, end_left_over};
use crate::workspace::Workspace;

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
    let noted = Place::noted(workspace);
    let running = Running::read(workspace).filter(|_| Guard::is_taken(workspace));
    let stopped = running.is_some();
    if let Some(running) = running {
        signal(running.pid, "TERM");
        if !wait_until(STOPPED_WITHIN, || !Guard::is_taken(workspace)) {
            bail!("`cargo xtask up` (process {}) does not stop", running.pid);
        }
    } else if Guard::is_taken(workspace) {
        bail!("`cargo xtask up` is still building in this checkout: stop it where it runs");
    }
    let place = Place::of(workspace)?;
    let left_over = end_left_over(workspace) | end_postgres(place.base());
    match (stopped, left_over) {
        (true, _) => tell("stopped; the data is kept"),
        (false, true) => tell("stopped what a crash had left; the data is kept"),
        (false, false) => tell("nothing runs"),
    }
    if let Some(leave) = leave {
        let private = workspace.private()?;
        let base = Some(place.base().to_owned()).filter(|base| *base != private);
        delete(
            &doomed(&private, noted.into_iter().chain(base))?,
            leave,
            ask_before_loss,
        )?;
    }
    Ok(ExitCode::SUCCESS)
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

fn delete(paths: &[PathBuf], leave: Leave, ask: impl FnOnce(&str) -> bool) -> Result<()> {
    tell("a reset deletes the database, its keys and the demo tenant of this checkout:");
    for path in paths {
        tell(format_args!("  {}", path.display()));
    }
    let agreed = match leave {
        Leave::Given => true,
        Leave::ToBeAsked => ask("Delete them?"),
    };
    if !agreed {
        bail!("nothing was deleted");
    }
    for path in paths {
        let removed = if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    tell("deleted");
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
        delete(&paths, Leave::Given, |_| false).unwrap();
        assert!(!outside.exists() && private.join("tools").exists());
    }

    #[test]
    fn a_reset_that_nobody_agreed_to_deletes_nothing() {
        let folder = Scratch::make("keep");
        let paths = [folder.0.clone()];
        assert!(delete(&paths, Leave::ToBeAsked, |_| false).is_err());
        assert!(folder.0.exists());
    }
}

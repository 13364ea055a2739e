//! `cargo xtask down`: stops what `up` started; with `--reset` deletes its data as well.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::{end, runs, signal, wait_until};
use crate::up::running::{Guard, Running, end_left_over};
use crate::workspace::Workspace;

/// The server waits for its requests, then for PostgreSQL.
const STOPPED_WITHIN: Duration = Duration::from_mins(1);

/// Folders that a reset keeps: they were fetched, not made.
const KEPT: &[&str] = &["tools", "logs"];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let reset = args.flag("--reset");
    let consent = Consent::new(args.flag("--yes"));
    args.finish()?;
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
        (true, _) => println!("stopped; the data is kept"),
        (false, true) => println!("stopped what a crash had left; the data is kept"),
        (false, false) => println!("nothing runs"),
    }
    if reset {
        delete(workspace, &place, consent)?;
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

fn delete(workspace: &Workspace, place: &Place, consent: Consent) -> Result<()> {
    if !consent.to("Delete the database, its keys and the demo tenant of this checkout?") {
        bail!("nothing was deleted");
    }
    for folder in [place.base(), &workspace.private()?] {
        for entry in
            std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?
        {
            let path = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| KEPT.iter().any(|kept| name == *kept))
            {
                continue;
            }
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.with_context(|| format!("removing {}", path.display()))?;
        }
    }
    println!("deleted");
    Ok(())
}

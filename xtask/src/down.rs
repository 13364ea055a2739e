//! `cargo xtask down`: stops what `up` started; with `--reset` deletes its data as well.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::{end, signal, wait_until};
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
    if let Some(running) = Running::read(workspace).filter(|_| Guard::is_taken(workspace)) {
        signal(running.pid, "TERM");
        if !wait_until(STOPPED_WITHIN, || !Guard::is_taken(workspace)) {
            bail!("`cargo xtask up` (process {}) does not stop", running.pid);
        }
        println!("stopped; the data is kept");
    } else if Guard::is_taken(workspace) {
        bail!("`cargo xtask up` is still building in this checkout: stop it where it runs");
    } else {
        println!("nothing runs");
    }
    end_left_over(workspace);
    let place = Place::of(workspace)?;
    end_postgres(place.base());
    if reset {
        delete(workspace, &place, consent)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A PostgreSQL that outlived a crash.
fn end_postgres(base: &Path) {
    let Ok(text) = std::fs::read_to_string(base.join("pg/postmaster.pid")) else {
        return;
    };
    if let Some(pid) = text
        .lines()
        .next()
        .and_then(|line| line.trim().parse().ok())
    {
        // SIGINT is its fast shutdown.
        end(pid, "postgres", "INT", STOPPED_WITHIN);
    }
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

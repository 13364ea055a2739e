//! `cargo xtask sqlx`: what the query macros know of the schema, in `.sqlx/`, regenerated from the migrations.
//!
//! The macros of sqlx write one file per query when they are given a database and `SQLX_OFFLINE_DIR`; so the crate
//! `store` is checked against a private PostgreSQL that holds nothing but the migrations. With `--check` the files
//! are compared and nothing is changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::cargo;
use crate::cluster::Cluster;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::logged;
use crate::say::tell;
use crate::tools::postgres::Postgres;
use crate::workspace::{Workspace, make_folder};

/// The crates with SQL.
const PACKAGES: &[&str] = &["posthorn-store"];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let only_check = args.flag("--check");
    let consent = Consent::new(args.flag("--yes"));
    args.finish()?;
    let place = Place::of(workspace)?;
    let postgres = Postgres::oldest(workspace, &place, consent)?;
    let cluster = Cluster::start(workspace, &place, &postgres, "sqlx")?;
    if only_check {
        check(workspace, &cluster)?;
        tell(".sqlx/ agrees with the queries and the migrations");
    } else {
        let fresh = prepare(workspace, &cluster)?;
        let (old, new) = (read(&workspace.join(".sqlx"))?, read(&fresh)?);
        replace(workspace, &new)?;
        tell(format_args!(
            ".sqlx/ holds {} queries (there were {})",
            new.len(),
            old.len()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when `.sqlx/` is not what the queries and the migrations give.
pub(crate) fn check(workspace: &Workspace, cluster: &Cluster) -> Result<()> {
    prepare(workspace, cluster)?;
    compare(workspace)
}

/// Fails when `.sqlx/` is not what the macros wrote last.
pub(crate) fn compare(workspace: &Workspace) -> Result<()> {
    let fresh = read(&written(workspace)?)?;
    let committed = read(&workspace.join(".sqlx"))?;
    let differing: Vec<&String> = fresh
        .iter()
        .filter(|(name, text)| committed.get(*name) != Some(*text))
        .map(|(name, _)| name)
        .chain(committed.keys().filter(|name| !fresh.contains_key(*name)))
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    bail!(
        ".sqlx/ is not up to date ({} files differ): cargo xtask sqlx",
        differing.len()
    )
}

/// Has the macros write their files into a folder of ours.
fn prepare(workspace: &Workspace, cluster: &Cluster) -> Result<PathBuf> {
    // The whole workspace, as every other step builds it: for one package alone cargo would choose other features, and
    // check all that it depends on once more.
    let mut check = cargo::command(workspace);
    check.args(["check", "--quiet", "--workspace", "--all-targets"]);
    have_written(workspace, cluster, &mut check)?;
    logged(&mut check, &workspace.logs()?.join("sqlx.log"))?;
    written(workspace)
}

/// Where the macros write.
fn written(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.private()?.join("sqlx"))
}

/// Makes a cargo that compiles the workspace have the macros write their files, from a database with nothing but the migrations.
pub(crate) fn have_written(
    workspace: &Workspace,
    cluster: &Cluster,
    compile: &mut Command,
) -> Result<()> {
    cluster.migrated(workspace, "posthorn_queries")?;
    let folder = written(workspace)?;
    let _ = std::fs::remove_dir_all(&folder);
    make_folder(&folder, 0o700)?;
    for package in PACKAGES {
        // Cargo rebuilds what is newer than its output; the macros must run again.
        let krate = package.trim_start_matches("posthorn-");
        let source = workspace.join(&format!("crates/{krate}/src/lib.rs"));
        std::fs::File::options()
            .append(true)
            .open(&source)
            .and_then(|file| file.set_modified(SystemTime::now()))
            .with_context(|| format!("touching {}", source.display()))?;
    }
    compile
        .env("DATABASE_URL", cluster.url("posthorn_queries"))
        .env("SQLX_OFFLINE", "false")
        .env("SQLX_OFFLINE_DIR", &folder);
    Ok(())
}

fn read(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(files);
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") {
            files.insert(name, std::fs::read_to_string(entry.path())?);
        }
    }
    Ok(files)
}

fn replace(workspace: &Workspace, new: &BTreeMap<String, String>) -> Result<()> {
    let folder = workspace.join(".sqlx");
    std::fs::create_dir_all(&folder)?;
    for name in read(&folder)?
        .keys()
        .filter(|name| !new.contains_key(*name))
    {
        std::fs::remove_file(folder.join(name))?;
    }
    for (name, text) in new {
        std::fs::write(folder.join(name), text).with_context(|| format!("writing .sqlx/{name}"))?;
    }
    Ok(())
}

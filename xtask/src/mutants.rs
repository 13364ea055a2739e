//! `cargo xtask mutants`: breaks each promise on purpose, in a copy, and wants a red test.
//!
//! `tests/mutants/INV-n….patch` names the promise that it breaks. The tests that `docs/contract.toml` lists for that
//! promise are run in the copy; when all of them pass, the promise is not held by them.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::cargo;
use crate::cluster::Cluster;
use crate::count::Count;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::{capture, which};
use crate::say::tell;
use crate::tidy::tests_of_promise;
use crate::tools::postgres::Postgres;
use crate::workspace::{Workspace, make_folder};

/// The database that a mutant's queries are checked against: what `.sqlx/` says of them is no longer true.
const QUERIES: &str = "posthorn_mutants";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let consent = Consent::new(args.flag("--yes"));
    let names = args.rest();
    let wanted = chosen(workspace, &names)?;
    let place = Place::of(workspace)?;
    let postgres = Postgres::ready(workspace, &place, consent)?;
    let cluster = Cluster::start(workspace, &place, &postgres, "mutants")?;
    let count = check(workspace, &cluster, &wanted)?;
    tell(format_args!(
        "{} mutants died, {} lived",
        count.passed, count.failed
    ));
    Ok(if count.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The patches whose names begin with one of these, or all.
fn chosen(workspace: &Workspace, names: &[String]) -> Result<Vec<PathBuf>> {
    let mut patches = patches(workspace)?;
    for wanted in names {
        if !patches
            .iter()
            .any(|patch| name_of(patch).starts_with(wanted.as_str()))
        {
            bail!("no patch of tests/mutants begins with `{wanted}`");
        }
    }
    if !names.is_empty() {
        patches.retain(|patch| {
            let name = name_of(patch);
            names.iter().any(|wanted| name.starts_with(wanted.as_str()))
        });
    }
    Ok(patches)
}

fn name_of(patch: &Path) -> String {
    let stem = patch.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// Tries these mutants.
pub(crate) fn check(
    workspace: &Workspace,
    cluster: &Cluster,
    patches: &[PathBuf],
) -> Result<Count> {
    cluster.migrated(workspace, QUERIES)?;
    let copy = workspace.private()?.join("mutant");
    let mut count = Count::default();
    for patch in patches {
        let name = name_of(patch);
        fresh_copy(workspace, &copy)?;
        let mut git = Command::new("git");
        capture(git.current_dir(&copy).arg("apply").arg(patch))
            .with_context(|| format!("{name} no longer applies"))?;
        count += match killer(workspace, &copy, &name, cluster) {
            Ok(Some(test)) => {
                tell(format_args!("{name}: died by {test}"));
                Count::ONE_PASSED
            }
            Ok(None) => {
                tell(format_args!("{name}: LIVED, no test of its promise fails"));
                Count::ONE_FAILED
            }
            // The others may prove something all the same.
            Err(error) => {
                tell(format_args!("{name}: PROVES NOTHING, {error:#}"));
                Count::ONE_FAILED
            }
        };
    }
    let _ = std::fs::remove_dir_all(&copy);
    Ok(count)
}

/// The patches, in the order of their names.
pub(crate) fn patches(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(workspace.join("tests/mutants")).context("reading tests/mutants")?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    found.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "patch")
    });
    found.sort();
    Ok(found)
}

/// What git knows of the checkout, as it stands now, without a repository of its own.
fn fresh_copy(workspace: &Workspace, copy: &Path) -> Result<()> {
    make_folder(copy, 0o700)?;
    let mut git = Command::new("git");
    let listed = capture(git.current_dir(workspace.root()).args(["ls-files", "-z"]))?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (workspace.join(name), copy.join(name));
        let Ok(text) = std::fs::read(&from) else {
            continue;
        };
        // Files that did not change keep their time, so that cargo builds only what a mutant touches.
        if std::fs::read(&to).is_ok_and(|old| old == text) {
            continue;
        }
        if let Some(folder) = to.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&to, text).with_context(|| format!("copying {name}"))?;
    }
    if !copy.join(".git").exists() {
        capture(Command::new("git").current_dir(copy).args(["init", "-q"]))?;
    }
    Ok(())
}

/// The first of its promise's tests that fails in the copy.
fn killer(
    workspace: &Workspace,
    copy: &Path,
    name: &str,
    cluster: &Cluster,
) -> Result<Option<String>> {
    let promise = promise_of(name);
    let tests = tests_of_promise(workspace, &promise)?;
    if tests.is_empty() {
        bail!("{name}: docs/contract.toml lists no test for {promise}");
    }
    let program = target(workspace).join("debug/posthorn");
    let mut build = in_copy(workspace, copy, cluster);
    // A mutant that does not compile proves nothing.
    capture(build.args(["build", "--quiet", "--workspace", "--bin", "posthorn"]))
        .with_context(|| format!("{name} does not compile"))?;
    let mut run = in_copy(workspace, copy, cluster);
    if which("cargo-nextest").is_some() {
        run.args(["nextest", "run", "--color", "never"]);
    } else {
        run.arg("test");
    }
    // The whole workspace, as it was built: for some packages cargo would choose other features.
    run.args(["--workspace", "--"]);
    run.args(tests.iter().map(|(test, _)| test));
    run.env("POSTHORN_TEST_DATABASE", cluster.url("postgres"))
        .env("POSTHORN_TEST_PG_BIN", cluster.bin())
        .env("POSTHORN_TEST_BIN", program);
    let output = run.output().context("starting the tests")?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let count = Count::of_output(&text);
    if count == Count::default() {
        bail!("{name}: no test ran:\n{}", crate::process::tail(&text, 20));
    }
    Ok((count.failed > 0).then(|| first_failed(&text).unwrap_or("a test").to_owned()))
}

/// The name of the first test that failed, as nextest or cargo's own runner tells it.
fn first_failed(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let line = line.trim();
        if line.starts_with("FAIL [") || line.starts_with("TIMEOUT [") {
            line.split_whitespace().next_back()
        } else {
            line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
        }
    })
}

fn in_copy(workspace: &Workspace, copy: &Path, cluster: &Cluster) -> Command {
    let mut cargo = cargo::command(workspace);
    cargo
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target(workspace))
        .env("SQLX_OFFLINE", "false")
        .env("DATABASE_URL", cluster.url(QUERIES));
    cargo
}

/// Apart from the checkout's own, so that what a mutant broke is in nobody's way.
fn target(workspace: &Workspace) -> PathBuf {
    workspace.target().join("mutants")
}

/// `INV-3-trimmed` → `INV-3`.
fn promise_of(name: &str) -> String {
    name.splitn(3, '-').take(2).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::{first_failed, promise_of};

    #[test]
    fn a_mutant_is_named_for_the_promise_that_it_breaks() {
        assert_eq!(promise_of("INV-12-one-node-late"), "INV-12");
        assert_eq!(promise_of("INV-3"), "INV-3");
    }

    #[test]
    fn the_test_that_failed_is_named() {
        let nextest = "        PASS [   0.010s] (1/2) posthorn-store other\n        FAIL [   0.123s] (2/2) posthorn-store a::b";
        assert_eq!(first_failed(nextest), Some("a::b"));
        assert_eq!(first_failed("test c::d ... FAILED"), Some("c::d"));
        assert_eq!(first_failed("test c::d ... ok"), None);
    }
}

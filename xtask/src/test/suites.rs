//! The suites, in the order in which a fault is found soonest.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Suite;
use super::captured;
use super::yard::Yard;
use crate::count::Count;
use crate::process::{capture, logged, tail, which};
use crate::say::tell;
use crate::tools::python::Python;
use crate::{mutants, openapi, schema, sqlx, tidy};

/// The crates whose tests use a database, as nextest names them.
const WITH_DATABASE: &str =
    "package(posthorn-store) + package(posthorn-server) + package(posthorn-tests)";

pub(super) fn all() -> Vec<Suite> {
    let suite = |name, seconds, run| Suite {
        name,
        budget: Duration::from_secs(seconds),
        long: false,
        run,
    };
    // About twice what two idle cores need from cold: a budget is to catch a suite that has grown, not a neighbour on
    // the same machine.
    vec![
        suite("format", 90, format),
        suite("tidy", 180, rules),
        suite("build", 2400, build),
        suite("queries", 600, queries),
        suite("schema", 300, dump),
        suite("openapi", 120, description),
        suite("tests", 1200, tests),
        suite("doctests", 400, doctests),
        suite("newest", 1200, newest),
        suite("verifiers", 400, captured::verify),
        suite("compose", 300, compose),
        suite("deny", 300, deny),
        Suite {
            name: "mutants",
            budget: Duration::from_hours(2),
            long: true,
            run: mutated,
        },
    ]
}

fn format(yard: &mut Yard<'_>) -> Result<Count> {
    let mut fmt = yard.cargo()?;
    logged(
        fmt.args(["fmt", "--all", "--", "--check", "-l"]),
        &yard.workspace.logs()?.join("format.log"),
    )?;
    Ok(Count::ONE_PASSED)
}

fn rules(yard: &mut Yard<'_>) -> Result<Count> {
    tidy::check(yard.workspace)
}

/// Everything at once, so that every later suite finds its crates built with the same features; clippy's lints and the queries'
/// files on the way.
fn build(yard: &mut Yard<'_>) -> Result<Count> {
    let workspace = yard.workspace;
    let mut build = yard.cargo()?;
    build.args(["build", "--color", "never", "--workspace", "--all-targets"]);
    sqlx::have_written(workspace, yard.oldest()?, &mut build)?;
    logged(&mut build, &workspace.logs()?.join("test-build.log"))?;
    yard.queries_written = true;
    Ok(Count::ONE_PASSED)
}

fn queries(yard: &mut Yard<'_>) -> Result<Count> {
    let workspace = yard.workspace;
    if yard.queries_written {
        sqlx::compare(workspace)?;
    } else {
        sqlx::check(workspace, yard.oldest()?)?;
    }
    Ok(Count::ONE_PASSED)
}

fn dump(yard: &mut Yard<'_>) -> Result<Count> {
    let workspace = yard.workspace;
    schema::check(workspace, yard.newest()?)?;
    Ok(Count::ONE_PASSED)
}

fn description(yard: &mut Yard<'_>) -> Result<Count> {
    openapi::check(yard.workspace)?;
    Ok(Count::ONE_PASSED)
}

/// Every test of every crate, on the oldest PostgreSQL.
fn tests(yard: &mut Yard<'_>) -> Result<Count> {
    captured::clear(yard)?;
    let cluster = yard.oldest()?;
    let (url, bin) = (cluster.url("postgres"), cluster.bin().to_owned());
    counted(yard.tests(&url, &bin, None)?, "tests", yard)
}

/// The tests that use a database, again on the newest.
fn newest(yard: &mut Yard<'_>) -> Result<Count> {
    let cluster = yard.newest()?;
    let (url, bin) = (cluster.url("postgres"), cluster.bin().to_owned());
    counted(yard.tests(&url, &bin, Some(WITH_DATABASE))?, "newest", yard)
}

fn doctests(yard: &mut Yard<'_>) -> Result<Count> {
    let mut doc = yard.cargo()?;
    doc.args([
        "test",
        "--doc",
        "--workspace",
        "--no-fail-fast",
        "--color",
        "never",
    ]);
    counted(doc, "doctests", yard)
}

/// `docker-compose.yml` against the schema of the Compose specification; no engine is started.
fn compose(yard: &mut Yard<'_>) -> Result<Count> {
    let python = Python::ready(yard.workspace, yard.consent)?;
    python.install(&yard.workspace.join("xtask/pins/compose.txt"), None)?;
    let mut check = Command::new(python.program());
    check
        .arg(yard.workspace.join("xtask/checks/compose.py"))
        .current_dir(yard.workspace.root());
    tell(capture(&mut check)?.trim_end());
    Ok(Count::ONE_PASSED)
}

/// cargo-deny where it is installed; elsewhere the same lists are held by two rules of `tidy`.
fn deny(yard: &mut Yard<'_>) -> Result<Count> {
    if which("cargo-deny").is_none() {
        tell("cargo-deny is not here; tidy has held its licences and bans");
        return Ok(Count::default());
    }
    let mut deny = yard.cargo()?;
    deny.args(["deny", "--offline", "check", "licenses", "bans", "sources"]);
    logged(&mut deny, &yard.workspace.logs()?.join("deny.log"))?;
    Ok(Count::ONE_PASSED)
}

fn mutated(yard: &mut Yard<'_>) -> Result<Count> {
    let workspace = yard.workspace;
    let cluster = yard.oldest()?;
    mutants::check(workspace, cluster, &mutants::patches(workspace)?)
}

/// Runs tests with their output in a log, and takes the numbers from their own summaries.
fn counted(mut run: Command, name: &str, yard: &Yard<'_>) -> Result<Count> {
    let log = yard.workspace.logs()?.join(format!("{name}.log"));
    let result = logged(&mut run, &log);
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let mut count = Count::of_output(&text);
    match result {
        Ok(()) if count == Count::default() && name != "doctests" => {
            bail!("no test ran:\n{}", tail(&text, 20));
        }
        Err(error) => {
            tell(format_args!("{error:#}"));
            for test in Count::failed_names(&text) {
                tell(format_args!("failed: {test}"));
            }
            // A crash or a build that fails leaves no summary.
            count.failed = count.failed.max(1);
        }
        Ok(()) => {}
    }
    Ok(count)
}

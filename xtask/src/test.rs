//! `cargo xtask test`: everything that decides whether a change may go in, one suite after another.
//!
//! Guarantees: what a suite needs is found or fetched; none is left out in silence (`--skip`, `--only` and what a
//! machine cannot run are counted in the closing line); a suite over its budget fails. PostgreSQL runs privately and
//! ends with the run. The closing line is `N passed, N failed, N skipped`.

mod captured;
mod suites;
mod yard;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::args::Args;
use crate::count::Count;
use crate::needs::Consent;
use crate::say::{Colour, coloured, tell};
use crate::workspace::Workspace;

use self::yard::Yard;

/// One part of the whole.
struct Suite {
    name: &'static str,
    /// On two cores with nothing built; over it the suite fails.
    budget: Duration,
    /// Runs only with `--long`.
    long: bool,
    run: fn(&mut Yard<'_>) -> Result<Count>,
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let skip = args.values("--skip")?;
    let only = args.values("--only")?;
    let long = args.flag("--long");
    let consent = Consent::new(args.flag("--yes"));
    args.finish()?;
    let suites = suites::all();
    for name in skip.iter().chain(&only) {
        if !suites.iter().any(|suite| suite.name == name) {
            let names: Vec<&str> = suites.iter().map(|suite| suite.name).collect();
            bail!("there is no suite `{name}`; there are {}", names.join(", "));
        }
    }
    let mut yard = Yard::new(workspace, consent)?;
    let mut total = Count::default();
    for suite in suites.iter().filter(|suite| long || !suite.long) {
        let wanted = only.is_empty() || only.iter().any(|name| name == suite.name);
        if !wanted || skip.iter().any(|name| name == suite.name) {
            tell(format_args!("{:<12} skipped", suite.name));
            total += Count::ONE_SKIPPED;
        } else {
            total += run_one(suite, &mut yard);
        }
    }
    drop(yard);
    tell(format_args!(
        "{} passed, {} failed, {} skipped",
        total.passed, total.failed, total.skipped
    ));
    Ok(if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_one(suite: &Suite, yard: &mut Yard<'_>) -> Count {
    let begun = Instant::now();
    let mut count = match (suite.run)(yard) {
        Ok(count) => count,
        Err(error) => {
            tell(format_args!("{error:#}"));
            Count::ONE_FAILED
        }
    };
    let seconds = begun.elapsed().as_secs_f64();
    if begun.elapsed() > suite.budget {
        tell(format_args!(
            "{}: over its budget of {} s",
            suite.name,
            suite.budget.as_secs()
        ));
        count += Count::ONE_FAILED;
    }
    let verdict = match count {
        Count { failed: 0, .. } => coloured("ok", Colour::Green),
        _ => coloured("FAILED", Colour::Red),
    };
    tell(format_args!(
        "{:<12} {verdict}, {} passed, {} failed, {} skipped, {seconds:.1} s",
        suite.name, count.passed, count.failed, count.skipped
    ));
    count
}

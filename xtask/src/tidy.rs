//! `cargo xtask tidy`: the rules of the house that no compiler holds, each a small reader of what is committed.
//!
//! A rule answers with sentences, one per fault; none means that it holds. It reads files, `cargo metadata` and what
//! `git apply --check` says, and changes nothing. Neighbours: clippy, which holds sizes and bans (`clippy.toml`).

mod contract;
mod edges;
mod layout;
mod licences;
mod metadata;
mod migrations;
mod promises;
mod sources;
mod words;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Args;
use crate::count::Count;
use crate::say::tell;
use crate::workspace::Workspace;

use self::metadata::Metadata;
use self::sources::Sources;

/// What every rule may read.
struct House<'a> {
    workspace: &'a Workspace,
    metadata: Metadata,
    sources: Sources,
}

type Rule = fn(&House<'_>) -> Result<Vec<String>>;

const RULES: &[(&str, Rule)] = &[
    (
        "crates know those that the design lets them know",
        |house| Ok(edges::check(house)),
    ),
    ("licences are allowed", licences::allowed),
    (
        "banned crates are absent: one TLS and one cryptography",
        licences::banned,
    ),
    ("modules are named for what they do", |house| {
        Ok(layout::names(house))
    }),
    ("every module says what it is", |house| {
        Ok(layout::module_docs(house))
    }),
    ("nothing is re-exported by glob", |house| {
        Ok(layout::globs(house))
    }),
    ("no test is ignored", |house| Ok(layout::ignored(house))),
    ("one word per concept", words::check),
    ("migrations only grow", migrations::check),
    ("queries that are not checked say why", |house| {
        Ok(layout::unchecked_sql(house))
    }),
    ("the database's errors are told in one place", |house| {
        Ok(layout::driver_errors(house))
    }),
    ("each promise is cited by code and by test", promises::check),
    ("each mutant still applies", promises::mutants_apply),
    ("each row of the contract has its tests", contract::check),
];

pub(crate) fn run(workspace: &Workspace, args: Args) -> Result<ExitCode> {
    args.finish()?;
    let count = check(workspace)?;
    Ok(if count.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Looks at every rule and prints the faults.
pub(crate) fn check(workspace: &Workspace) -> Result<Count> {
    let house = House {
        workspace,
        metadata: Metadata::read(workspace)?,
        sources: Sources::read(workspace)?,
    };
    let mut count = Count::default();
    for (name, rule) in RULES {
        let faults = rule(&house)?;
        count += if faults.is_empty() {
            Count::ONE_PASSED
        } else {
            Count::ONE_FAILED
        };
        if !faults.is_empty() {
            tell(format_args!("not held: {name}"));
            for fault in faults {
                tell(format_args!("    {fault}"));
            }
        }
    }
    tell(contract::told(&house)?);
    Ok(count)
}

/// The tests that hold a promise, each with the packages it is in.
pub(crate) fn tests_of_promise(
    workspace: &Workspace,
    promise: &str,
) -> Result<Vec<(String, Vec<String>)>> {
    let sources = Sources::read(workspace)?;
    let tests = contract::Contract::read(workspace)?.tests_of("promises", promise);
    let packages_of = |test: &String| {
        let folders = sources.tests.get(test).into_iter().flatten();
        folders
            .map(|folder| format!("posthorn-{}", folder.rsplit('/').next().unwrap_or(folder)))
            .collect()
    };
    Ok(tests
        .into_iter()
        .map(|test| (test.clone(), packages_of(&test)))
        .collect())
}

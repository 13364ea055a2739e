//! `cargo xtask bench`: builds program and load generator, and runs scenarios on this machine.
//!
//! Times of one machine mean nothing on another; ratios, CPU and counts do, and are what the generator prints.

use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::args::Args;
use crate::cargo;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::check;
use crate::say::{Step, Voice};
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

pub(crate) const HELP: &str = "\
cargo xtask bench [SCENARIO] [--quick] [OPTION]…

Builds the program and the load generator, optimised, and runs a scenario with a PostgreSQL of its own: s1 (the default), s1b, s2,
s4 to s12, or all of them. docs/performance.md says what is in each.

  --quick        the build of `cargo xtask up`, minutes sooner than a release
  --rounds N     how often what is compared takes turns (3; 5 for figures to be told)
  --seconds N    how long each stretch lasts (2; 10 for figures to be told)
  --rows N       rows that are there before, in s7, s8 and s10
  --tenants N    --connections N
  --socket       reach PostgreSQL by its socket instead of TCP
  --json FILE    a report for programs";

/// What the load generator can do.
const COMMANDS: [&str; 15] = [
    "all", "s1", "s1b", "s2", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "sink",
    "load",
];

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let profile = if args.flag("--quick") {
        "quick"
    } else {
        "release"
    };
    let consent = Consent::new(args.flag("--yes"));
    let wanted = args.rest();
    // Before minutes are spent on building.
    if let Some(first) = wanted.first().filter(|first| !first.starts_with('-'))
        && !COMMANDS.contains(&first.to_lowercase().as_str())
    {
        bail!("there is no scenario `{first}`: {}", COMMANDS.join(", "));
    }
    let voice = Voice::new(false);
    let place = Place::of(workspace)?;
    let postgres = Postgres::ready(workspace, &place, consent)?;
    let mut step = Step::new(voice, 1, 1, profile);
    let packages = [
        "--profile",
        profile,
        "--package",
        "posthorn-server",
        "--package",
        "posthorn-bench",
    ];
    cargo::build(
        workspace,
        &packages,
        &mut step,
        &workspace.logs()?.join("bench-build.log"),
    )?;
    step.done("built");
    let mut bench = Command::new(workspace.program(profile, "posthorn-bench"));
    bench
        .args(wanted)
        .env("POSTHORN_BIN", workspace.program(profile, "posthorn"));
    bench
        .env("POSTHORN_PG_BIN", &postgres.bin)
        .env("POSTHORN_BENCH_DIR", place.base());
    check(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}

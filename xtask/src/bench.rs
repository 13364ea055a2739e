//! `cargo xtask bench`: builds program and load generator, and runs scenarios on this machine.
//!
//! Times of one machine mean nothing on another; ratios, CPU and counts do, and are what the generator prints.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::args::Args;
use crate::cargo;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::check;
use crate::say::{Step, Voice};
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let profile = if args.flag("--quick") {
        "quick"
    } else {
        "release"
    };
    let consent = Consent::new(args.flag("--yes"));
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
        .args(args.rest())
        .env("POSTHORN_BIN", workspace.program(profile, "posthorn"));
    bench
        .env("POSTHORN_PG_BIN", &postgres.bin)
        .env("POSTHORN_BENCH_DIR", place.base());
    check(&mut bench)?;
    Ok(ExitCode::SUCCESS)
}

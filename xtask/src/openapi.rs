//! `cargo xtask openapi`: the API's description, `openapi/openapi.json`, as the program tells it.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::process::{capture, check as run_to_end};
use crate::say::tell;
use crate::workspace::Workspace;

pub(crate) const FILE: &str = "openapi/openapi.json";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let only_check = args.flag("--check");
    args.finish()?;
    run_to_end(crate::cargo::command(workspace).args(["build", "--quiet", "--bin", "posthorn"]))?;
    if only_check {
        check(workspace)?;
        tell(format_args!("{FILE} is what the program serves"));
    } else {
        std::fs::write(workspace.join(FILE), told(workspace)?).context(FILE)?;
        tell(format_args!("{FILE} is written"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when the committed description is not what the built program tells.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let committed = std::fs::read_to_string(workspace.join(FILE)).unwrap_or_default();
    if committed == told(workspace)? {
        return Ok(());
    }
    bail!("{FILE} is not what the program serves: cargo xtask openapi")
}

fn told(workspace: &Workspace) -> Result<String> {
    let text = capture(Command::new(workspace.program("debug", "posthorn")).arg("openapi"))?;
    Ok(format!("{}\n", text.trim_end()))
}

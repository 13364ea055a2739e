//! `cargo xtask schema`: the whole schema as one text, `docs/schema.sql`, so that a change of it can be read.
//!
//! It is dumped by the pinned PostgreSQL of the wheel, since other versions spell a dump differently.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::args::Args;
use crate::cluster::Cluster;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::capture;
use crate::say::tell;
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

const FILE: &str = "docs/schema.sql";
const HEAD: &str =
    "-- What the migrations add up to. Written by `cargo xtask schema`; not applied by anything.\n";

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let only_check = args.flag("--check");
    let consent = Consent::new(args.flag("--yes"));
    args.finish()?;
    let place = Place::of(workspace)?;
    let postgres = Postgres::from_wheel(workspace, &place, consent)?;
    let cluster = Cluster::start(workspace, &place, &postgres, "schema")?;
    if only_check {
        check(workspace, &cluster)?;
        tell(format_args!("{FILE} is what the migrations give"));
    } else {
        std::fs::write(workspace.join(FILE), dump(workspace, &cluster)?).context(FILE)?;
        tell(format_args!("{FILE} is written"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Fails when the committed dump is not what the migrations give.
pub(crate) fn check(workspace: &Workspace, cluster: &Cluster) -> Result<()> {
    let committed = std::fs::read_to_string(workspace.join(FILE)).unwrap_or_default();
    if committed == dump(workspace, cluster)? {
        return Ok(());
    }
    bail!("{FILE} is not what the migrations give: cargo xtask schema")
}

fn dump(workspace: &Workspace, cluster: &Cluster) -> Result<String> {
    cluster.migrated(workspace, "posthorn_schema")?;
    let text = capture(&mut cluster.client("pg_dump", "posthorn_schema", &["--schema-only"]))?;
    Ok(format!("{HEAD}{}", normalised(&text)))
}

/// Without what differs from run to run or tells nothing: settings, restriction tokens, headings, empty lines.
fn normalised(dump: &str) -> String {
    let mut text = String::new();
    for line in dump.lines() {
        let noise = line.is_empty()
            || line.starts_with("--")
            || line.starts_with("SET ")
            || line.starts_with("SELECT pg_catalog.set_config")
            || line.starts_with('\\');
        if !noise {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::normalised;

    #[test]
    fn a_dump_keeps_statements_and_loses_what_differs_from_run_to_run() {
        let dump = "--\n-- Dumped\n\n\\restrict abc\nSET lock_timeout = 0;\nCREATE TABLE t (\n    a integer\n);\n";
        assert_eq!(normalised(dump), "CREATE TABLE t (\n    a integer\n);\n");
    }
}

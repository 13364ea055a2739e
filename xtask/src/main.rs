//! The tasks of this repository: `cargo xtask up`, `down`, `test` and those that regenerate what is committed.
//!
//! Guarantees: nothing is installed system-wide without a yes, nothing outside `.posthorn/` of the checkout
//! (or `/var/lib/posthorn-dev/`, as root) is written to, and only processes that were started here are ended.
//! It is a tool for developers' machines: it blocks, it reads the clock and the environment, and its errors are for
//! reading. Neighbours: the binary `posthorn` (crates/server), which it builds and runs, and `posthorn-bench`.

#![expect(
    clippy::disallowed_methods,
    reason = "the bans on clock, sleep and environment are for the server; this program runs on a person's machine"
)]
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic when nobody reads; say never does"
)]

mod args;
mod bench;
mod cargo;
mod cluster;
mod count;
mod down;
mod http;
mod mutants;
mod needs;
mod openapi;
mod place;
mod process;
mod say;
mod schema;
mod sqlx;
mod test;
mod tidy;
mod tools;
mod up;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Args;
use crate::workspace::Workspace;

const USAGE: &str = "\
cargo xtask up      [--detach] [--yes] [--json] [--system-postgres]   build and run everything, with a demo tenant
cargo xtask down    [--reset] [--yes]           stop it; with --reset delete its data too
cargo xtask test    [--skip NAME]… [--only NAME]… [--long] [--yes]    all checks and tests
cargo xtask tidy                                the rules of the house that no compiler holds
cargo xtask sqlx    [--check]                   regenerate .sqlx/ from the queries and the migrations
cargo xtask schema  [--check]                   regenerate docs/schema.sql from the migrations
cargo xtask openapi [--check]                   regenerate openapi/openapi.json from the program
cargo xtask bench   [SCENARIO…] [--quick]       load, server, PostgreSQL and sink on this machine
cargo xtask mutants [NAME…]                     break each promise on purpose and want a red test";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            say::complain(format_args!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn help(task: Option<&str>) -> &'static str {
    match task {
        Some("up") => up::HELP,
        Some("down") => down::HELP,
        Some("bench") => bench::HELP,
        _ => USAGE,
    }
}

fn run() -> Result<ExitCode> {
    let mut args = Args::from_command_line();
    let word = args.word();
    if args.asks_for_help() {
        say::tell(help(word.as_deref()));
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = Workspace::find()?;
    match word.as_deref() {
        Some("up") => up::run(&workspace, args),
        Some("down") => down::run(&workspace, args),
        Some("test") => test::run(&workspace, args),
        Some("tidy") => tidy::run(&workspace, args),
        Some("sqlx") => sqlx::run(&workspace, args),
        Some("schema") => schema::run(&workspace, args),
        Some("openapi") => openapi::run(&workspace, args),
        Some("bench") => bench::run(&workspace, args),
        Some("mutants") => mutants::run(&workspace, args),
        Some("help" | "--help" | "-h") => {
            say::tell(USAGE);
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => anyhow::bail!("there is no task `{other}`\n\n{USAGE}"),
        None => anyhow::bail!("which task?\n\n{USAGE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_up_and_down_explains_every_flag_that_the_overview_names() {
        for task in ["up", "down"] {
            let line = USAGE
                .lines()
                .find(|line| line.starts_with(&format!("cargo xtask {task} ")))
                .unwrap();
            let words = line.split(['[', ']', ' ', ';']);
            for flag in words.filter(|word| word.starts_with("--")) {
                let explained = help(Some(task))
                    .lines()
                    .any(|line| line.starts_with(&format!("  {flag} ")));
                assert!(explained, "{task} {flag}");
            }
        }
    }

    #[test]
    fn a_task_without_a_help_of_its_own_shows_the_overview() {
        assert_eq!(help(Some("tidy")), USAGE);
        assert_eq!(help(None), USAGE);
    }
}

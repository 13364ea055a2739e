//! What the suites share: the checkout, the clusters that run, the folder of captured requests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::cargo;
use crate::cluster::Cluster;
use crate::needs::Consent;
use crate::place::Place;
use crate::process::which;
use crate::say::tell;
use crate::tools::postgres::{OLDEST, Postgres};
use crate::workspace::{Workspace, make_folder};

/// `-D warnings`, as `cargo clippy` hands what stands after its `--` to the driver.
const DENY_WARNINGS: &str = "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__";

pub(super) struct Yard<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) consent: Consent,
    place: Place,
    /// The oldest PostgreSQL that this machine has, and the newest: the wheel's.
    oldest: Option<Cluster>,
    newest: Option<Cluster>,
    /// This run has built the workspace, and the macros of sqlx have written what they know of the queries.
    pub(super) queries_written: bool,
}

impl<'a> Yard<'a> {
    pub(super) fn new(workspace: &'a Workspace, consent: Consent) -> Result<Self> {
        Ok(Self {
            workspace,
            consent,
            place: Place::of(workspace)?,
            oldest: None,
            newest: None,
            queries_written: false,
        })
    }

    /// A cluster of the oldest supported major version, or of the oldest that is here.
    pub(super) fn oldest(&mut self) -> Result<&Cluster> {
        if self.oldest.is_none() {
            let postgres = Postgres::oldest(self.workspace, &self.place, self.consent)?;
            if postgres.major() != OLDEST {
                tell(format_args!(
                    "PostgreSQL {OLDEST} is not here; {} stands in for it",
                    postgres.version
                ));
            }
            self.oldest = Some(Cluster::start(
                self.workspace,
                &self.place,
                &postgres,
                "oldest",
            )?);
        }
        self.oldest
            .as_ref()
            .context("the cluster has just been started")
    }

    /// A cluster of the pinned wheel.
    pub(super) fn newest(&mut self) -> Result<&Cluster> {
        if self.newest.is_none() {
            let postgres = Postgres::from_wheel(self.workspace, &self.place, self.consent)?;
            self.newest = Some(Cluster::start(
                self.workspace,
                &self.place,
                &postgres,
                "newest",
            )?);
        }
        self.newest
            .as_ref()
            .context("the cluster has just been started")
    }

    /// Where the tests leave what a receiver got.
    pub(super) fn captured(&self) -> Result<PathBuf> {
        let folder = self.workspace.private()?.join("captured");
        make_folder(&folder, 0o700)?;
        Ok(folder)
    }

    /// A cargo whose programs and tests see nothing of the caller's own database and settings, and which compiles the workspace
    /// with clippy in the compiler's place: what is compiled is linted, and no crate is compiled once for its lints and once to be run.
    pub(super) fn cargo(&self) -> Result<Command> {
        let mut cargo = cargo::command(self.workspace);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POSTHORN_") {
                cargo.env_remove(&name);
            }
        }
        for name in ["DATABASE_URL", "PORT", "SQLX_OFFLINE_DIR"] {
            cargo.env_remove(name);
        }
        cargo.env("SQLX_OFFLINE", "true");
        let clippy =
            which("clippy-driver").context("clippy is not here (rustup component add clippy)")?;
        cargo
            .env("RUSTC_WORKSPACE_WRAPPER", clippy)
            .env("CLIPPY_ARGS", DENY_WARNINGS);
        Ok(cargo)
    }

    /// Runs tests: nextest where it is, those of a `filter`; else `cargo test`, which runs all. Always the whole
    /// workspace, since other selections would build other features.
    pub(super) fn tests(
        &self,
        database: &str,
        postgres: &Path,
        filter: Option<&str>,
    ) -> Result<Command> {
        let mut cargo = self.cargo()?;
        if which("cargo-nextest").is_some() {
            cargo.args([
                "nextest",
                "run",
                "--workspace",
                "--no-fail-fast",
                "--color",
                "never",
            ]);
            cargo.args([
                "--hide-progress-bar",
                "--status-level",
                "slow",
                "--final-status-level",
                "fail",
            ]);
            cargo.args(filter.map(|filter| format!("--filterset={filter}")));
        } else {
            cargo.args([
                "test",
                "--workspace",
                "--no-fail-fast",
                "--color",
                "never",
                "--lib",
                "--bins",
                "--tests",
            ]);
        }
        cargo
            .env("POSTHORN_TEST_DATABASE", database)
            .env(
                "POSTHORN_TEST_BIN",
                self.workspace.program("debug", "posthorn"),
            )
            .env("POSTHORN_TEST_PG_BIN", postgres)
            .env("POSTHORN_CAPTURE_DIR", self.captured()?)
            // What a failed test says is told with its last lines; a stack of forty frames would be all of them.
            .env("RUST_BACKTRACE", "0");
        Ok(cargo)
    }
}

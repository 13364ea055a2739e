//! `cargo metadata`: who depends on whom, and under which licence.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::cargo;
use crate::process::capture;
use crate::workspace::Workspace;

/// One package of the resolved graph.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: String,
    /// A crate of this repository.
    pub(super) ours: bool,
    /// Names of its own normal and build dependencies (not those of its tests).
    pub(super) knows: BTreeSet<String>,
}

pub(super) struct Metadata {
    pub(super) packages: Vec<Package>,
}

impl Metadata {
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let mut metadata = cargo::command(workspace);
        metadata.args(["metadata", "--format-version", "1", "--locked"]);
        // Of this platform: the crates of the others need not be fetched to be looked at.
        metadata.args(["--filter-platform", &host()?]);
        let text = capture(&mut metadata)?;
        let value: Value = serde_json::from_str(&text).context("reading cargo metadata")?;
        let ours: BTreeSet<&str> = list(&value, "/workspace_members")
            .filter_map(Value::as_str)
            .collect();
        let built = built(workspace)?;
        let packages = list(&value, "/packages")
            .filter(|package| {
                built.contains(&(text_of(package, "name"), text_of(package, "version")).into())
            })
            .map(|package| Package {
                name: text_of(package, "name").to_owned(),
                version: text_of(package, "version").to_owned(),
                licence: text_of(package, "license").to_owned(),
                ours: ours.contains(text_of(package, "id")),
                knows: list(package, "/dependencies")
                    .filter(|dependency| text_of(dependency, "kind") != "dev")
                    .map(|dependency| text_of(dependency, "name").to_owned())
                    .collect(),
            })
            .collect();
        Ok(Self { packages })
    }
}

/// A package's name and version.
#[derive(Eq, Ord, PartialEq, PartialOrd)]
struct Built(String, String);

impl From<(&str, &str)> for Built {
    fn from((name, version): (&str, &str)) -> Self {
        Self(name.to_owned(), version.to_owned())
    }
}

/// What is built here, of the programs and of the tests. (The graph in `cargo metadata` also has crates of features
/// that nobody turned on.)
fn built(workspace: &Workspace) -> Result<BTreeSet<Built>> {
    let mut tree = cargo::command(workspace);
    tree.args([
        "tree",
        "--workspace",
        "--locked",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let text = capture(tree.args(["--edges", "normal,build,dev"]))?;
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?.strip_prefix('v')?).into())
    });
    Ok(lines.collect())
}

/// This platform, such as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let told = capture(Command::new("rustc").arg("-vV"))?;
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

//! `cargo metadata`: who depends on whom, and under which licence.

use std::collections::{BTreeMap, BTreeSet};
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
        // The lock file knows crates of features that nobody turned on; the resolved graph does not.
        let resolved: BTreeMap<&str, &Value> = list(&value, "/resolve/nodes")
            .filter_map(|node| Some((node.get("id")?.as_str()?, node)))
            .collect();
        let packages = list(&value, "/packages")
            .filter(|package| resolved.contains_key(text_of(package, "id")))
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

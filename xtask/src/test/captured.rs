//! What receivers got during the tests, verified by two implementations of Standard Webhooks that are not ours.
//!
//! The tests leave JSON files in `POSTHORN_CAPTURE_DIR`, each a list of requests:
//! `{"secrets": ["whsec_…"], "public_keys": ["whpk_…"], "headers": {"webhook-id": …, "webhook-timestamp": …,
//! "webhook-signature": …}, "body_base64": …, "arrived_at": …}`. Every request must verify with each of its keys, and not with
//! another's.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::yard::Yard;
use crate::count::Count;
use crate::process::{capture, logged};
use crate::say::tell;
use crate::tools::node::Node;
use crate::tools::python::Python;

/// Fewer than this and the tests did not capture what they should have.
const AT_LEAST: usize = 3;

/// Forgets what an earlier run left.
pub(super) fn clear(yard: &Yard<'_>) -> Result<()> {
    std::fs::remove_dir_all(yard.captured()?)
        .context("emptying the folder of captured requests")?;
    yard.captured().map(|_| ())
}

pub(super) fn verify(yard: &mut Yard<'_>) -> Result<Count> {
    let folder = yard.captured()?;
    let captured = std::fs::read_dir(&folder)?.flatten().count();
    if captured < AT_LEAST {
        bail!(
            "{captured} requests were captured; the suite `tests` runs before this one and leaves more"
        );
    }
    let scripts = yard.workspace.join("tests/verifiers");
    let mut count = Count::default();
    let python = Python::ready(yard.workspace, yard.consent)?;
    python.install(&yard.workspace.join("xtask/pins/verifiers.txt"), None)?;
    count += told(
        Command::new(python.program())
            .arg(scripts.join("verify.py"))
            .arg(&folder),
    );
    let node = Node::ready(yard.workspace, yard.consent)?;
    let mut npm = node.npm()?;
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .current_dir(&scripts);
    logged(&mut npm, &yard.workspace.logs()?.join("npm-verifiers.log"))?;
    count += told(node.node().arg(scripts.join("verify.mjs")).arg(&folder));
    Ok(count)
}

fn told(verifier: &mut Command) -> Count {
    match capture(verifier) {
        Ok(text) => {
            tell(text.trim_end());
            Count::ONE_PASSED
        }
        Err(error) => {
            tell(format_args!("{error:#}"));
            Count::ONE_FAILED
        }
    }
}

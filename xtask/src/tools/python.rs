//! Python: the one that fetches wheels, always through a virtual environment of our own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::needs::{Consent, apt_install};
use crate::process::{capture, is_root, logged, which};
use crate::workspace::{Workspace, make_folder};

/// A virtual environment in `.posthorn/tools/python`.
pub(crate) struct Python {
    program: PathBuf,
    logs: PathBuf,
}

impl Python {
    /// Finds or makes it.
    pub(crate) fn ready(workspace: &Workspace, consent: Consent) -> Result<Self> {
        let tools = workspace.private()?.join("tools");
        make_folder(&tools, 0o700)?;
        let folder = tools.join("python");
        let program = folder.join("bin/python");
        let logs = workspace.logs()?;
        if capture(Command::new(&program).args(["-m", "pip", "--version"])).is_err() {
            let system = system_python(consent)?;
            logged(
                Command::new(system)
                    .args(["-m", "venv", "--clear"])
                    .arg(&folder),
                &logs.join("venv.log"),
            )?;
        }
        Ok(Self { program, logs })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Installs what a file of `xtask/pins/` lists, into the environment or into `target`. No dependencies are
    /// followed: what is wanted is listed, with its hash.
    pub(crate) fn install(&self, pins: &Path, target: Option<&Path>) -> Result<()> {
        let mut pip = Command::new(&self.program);
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
        ])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--retries",
            "2",
            "--timeout",
            "30",
            "-r",
        ])
        .arg(pins);
        if let Some(target) = target {
            pip.arg("--upgrade").arg("--target").arg(target);
        }
        let name = pins
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        logged(&mut pip, &self.logs.join(format!("pip-{name}.log"))).with_context(|| {
            format!(
                "could not fetch {name}. Is there a network? Behind a proxy, set HTTPS_PROXY; pip reads it"
            )
        })
    }
}

/// A Python of 3.9 or newer that can make virtual environments.
fn system_python(consent: Consent) -> Result<PathBuf> {
    if let Some(found) = usable() {
        return Ok(found);
    }
    let line = "apt-get install -y python3 python3-pip python3-venv";
    if !is_root() || which("apt-get").is_none() {
        bail!("Python 3.9 or newer with pip and venv is needed to fetch wheels: sudo {line}");
    }
    apt_install(&["python3", "python3-pip", "python3-venv"], consent)?;
    usable().with_context(|| format!("python3 is still not usable after {line}"))
}

fn usable() -> Option<PathBuf> {
    let python = which("python3")?;
    let question = "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 9))";
    capture(Command::new(&python).args(["-c", question])).ok()?;
    Some(python)
}

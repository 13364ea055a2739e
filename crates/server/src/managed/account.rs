//! The user that PostgreSQL runs as: ourselves, or, since it refuses root, an ordinary user.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::ClusterError;
use super::folders::{self, Folders};
use super::programs::Programs;

/// As whom PostgreSQL runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// As Posthorn itself.
    Own { uid: u32 },
    /// As this user; Posthorn is root.
    Other { name: String, uid: u32, gid: u32 },
}

impl Account {
    /// Ourselves, unless we are root: then whoever owns the cluster that is there, else `postgres`, else
    /// `posthorn`, which is made if need be.
    pub(super) fn choose(data_dir: &Path) -> Result<Self, ClusterError> {
        let own = rustix::process::geteuid();
        if !own.is_root() {
            return Ok(Self::Own { uid: own.as_raw() });
        }
        if let Ok(cluster) = fs::metadata(folders::cluster_in(data_dir))
            && cluster.uid() != 0
        {
            let name = format!("#{}", cluster.uid());
            return Ok(Self::Other {
                name,
                uid: cluster.uid(),
                gid: cluster.gid(),
            });
        }
        if let Some(account) = look_up("postgres").or_else(|| look_up("posthorn")) {
            return Ok(account);
        }
        make_user()?;
        look_up("posthorn").ok_or_else(|| ClusterError::NoAccount {
            why: "it is not found after being made".to_owned(),
        })
    }

    /// Whether this is somebody else than ourselves.
    pub(super) fn is_other(&self) -> bool {
        matches!(self, Self::Other { .. })
    }

    pub(super) fn uid(&self) -> u32 {
        match self {
            Self::Own { uid } | Self::Other { uid, .. } => *uid,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Own { uid } => format!("#{uid}"),
            Self::Other { name, .. } => name.clone(),
        }
    }

    /// A command that runs as this user, in `folder`, without our input.
    pub(super) fn command(&self, program: &Path, folder: &Path) -> Command {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new(program);
        command.current_dir(folder).stdin(Stdio::null());
        // The settings of libpq and of PostgreSQL's programs are ours, whatever the operator's shell carries.
        for name in [
            "PGDATA",
            "PGHOST",
            "PGPORT",
            "PGUSER",
            "PGDATABASE",
            "PGOPTIONS",
            "PGPASSWORD",
            "PGSSLMODE",
        ] {
            command.env_remove(name);
        }
        if let Self::Other { uid, gid, .. } = self {
            command.uid(*uid).gid(*gid);
        }
        command
    }

    /// Gives a folder to this user, closed to everybody else.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
        match self {
            Self::Own { .. } => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(*uid), Some(*gid)),
        }
    }

    /// Gives a file that we wrote to this user.
    pub(super) fn own_file(&self, path: &Path) -> io::Result<()> {
        match self {
            Self::Own { .. } => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(*uid), Some(*gid)),
        }
    }

    /// Tries, as this user, what PostgreSQL will have to do: run its program and enter the data folder.
    pub(super) fn check_reach(
        &self,
        folders: &Folders,
        programs: &Programs,
    ) -> Result<(), ClusterError> {
        if !self.is_other() {
            return Ok(());
        }
        let program = programs.postgres();
        if let Err(source) = self.try_in(&program, Path::new("/")) {
            return Err(ClusterError::NotRunnable {
                program,
                user: self.name(),
                source,
            });
        }
        let mut from_the_root: Vec<&Path> = folders.data_dir().ancestors().collect();
        from_the_root.reverse();
        match from_the_root
            .into_iter()
            .find(|folder| self.try_in(&program, folder).is_err())
        {
            None => Ok(()),
            Some(closed) => Err(ClusterError::NotWalkable {
                data_dir: folders.data_dir().to_owned(),
                closed: closed.to_owned(),
                user: self.name(),
            }),
        }
    }

    fn try_in(&self, program: &Path, folder: &Path) -> io::Result<()> {
        let mut command = self.command(program, folder);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = command.status()?;
        if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(status.to_string()))
        }
    }
}

fn look_up(name: &str) -> Option<Account> {
    Some(Account::Other {
        name: name.to_owned(),
        uid: id_of("-u", name)?,
        gid: id_of("-g", name)?,
    })
}

fn id_of(which: &str, name: &str) -> Option<u32> {
    let output = Command::new("id")
        .args([which, name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(output.stdout)
        .ok()?
        .trim()
        .parse()
        .ok()
        .filter(|id| *id != 0)
}

fn make_user() -> Result<(), ClusterError> {
    tracing::info!("making the system user `posthorn`: PostgreSQL refuses to run as root");
    let output = Command::new("useradd")
        .args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
        ])
        .args(["--shell", "/usr/sbin/nologin", "posthorn"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| ClusterError::NoAccount {
            why: format!("useradd: {error}"),
        })?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(ClusterError::NoAccount { why })
}

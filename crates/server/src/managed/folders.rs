//! What lies where in the data folder.
//!
//! `pg/` the cluster · `run/` its socket, or a short private folder under `/tmp` when the path is too long
//! for a socket · `postgres-start.log` what PostgreSQL said at its last start · `start.lock`, `users.lock` ·
//! `master.keys` (see [`crate::master_keys`]).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use posthorn_store::migrate::Login;

use super::account::Account;
use super::error::ClusterError;

/// The number in the socket's name; nothing listens on a port.
pub(super) const PORT: u16 = 5432;

/// Bytes of a socket's path that fit everywhere (Linux allows 107, macOS 103).
const SOCKET_PATH_BYTES: usize = 100;

/// The data folder and what belongs to it.
pub(crate) struct Folders {
    data_dir: PathBuf,
    socket_dir: PathBuf,
}

impl Folders {
    /// Makes the data folder and the socket's, if they are missing.
    pub(super) fn prepare(data_dir: &Path, account: &Account) -> Result<Self, ClusterError> {
        make_data_dir(data_dir, account).map_err(|source| unusable(data_dir, source))?;
        let data_dir = fs::canonicalize(data_dir).map_err(|source| unusable(data_dir, source))?;
        let socket_dir = socket_dir(&data_dir);
        make_private(&socket_dir, account)?;
        Ok(Self {
            data_dir,
            socket_dir,
        })
    }

    /// The folder that was given, without links in its path.
    pub(super) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The cluster's own folder.
    pub(super) fn cluster(&self) -> PathBuf {
        cluster_in(&self.data_dir)
    }

    /// Where a cluster is made before it gets its name.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.data_dir.join("pg.unfinished")
    }

    pub(super) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Takes away a socket's folder that is not in the data folder; the next start makes it again.
    pub(super) fn leave_socket(&self) {
        if !self.socket_dir.starts_with(&self.data_dir) {
            // One that is not empty is left as it is.
            let _ = fs::remove_dir(&self.socket_dir);
        }
    }

    pub(super) fn start_log(&self) -> PathBuf {
        self.data_dir.join("postgres-start.log")
    }

    pub(super) fn start_lock(&self) -> PathBuf {
        self.data_dir.join("start.lock")
    }

    pub(super) fn users_lock(&self) -> PathBuf {
        self.data_dir.join("users.lock")
    }

    pub(super) fn postmaster_pid(&self) -> PathBuf {
        self.cluster().join("postmaster.pid")
    }

    /// The major version that made the cluster; `None` when there is none yet.
    pub(super) fn cluster_major(&self) -> Result<Option<u32>, ClusterError> {
        let path = self.cluster().join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|_| {
                let source = io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("`{}` is not a version", text.trim()),
                );
                unusable(&path, source)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.cluster().exists() => {
                Ok(None)
            }
            Err(source) => Err(unusable(&path, source)),
        }
    }

    /// A login over the socket.
    pub(super) fn login(&self, user: &str, database: &str) -> Login {
        Login::over_socket(&self.socket_dir, PORT, user, database)
    }
}

/// The cluster's folder of a data folder.
pub(super) fn cluster_in(data_dir: &Path) -> PathBuf {
    data_dir.join("pg")
}

/// Opens a lock file, making it if need be.
pub(super) fn open_lock(path: &Path) -> Result<File, ClusterError> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(|source| unusable(path, source))
}

pub(super) fn unusable(path: &Path, source: io::Error) -> ClusterError {
    ClusterError::Unusable {
        path: path.to_owned(),
        source,
    }
}

/// Makes the data folder and its missing parents, whatever the umask: open to pass through when the database
/// runs as another user, else closed.
fn make_data_dir(data_dir: &Path, account: &Account) -> io::Result<()> {
    let mode = if account.is_other() { 0o711 } else { 0o700 };
    let mut missing: Vec<&Path> = data_dir
        .ancestors()
        .take_while(|dir| !dir.exists())
        .collect();
    missing.retain(|dir| !dir.as_os_str().is_empty());
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(mode))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    if data_dir.is_dir() {
        Ok(())
    } else {
        Err(io::ErrorKind::NotADirectory.into())
    }
}

/// Makes a folder that only the database's user may enter, or checks one that is there.
pub(super) fn make_private(path: &Path, account: &Account) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => account.give(path).map_err(|source| unusable(path, source)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path).map_err(|source| unusable(path, source))?;
            let private = found.is_dir()
                && found.uid() == account.uid()
                && found.mode().trailing_zeros() >= 6;
            if private {
                Ok(())
            } else {
                Err(ClusterError::SocketFolder {
                    path: path.to_owned(),
                    user: account.name(),
                })
            }
        }
        Err(source) => Err(unusable(path, source)),
    }
}

fn socket_dir(data_dir: &Path) -> PathBuf {
    let near = data_dir.join("run");
    let socket = near.join(format!(".s.PGSQL.{PORT}"));
    if socket.as_os_str().len() <= SOCKET_PATH_BYTES {
        return near;
    }
    PathBuf::from(format!(
        "/tmp/posthorn-{:016x}",
        fnv1a(data_dir.as_os_str().as_encoded_bytes())
    ))
}

/// FNV-1a, 64 bits: a short name for a path, the same in every build.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_path_keeps_its_socket() {
        assert_eq!(
            socket_dir(Path::new("/var/lib/posthorn")),
            PathBuf::from("/var/lib/posthorn/run")
        );
    }

    #[test]
    fn a_long_path_moves_its_socket_to_a_short_folder_of_its_own() {
        let long = PathBuf::from(format!("/srv/{}", "a".repeat(110)));
        let other = PathBuf::from(format!("/srv/{}", "b".repeat(110)));
        let moved = socket_dir(&long);
        assert!(moved.starts_with("/tmp"));
        assert!(moved.as_os_str().len() < 40);
        assert_eq!(moved, socket_dir(&long));
        assert_ne!(moved, socket_dir(&other));
    }

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
    }
}

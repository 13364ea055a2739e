//! Why a managed cluster does not run, and the way out.

use std::io;
use std::path::PathBuf;

use posthorn_store::migrate::MigrateError;

/// Why a managed cluster does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    /// A file or folder of ours cannot be made, read or written.
    #[error("POSTHORN_DATA_DIR: {path} cannot be used: {source}")]
    Unusable { path: PathBuf, source: io::Error },
    /// The database's user cannot walk down to the data folder.
    #[error(
        "POSTHORN_DATA_DIR is {data_dir}, but PostgreSQL runs as the user `{user}` (it refuses root), who may not enter \
         {closed}. Set POSTHORN_DATA_DIR to a folder outside it, such as /var/lib/posthorn, or let others pass: \
         chmod o+x {closed}"
    )]
    NotWalkable {
        data_dir: PathBuf,
        closed: PathBuf,
        user: String,
    },
    /// The database's user cannot run PostgreSQL's programs.
    #[error(
        "POSTHORN_PG_BIN: PostgreSQL runs as the user `{user}` (it refuses root), who may not run {program}: {source}. \
         Put PostgreSQL's programs where that user may read them"
    )]
    NotRunnable {
        program: PathBuf,
        user: String,
        source: io::Error,
    },
    /// Root without an ordinary user for the database.
    #[error(
        "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `posthorn`, nor can one be made \
         ({why}). Make one: useradd --system posthorn"
    )]
    NoAccount { why: String },
    /// No PostgreSQL was found.
    #[error(
        "no PostgreSQL 15 or newer was found (looked in {looked}). Install one (Debian, Ubuntu: apt-get install \
         postgresql), or set POSTHORN_PG_BIN to the folder that holds `initdb` and `postgres`, or set DATABASE_URL to \
         use a PostgreSQL that runs already"
    )]
    NoPrograms { looked: String },
    /// What `POSTHORN_PG_BIN` names is none.
    #[error("POSTHORN_PG_BIN is {path}, but there is no PostgreSQL 15 or newer: {why}")]
    WrongPrograms { path: PathBuf, why: String },
    /// The cluster was made by another major version than any that was found.
    #[error(
        "{cluster} was made by PostgreSQL {made_by}, and only PostgreSQL {found} was found ({programs}). A cluster \
         cannot be opened by another major version. Install PostgreSQL {made_by} beside it, or set POSTHORN_PG_BIN to \
         its folder. To move to {found}: with PostgreSQL {made_by} running, `pg_dumpall` into a file, move {cluster} \
         away, start posthorn once, stop it, and load the file"
    )]
    OtherMajor {
        cluster: PathBuf,
        made_by: u32,
        found: u32,
        programs: PathBuf,
    },
    /// The folder of the socket is somebody else's.
    #[error("{path} is there, but it is not a folder that only `{user}` may enter: remove it")]
    SocketFolder { path: PathBuf, user: String },
    /// A program ended with an error.
    #[error("{program} failed: {said}")]
    Failed { program: &'static str, said: String },
    /// PostgreSQL ended while it was starting, or did not answer.
    #[error("PostgreSQL does not start: {said}")]
    NotStarted { said: String },
    /// PostgreSQL did not stop.
    #[error("PostgreSQL (process {pid}) did not stop in {seconds} s; it is left as it is")]
    NotStopped { pid: i32, seconds: u64 },
    /// Another start or stop of the same cluster takes too long.
    #[error("another posthorn is starting or stopping this cluster: {lock} stays locked")]
    Busy { lock: PathBuf },
    /// The cluster runs, but refuses what we need.
    #[error(transparent)]
    Database(#[from] MigrateError),
}

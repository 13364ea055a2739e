//! A PostgreSQL of Posthorn's own, for those who have none.
//!
//! It lives in the data folder, speaks over a private unix socket alone, and runs as an ordinary user even
//! when Posthorn is root. It is a child in a process group of its own, so that Ctrl-C stops Posthorn first;
//! when Posthorn is killed it goes on, and the next start takes it over. Everybody who uses the cluster
//! holds a shared lock on a file: the last one to leave stops it. Durability is PostgreSQL's own: nothing
//! here trades it away.
//!
//! It does not upgrade between major versions, and says so.
//!
//! Parts: [`folders`] (what lies where), [`account`] (as whom), [`programs`] (which PostgreSQL),
//! [`initialise`] (a new cluster), [`server_process`] (start, take over, stop), [`tuning`].

mod account;
mod error;
mod folders;
mod initialise;
mod programs;
mod server_process;
mod tuning;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::migrate::{self, Login};
use tokio::sync::Mutex;

use crate::settings::environment::Environment;
use account::Account;
pub(crate) use error::ClusterError;
use folders::Folders;
use programs::Programs;
use server_process::ServerProcess;

/// Time between two looks at something that is about to happen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A cluster that runs.
pub(crate) struct Cluster {
    folders: Folders,
    programs: Programs,
    account: Account,
    clock: Clock,
    process: Mutex<ServerProcess>,
    /// Held shared as long as we use the cluster.
    users: File,
}

impl Cluster {
    /// Its superuser: for migrations alone.
    pub(crate) const SUPERUSER: &str = "postgres";

    /// Makes the cluster if there is none, starts it or takes it over, and makes its database.
    ///
    /// # Errors
    /// [`ClusterError`] says which step failed and what to do.
    pub(crate) async fn open(
        data_dir: &Path,
        pg_bin: Option<&Path>,
        environment: &Environment,
        clock: Clock,
    ) -> Result<Self, ClusterError> {
        let account = Account::choose(data_dir)?;
        let folders = Folders::prepare(data_dir, &account)?;
        let starting = lock_exclusive(&folders.start_lock(), &clock).await?;
        let users = folders::open_lock(&folders.users_lock())?;
        users
            .lock_shared()
            .map_err(|error| folders::unusable(&folders.users_lock(), error))?;
        let programs = Programs::find(&folders, pg_bin, environment)?;
        account.check_reach(&folders, &programs)?;
        if folders.cluster_major()?.is_none() {
            initialise::make(&folders, &programs, &account).await?;
        }
        let process =
            ServerProcess::start_or_take_over(&folders, &programs, &account, &clock).await?;
        let cluster = Self {
            folders,
            programs,
            account,
            clock,
            process: Mutex::new(process),
            users,
        };
        migrate::make_database(&cluster.login(Self::SUPERUSER)).await?;
        drop(starting);
        Ok(cluster)
    }

    /// A login over the socket, without a password: the folder is closed to everybody else.
    pub(crate) fn login(&self, user: &str) -> Login {
        self.folders.login(user, "posthorn")
    }

    /// Where and which, for the line at start.
    pub(crate) fn describe(&self) -> String {
        format!(
            "PostgreSQL {} in {}",
            self.programs.version,
            self.folders.cluster().display()
        )
    }

    /// The folder that was given, where the key file lies, too.
    pub(crate) fn data_dir(&self) -> &Path {
        self.folders.data_dir()
    }

    /// Starts PostgreSQL again when it ended by itself. Called again and again.
    pub(crate) async fn mend(&self) {
        let mut process = self.process.lock().await;
        if process.runs(&self.folders) {
            return;
        }
        tracing::error!(log = %self.folders.start_log().display(), "PostgreSQL has ended by itself: starting it again");
        match ServerProcess::start_or_take_over(
            &self.folders,
            &self.programs,
            &self.account,
            &self.clock,
        )
        .await
        {
            Ok(started) => *process = started,
            Err(error) => tracing::error!(%error, "PostgreSQL does not start: trying again"),
        }
    }

    /// Stops PostgreSQL, unless somebody else uses it.
    ///
    /// # Errors
    /// When it does not stop in time.
    pub(crate) async fn close(self) -> Result<(), ClusterError> {
        let _stopping = lock_exclusive(&self.folders.start_lock(), &self.clock).await?;
        // Nobody can join while the start lock is held: giving up the shared lock and asking for all of it is safe.
        self.users
            .unlock()
            .map_err(|error| folders::unusable(&self.folders.users_lock(), error))?;
        if self.users.try_lock().is_err() {
            tracing::info!("PostgreSQL goes on: another posthorn uses it");
            return Ok(());
        }
        let process = self.process.into_inner();
        process.stop(&self.folders, &self.clock).await?;
        self.folders.leave_socket();
        Ok(())
    }
}

/// Takes a lock file, waiting for whoever holds it.
async fn lock_exclusive(path: &Path, clock: &Clock) -> Result<File, ClusterError> {
    let file = folders::open_lock(path)?;
    let begun = clock.monotonic();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(source)) => {
                return Err(ClusterError::Unusable {
                    path: path.to_owned(),
                    source,
                });
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                if clock.monotonic().saturating_duration_since(begun) > limits::MANAGED_LOCK_WAIT {
                    return Err(ClusterError::Busy {
                        lock: path.to_owned(),
                    });
                }
                clock.sleep(BETWEEN_LOOKS).await;
            }
        }
    }
}

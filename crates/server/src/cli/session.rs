//! A verb's time with the database: opened, made fit as `serve` would, and let go of whatever happens.

use anyhow::Context as _;
use posthorn_domain::seal::KeyRing;
use posthorn_store::clock::Clock;
use posthorn_store::database::Database;
use posthorn_store::migrate::{self, Login};

use super::{CommonFlags, DatabaseFlags};
use crate::database::Reach;
use crate::managed::Cluster;
use crate::master_keys;

/// What a verb works with.
pub(super) struct Session {
    /// The database, in the server's own roles.
    pub(super) database: Database,
    /// The database's time.
    pub(super) clock: Clock,
}

/// Runs `verb` with the database open.
///
/// # Errors
/// What kept the database from being used, else the verb's own error.
pub(super) async fn with<T>(
    common: &CommonFlags,
    flags: &DatabaseFlags,
    verb: impl AsyncFnOnce(&Session) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (settings, environment) = common.settings(flags)?;
    let reach = Reach::open(&settings.database, &environment).await?;
    let done = match reach.ready_login(settings.migrate).await {
        Ok(login) => run(&login, verb).await,
        Err(error) => Err(error.into()),
    };
    reach.close().await?;
    done
}

/// The same, with the master keys, which are proved and not made.
///
/// # Errors
/// As [`with`], and when there are no master keys or others than those that sealed.
pub(super) async fn with_ring<T>(
    common: &CommonFlags,
    flags: &DatabaseFlags,
    verb: impl AsyncFnOnce(&Session, &KeyRing) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let (settings, environment) = common.settings(flags)?;
    let reach = Reach::open(&settings.database, &environment).await?;
    let data_dir = reach.cluster().map(Cluster::data_dir);
    let given = settings.master_keys.as_ref();
    let done = async {
        let login = reach.ready_login(settings.migrate).await?;
        let ring = master_keys::prove(given, data_dir, &login)
            .await?
            .context("there are no master keys: set POSTHORN_MASTER_KEYS")?;
        run(&login, async |session| verb(session, &ring).await).await
    }
    .await;
    reach.close().await?;
    done
}

async fn run<T>(
    login: &Login,
    verb: impl AsyncFnOnce(&Session) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let clock = Clock::start();
    let standing = migrate::inspect(login)
        .await
        .context("the database cannot be looked at")?;
    clock.observe(standing.now, clock.monotonic());
    standing.pending.refuse_newer()?;
    let missing = standing.pending.names.len();
    anyhow::ensure!(
        missing == 0,
        "{missing} migrations are missing: run `posthorn migrate`"
    );
    let session = Session {
        database: Database::new(login.database_options(1, 1)),
        clock,
    };
    let done = verb(&session).await;
    session.database.close().await;
    done
}

//! Makes the database fit for this program: version, roles, schema, the coming days' leaves.
//!
//! [`prepare`] does everything, under a lock, as often as it is called: it makes the roles that are
//! missing, runs `migrations/` as `posthorn_owner` and makes the leaves of the coming week. Where the
//! login may not make roles it fails with [`MigrateError::CannotMakeRoles`], which carries the SQL for
//! somebody who may. [`inspect`] changes nothing and tells readiness and the command line what is missing.
//!
//! A database that is newer than the program is refused, never guessed at. Neighbours: `server` calls
//! this before anything else touches the database; [`crate::partitions`] makes later leaves.

mod error;
mod login;
mod roles;
mod standing;

use posthorn_domain::limits;
use sqlx::migrate::{MigrateError as SqlxMigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

pub use error::MigrateError;
pub use login::{Login, LoginError};
pub use roles::roles_sql;
pub use standing::{Answer, Pending, Standing, answers, inspect};

use crate::clock::Clock;
use crate::database::DatabaseError;
use crate::partitions::DAYS_AHEAD;

/// The schema, as compiled in.
static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// The oldest PostgreSQL that the SQL here runs on, as `server_version_num`.
const OLDEST: i32 = 150_000;

/// Held while roles, schema and leaves are made: many nodes may start at once.
const LOCK: &str = "SELECT pg_advisory_lock(hashtext('posthorn_prepare'))";

/// SQLSTATE `lock_not_available`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// What [`prepare`] found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Migrations that this call ran.
    pub ran: usize,
    /// Migrations that the program knows.
    pub known: usize,
}

/// Makes roles, schema and leaves, whichever are missing, with a login that may act as `posthorn_owner`.
///
/// # Errors
/// When the database cannot be reached, is too old or newer than the program, when the login may not
/// make what is missing, or when a migration fails. Nothing is half done: each migration is a transaction.
pub async fn prepare(login: &Login) -> Result<Prepared, MigrateError> {
    let mut connection = login.connect_plain().await?;
    require_version(&mut connection).await?;
    if roles::are_made_by_others(&mut connection).await? {
        return only_look(login).await;
    }
    wait_long(&mut connection).await?;
    connection.execute(LOCK).await?;
    let ran = prepare_locked(&mut connection).await?;
    connection.close().await?;
    Ok(Prepared {
        ran,
        known: MIGRATOR.iter().count(),
    })
}

/// For a login that may neither make roles nor act as the owner: all must be done already.
async fn only_look(login: &Login) -> Result<Prepared, MigrateError> {
    let pending = inspect(login).await?.pending;
    pending.refuse_newer()?;
    let missing = pending.names.len();
    if missing > 0 {
        return Err(MigrateError::NotTheOwner {
            user: login.user().to_owned(),
            missing,
        });
    }
    Ok(Prepared {
        ran: 0,
        known: MIGRATOR.iter().count(),
    })
}

async fn prepare_locked(connection: &mut PgConnection) -> Result<usize, MigrateError> {
    roles::ensure(connection).await?;
    connection.execute("SET ROLE posthorn_owner").await?;
    let pending = standing::pending_in(connection).await?;
    pending.refuse_newer()?;
    run_migrations(connection).await?;
    // What is missing is asked for by the engine's role, which owns nothing.
    connection
        .execute("GRANT SELECT ON _sqlx_migrations TO posthorn_system")
        .await?;
    make_leaves(connection).await?;
    Ok(pending.names.len())
}

/// Runs what has not run. A migration that wants a table which somebody is using has all later traffic of that table queue up
/// behind it while it waits, so it waits for a moment only, lets that traffic go first, and asks again.
async fn run_migrations(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let clock = Clock::start();
    let wait = limits::MIGRATION_LOCK_WAIT.as_millis();
    let wait = format!("SET lock_timeout = '{wait}ms'");
    connection.execute(AssertSqlSafe(wait)).await?;
    for _ in 1..limits::MIGRATION_LOOKS {
        match run_them(&mut *connection).await {
            Err(MigrateError::InUse(error)) => {
                tracing::warn!(%error, "a table that a migration changes is in use: trying again");
                clock.sleep(limits::MIGRATION_PAUSE).await;
            }
            ended => return ended,
        }
    }
    run_them(connection).await
}

async fn run_them(connection: &mut PgConnection) -> Result<(), MigrateError> {
    MIGRATOR.run(connection).await.map_err(said_plainly)
}

/// Makes the leaves from yesterday to a week ahead, as the owner.
///
/// A reader in the way makes a day fail after 200 ms; the nodes' own housekeeping makes it later, and
/// readiness tells when it does not. So only a missing today is an error.
async fn make_leaves(connection: &mut PgConnection) -> Result<(), MigrateError> {
    for ahead in -1..=i32::try_from(DAYS_AHEAD).unwrap_or(1) {
        let made = sqlx::query_scalar!(
            "SELECT posthorn_make_leaves((now() AT TIME ZONE 'UTC')::date + $1::int4)",
            ahead
        )
        .fetch_one(&mut *connection)
        .await;
        match made {
            Ok(_) => {}
            Err(error) if ahead != 0 => {
                let error = DatabaseError::from(error);
                tracing::warn!(ahead, %error, "a day's partitions could not be made yet");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes the database `posthorn`, owned by `posthorn_owner`, if there is none. For a cluster of our own.
///
/// # Errors
/// When the database cannot be reached or the login may not make it.
pub async fn make_database(login: &Login) -> Result<(), MigrateError> {
    let mut connection = login
        .clone()
        .of_database("postgres")
        .connect_plain()
        .await?;
    require_version(&mut connection).await?;
    roles::ensure_names(&mut connection).await?;
    let exists = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = 'posthorn') AS "exists!""#
    )
    .fetch_one(&mut connection)
    .await?;
    if !exists {
        connection
            .execute(
                "CREATE DATABASE posthorn OWNER posthorn_owner TEMPLATE template0 ENCODING 'UTF8'",
            )
            .await?;
    }
    connection.close().await?;
    Ok(())
}

/// Refuses a PostgreSQL that the SQL of this program does not run on.
async fn require_version(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let found = standing::version_of(connection).await?;
    if found < OLDEST {
        return Err(MigrateError::TooOld {
            found: found / 10_000,
        });
    }
    Ok(())
}

/// A migration may take long, and preparing may wait for another node's.
async fn wait_long(connection: &mut PgConnection) -> Result<(), MigrateError> {
    connection.execute("SET statement_timeout = 0").await?;
    connection.execute("SET lock_timeout = 0").await?;
    Ok(())
}

fn said_plainly(error: SqlxMigrateError) -> MigrateError {
    match error {
        SqlxMigrateError::VersionMissing(version) => MigrateError::NewerDatabase { version },
        SqlxMigrateError::VersionMismatch(version) => MigrateError::Changed { version },
        other => {
            let error = DatabaseError::from(other);
            if error.code() == Some(LOCK_NOT_AVAILABLE) {
                MigrateError::InUse(error)
            } else {
                MigrateError::Migration(error)
            }
        }
    }
}

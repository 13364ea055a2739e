//! Why a database is not fit, in words for whoever runs the program.

use super::LoginError;
use crate::database::{DatabaseError, from_driver};

/// Why the database could not be made, or found, fit for this program.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The login itself is of no use.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The database did not answer, or refused a statement.
    #[error("the database cannot be used: {0}")]
    Database(#[from] DatabaseError),
    /// PostgreSQL is older than the SQL needs.
    #[error("PostgreSQL {found} is too old: Posthorn needs 15 or newer")]
    TooOld {
        /// Its major version.
        found: i32,
    },
    /// The schema was made by a newer program.
    #[error(
        "the database is newer than this program: it has migration {version}, which this program does not know. \
         Start the newer program again; going back is done by restoring a backup from before the upgrade"
    )]
    NewerDatabase {
        /// The first migration that this program does not know.
        version: i64,
    },
    /// A migration that ran is not the one that this program carries.
    #[error(
        "migration {version} in the database differs from this program's: \
         it was run from a changed or unreleased build, and this program cannot tell what is there"
    )]
    Changed {
        /// Its number.
        version: i64,
    },
    /// A migration failed and was rolled back.
    #[error("a migration failed and was rolled back: {0}")]
    Migration(#[source] DatabaseError),
    /// A table that a migration changes was in use all the time, and the migration gave up rather than hold the traffic up.
    #[error(
        "a table that a migration changes is in use by another session, which has held it for too long: {0}. \
         Look for one that is `idle in transaction` in pg_stat_activity, end it, and start again"
    )]
    InUse(#[source] DatabaseError),
    /// The login may not make roles, or not all of what they need.
    #[error(
        "this login may not make Posthorn's roles ({source}). Have somebody who may run this SQL in this database, \
         then start again:\n\n{sql}"
    )]
    CannotMakeRoles {
        /// All of it; what exists already is left as it is.
        sql: String,
        /// What PostgreSQL refused.
        source: DatabaseError,
    },
    /// Migrations are missing and this login is not the owner's.
    #[error(
        "{missing} migrations are missing, and the login `{user}` may not run them: \
         run `posthorn migrate` with the owner's login in POSTHORN_MIGRATE_DATABASE_URL"
    )]
    NotTheOwner {
        /// The login's name.
        user: String,
        /// How many are missing.
        missing: usize,
    },
}

from_driver!(MigrateError);

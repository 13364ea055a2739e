//! What PostgreSQL or the way to it said, and the one place that puts it into words (INV-10).
//!
//! The driver's own words may hold more than a log may: a URL with a password, or data that the database quotes. Its error is
//! kept for those who decide by it, and is shown by nobody else: [`DatabaseError`] shows the same in `Display` and `Debug`,
//! and names no source.

use std::fmt;
use std::io;

use posthorn_domain::discreet::without_urls;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// An error of the database or of the way to it.
pub struct DatabaseError(Box<sqlx::Error>);

/// Classes of SQLSTATE whose messages quote data: data exceptions and violated constraints.
const QUOTING: [&str; 2] = ["22", "23"];

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        Self(Box::new(error))
    }
}

impl From<MigrateError> for DatabaseError {
    fn from(error: MigrateError) -> Self {
        sqlx::Error::from(error).into()
    }
}

impl From<io::Error> for DatabaseError {
    fn from(error: io::Error) -> Self {
        sqlx::Error::Io(error).into()
    }
}

impl DatabaseError {
    /// There is no connection to send on.
    pub(crate) fn no_connection() -> Self {
        sqlx::Error::PoolClosed.into()
    }

    /// A statement that always has a row had none.
    pub(crate) fn no_row() -> Self {
        sqlx::Error::RowNotFound.into()
    }

    /// PostgreSQL answered, and said no.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.refusal().is_some()
    }

    /// What PostgreSQL answered, where it was a refusal.
    pub(crate) fn refusal(&self) -> Option<&PgDatabaseError> {
        refusal(&self.0)
    }

    /// A refusal after which the session goes on: neither FATAL nor PANIC.
    pub(crate) fn mild_refusal(&self) -> Option<&PgDatabaseError> {
        let severe = [PgSeverity::Fatal, PgSeverity::Panic];
        let refusal = self.refusal();
        refusal.filter(|refusal| !severe.contains(&refusal.severity()))
    }

    /// The SQLSTATE of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        self.refusal().map(PgDatabaseError::code)
    }

    /// The constraint that was violated.
    pub(crate) fn constraint(&self) -> Option<&str> {
        self.refusal().and_then(PgDatabaseError::constraint)
    }

    /// Nobody was reached, or what came back was none of the database's answers.
    pub(crate) fn is_of_the_way(&self) -> bool {
        matches!(
            *self.0,
            sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed
        )
    }

    /// Nobody answers there.
    pub(crate) fn is_of_io(&self) -> bool {
        matches!(*self.0, sqlx::Error::Io(_))
    }
}

fn refusal(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    if let sqlx::Error::Migrate(error) = error
        && let MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) = &**error
    {
        return refusal(error);
    }
    error.as_database_error()?.try_downcast_ref()
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tell(&self.0, f)
    }
}

impl fmt::Debug for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Without a source: whoever shows a chain of errors would show the driver's.
impl std::error::Error for DatabaseError {}

fn tell(error: &sqlx::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        sqlx::Error::Migrate(error) => match &**error {
            MigrateError::Execute(error) => tell(error, f),
            MigrateError::ExecuteMigration(error, version) => {
                write!(f, "migration {version}: ")?;
                tell(error, f)
            }
            other => f.write_str(&without_urls(&other.to_string())),
        },
        sqlx::Error::Configuration(_) => {
            f.write_str("the settings of the connection cannot be used")
        }
        sqlx::Error::ColumnDecode { index, .. } => write!(f, "the column {index} cannot be read"),
        sqlx::Error::Decode(_) => f.write_str("a value cannot be read"),
        sqlx::Error::Encode(_) => f.write_str("a value cannot be sent"),
        other => match refusal(other) {
            Some(refusal) => tell_refusal(refusal, f),
            None => f.write_str(&without_urls(&other.to_string())),
        },
    }
}

fn tell_refusal(refusal: &PgDatabaseError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let code = refusal.code();
    if !QUOTING.iter().any(|class| code.starts_with(class)) {
        return write!(f, "{} (SQLSTATE {code})", without_urls(refusal.message()));
    }
    write!(f, "the data is refused (SQLSTATE {code}")?;
    if let Some(table) = refusal.table() {
        write!(f, ", table {table}")?;
    }
    if let Some(constraint) = refusal.constraint() {
        write!(f, ", constraint {constraint}")?;
    }
    f.write_str(")")
}

/// Lets `?` take the driver's errors to one of ours that has a [`DatabaseError`] inside.
macro_rules! from_driver {
    ($error:ty) => {
        impl From<sqlx::Error> for $error {
            fn from(error: sqlx::Error) -> Self {
                $crate::database::DatabaseError::from(error).into()
            }
        }
    };
}

pub(crate) use from_driver;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_library_says_is_told_without_urls_settings_and_values() {
        let io = io::Error::other("no way to postgres://app:canary@db/x");
        for error in [
            sqlx::Error::Io(io),
            sqlx::Error::Configuration("canary".into()),
            sqlx::Error::Decode("canary".into()),
            sqlx::Error::Encode("canary".into()),
            sqlx::Error::Protocol("at postgres://app:canary@db/x".into()),
            sqlx::Error::Tls("at postgres://app:canary@db/x".into()),
            sqlx::Error::ColumnDecode {
                index: "1".to_owned(),
                source: "canary".into(),
            },
            MigrateError::Execute(sqlx::Error::Decode("canary".into())).into(),
        ] {
            let error = DatabaseError::from(error);
            let told = format!("{error} {error:?} {error:#?}");
            assert!(!told.contains("canary"), "{told}");
            assert!(std::error::Error::source(&error).is_none());
        }
    }
}

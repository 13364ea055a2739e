//! What a database is and what it lacks. Reads only.

use std::collections::HashSet;

use chrono::{DateTime, NaiveDate, Utc};
use sqlx::migrate::Migrate as _;
use sqlx::{Connection as _, PgConnection};

use super::{Login, MIGRATOR, MigrateError};
use crate::database::DatabaseError;

/// The program's migrations against the database's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Those that have not run, by number and name, in order.
    pub names: Vec<String>,
    /// One that the database has and this program does not know: a newer program was here.
    pub unknown: Option<i64>,
}

/// What readiness and `doctor` ask of a database.
#[derive(Clone, Debug)]
pub struct Standing {
    /// PostgreSQL's `server_version_num`, as 150020.
    pub server_version: i32,
    /// The database's clock.
    pub now: DateTime<Utc>,
    /// What has not run yet.
    pub pending: Pending,
    /// The last UTC day, counted from today without a gap, that has its leaves; `None` when today has none.
    pub leaves_until: Option<NaiveDate>,
    /// Whole days after today that have their leaves.
    pub days_ahead: i64,
}

/// How a cluster that may still be starting answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It takes statements.
    Ready,
    /// It is there, but recovering or stopping.
    NotYet,
    /// Nobody answers.
    Nobody,
}

/// What a login may do.
pub(super) struct Rights {
    pub(super) superuser: bool,
    pub(super) acts_as_both: bool,
    pub(super) inherits_system: bool,
}

/// SQLSTATE `cannot_connect_now`: starting, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// Whether a cluster takes statements.
///
/// # Errors
/// When it answers with a refusal that waiting does not cure, such as a wrong password.
pub async fn answers(login: &Login) -> Result<Answer, MigrateError> {
    match login.connect_plain().await {
        Ok(mut connection) => version_of(&mut connection)
            .await
            .map(|_| Answer::Ready)
            .map_err(MigrateError::from),
        Err(error) if error.code() == Some(CANNOT_CONNECT_NOW) => Ok(Answer::NotYet),
        Err(error) if error.is_of_io() => Ok(Answer::Nobody),
        Err(error) => Err(error.into()),
    }
}

/// Looks at everything that readiness depends on. The login must have been vetted, if migrations have run.
///
/// # Errors
/// When the database cannot be reached.
pub async fn inspect(login: &Login) -> Result<Standing, MigrateError> {
    let mut connection = login.connect_plain().await?;
    let server_version = version_of(&mut connection).await?;
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#)
        .fetch_one(&mut connection)
        .await?;
    if !has_history(&mut connection).await? {
        connection.close().await?;
        return Ok(Standing {
            server_version,
            now,
            pending: Pending::all(),
            leaves_until: None,
            days_ahead: 0,
        });
    }
    login.act_as_system(&mut connection).await?;
    // Until the first migrations have run, the history is the owner's alone.
    let pending = if may_read(&mut connection).await? {
        pending_in(&mut connection).await?
    } else {
        Pending::all()
    };
    let leaves_until = if pending.names.is_empty() {
        leaves_until(&mut connection).await?
    } else {
        None
    };
    let days_ahead = leaves_until.map_or(0, |(today, last)| (last - today).num_days());
    connection.close().await?;
    Ok(Standing {
        server_version,
        now,
        pending,
        leaves_until: leaves_until.map(|(_, last)| last),
        days_ahead,
    })
}

/// What has not run in this database. The connection's role must be able to read the history.
pub(super) async fn pending_in(connection: &mut PgConnection) -> Result<Pending, MigrateError> {
    if !has_history(connection).await? {
        return Ok(Pending::all());
    }
    let applied = connection
        .list_applied_migrations(&MIGRATOR.table_name)
        .await
        .map_err(super::said_plainly)?;
    let unknown = applied
        .iter()
        .find(|one| !MIGRATOR.version_exists(one.version));
    let unknown = unknown.map(|one| one.version);
    let applied: HashSet<i64> = applied.iter().map(|one| one.version).collect();
    Ok(Pending {
        unknown,
        ..Pending::but(&applied)
    })
}

impl Pending {
    /// Refuses to start on a database that a newer program has changed. One that runs already may go on:
    /// migrations are safe while the old program runs.
    ///
    /// # Errors
    /// [`MigrateError::NewerDatabase`].
    pub fn refuse_newer(&self) -> Result<(), MigrateError> {
        match self.unknown {
            Some(version) => Err(MigrateError::NewerDatabase { version }),
            None => Ok(()),
        }
    }

    fn all() -> Self {
        Self::but(&HashSet::new())
    }

    fn but(applied: &HashSet<i64>) -> Self {
        let missing = MIGRATOR
            .iter()
            .filter(|one| !applied.contains(&one.version));
        Self {
            names: missing
                .map(|one| format!("{:04} {}", one.version, one.description))
                .collect(),
            unknown: None,
        }
    }
}

async fn has_history(connection: &mut PgConnection) -> Result<bool, DatabaseError> {
    sqlx::query_scalar!(r#"SELECT to_regclass('public._sqlx_migrations') IS NOT NULL AS "has!""#)
        .fetch_one(connection)
        .await
        .map_err(DatabaseError::from)
}

async fn may_read(connection: &mut PgConnection) -> Result<bool, DatabaseError> {
    sqlx::query_scalar!(
        r#"SELECT has_table_privilege('public._sqlx_migrations', 'SELECT') AS "may!""#
    )
    .fetch_one(connection)
    .await
    .map_err(DatabaseError::from)
}

/// Today and the last day from today without a gap, by the database's clock.
async fn leaves_until(
    connection: &mut PgConnection,
) -> Result<Option<(NaiveDate, NaiveDate)>, DatabaseError> {
    let days = sqlx::query!(
        r#"
        SELECT day AS "day!",
               public.posthorn_is_leaf('events', 'events_' || to_char(day, 'YYYYMMDD'), day)
           AND public.posthorn_is_leaf('attempts', 'attempts_' || to_char(day, 'YYYYMMDD'), day) AS "made!"
        FROM (SELECT (now() AT TIME ZONE 'UTC')::date + ahead AS day FROM generate_series(0, 14) AS ahead) AS days
        ORDER BY day
        "#
    )
    .fetch_all(connection)
    .await?;
    let today = days.first().map(|row| row.day);
    let last = days
        .iter()
        .take_while(|row| row.made)
        .last()
        .map(|row| row.day);
    Ok(today.zip(last))
}

pub(super) async fn version_of(connection: &mut PgConnection) -> Result<i32, DatabaseError> {
    sqlx::query_scalar!(r#"SELECT current_setting('server_version_num')::int4 AS "version!""#)
        .fetch_one(connection)
        .await
        .map_err(DatabaseError::from)
}

pub(super) async fn login_of(connection: &mut PgConnection) -> Result<String, DatabaseError> {
    sqlx::query_scalar!(r#"SELECT session_user::text AS "login!""#)
        .fetch_one(connection)
        .await
        .map_err(DatabaseError::from)
}

pub(super) async fn rights_of(connection: &mut PgConnection) -> Result<Rights, DatabaseError> {
    let to_set = if version_of(connection).await? >= 160_000 {
        "SET"
    } else {
        "MEMBER"
    };
    sqlx::query_as!(
        Rights,
        r#"
        SELECT rolsuper AS "superuser!",
               pg_has_role(rolname, 'posthorn_system', $1) AND pg_has_role(rolname, 'posthorn_tenant', $1)
                   AS "acts_as_both!",
               pg_has_role(rolname, 'posthorn_system', 'USAGE') AS "inherits_system!"
        FROM pg_roles
        WHERE rolname = session_user
        "#,
        to_set,
    )
    .fetch_one(connection)
    .await
    .map_err(DatabaseError::from)
}

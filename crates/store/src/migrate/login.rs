//! Who connects to the database, and as whom the program then acts.
//!
//! The server must never act as a superuser or as the owner of its tables: row-level security does not
//! bind the first, and a forgotten `SET ROLE` would show the second every tenant (INV-9). A login is
//! looked at once, by [`Login::vet`]; whatever passes holds for every connection that is made with it.

use std::path::Path;
use std::str::FromStr as _;

use posthorn_domain::limits;
use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Executor as _, PgConnection};
use tracing::subscriber::{NoSubscriber, with_default};

use super::{MigrateError, standing};
use crate::database::{DatabaseError, DatabaseOptions, answered};

/// Why a login is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The URL is not one. Its text is not repeated: it may hold a password.
    #[error("the database URL is not of the form postgres://user:password@host:port/database")]
    Url,
    /// The login cannot take the roles that the server acts in.
    #[error(
        "the login `{user}` may not act as posthorn_tenant and posthorn_system. Let the server log in as posthorn_app \
         (give it a password with ALTER ROLE posthorn_app PASSWORD '…') and keep this login for \
         POSTHORN_MIGRATE_DATABASE_URL"
    )]
    NotAMember {
        /// The login's name.
        user: String,
    },
    /// The login has the engine's reach without asking for it.
    #[error(
        "the login `{user}` inherits posthorn_system, so that a statement without a role would see every tenant. \
         Log in as posthorn_app, or ALTER ROLE {user} NOINHERIT and grant posthorn_system again"
    )]
    Inherits {
        /// The login's name.
        user: String,
    },
}

/// How to reach the database, and whether its login has to step down first. No password is ever shown.
#[derive(Clone)]
pub struct Login {
    options: PgConnectOptions,
    stands: Stands,
}

/// What a login is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// It may take the two roles and no more.
    AsItIs,
    /// It is a superuser: each connection becomes `posthorn_app` first.
    StepsDown,
}

impl Login {
    /// Reads `postgres://…`.
    ///
    /// # Errors
    /// [`LoginError::Url`] without the text.
    pub fn from_url(url: &SecretString) -> Result<Self, LoginError> {
        let text = url.expose_secret();
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(LoginError::Url);
        }
        // Unheard: the library would log the value of a parameter that it does not know, and whole lines of a password file.
        let options = with_default(NoSubscriber::default(), || PgConnectOptions::from_str(text));
        let options = options.map_err(|_| LoginError::Url)?;
        let unknown = parameters(text).filter(|name| !is_known(name)).count();
        if unknown > 0 {
            tracing::warn!(
                unknown,
                "the database's URL has parameters that are not known here: they are ignored"
            );
        }
        Ok(Self::of(options))
    }

    /// A login over the unix socket in `directory`, without a password.
    #[must_use]
    pub fn over_socket(directory: &Path, port: u16, user: &str, database: &str) -> Self {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(directory)
            .port(port)
            .username(user)
            .database(database)
            .ssl_mode(PgSslMode::Disable);
        Self::of(options)
    }

    fn of(options: PgConnectOptions) -> Self {
        let options = options
            .application_name("posthorn")
            .log_statements(tracing::log::LevelFilter::Trace);
        Self {
            options,
            stands: Stands::AsItIs,
        }
    }

    /// The same login, in another database of the same cluster.
    #[must_use]
    pub fn of_database(mut self, database: &str) -> Self {
        self.options = self.options.database(database);
        self
    }

    /// Where this leads, for people: host or socket, database, user; never the password.
    #[must_use]
    pub fn describe(&self) -> String {
        let user = self.options.get_username();
        let database = self.options.get_database().unwrap_or(user);
        let place = match self.options.get_socket() {
            Some(socket) => format!("socket {}", socket.display()),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        };
        format!("{database} at {place} as {user}")
    }

    /// Host, as it was given, and port; `None` for a socket.
    #[must_use]
    pub fn over_tcp(&self) -> Option<(&str, u16)> {
        let tcp = self.options.get_socket().is_none();
        tcp.then(|| (self.options.get_host(), self.options.get_port()))
    }

    /// The login's name.
    #[must_use]
    pub fn user(&self) -> &str {
        self.options.get_username()
    }

    /// Whether the login is a superuser, so that every connection steps down to `posthorn_app`.
    #[must_use]
    pub fn steps_down(&self) -> bool {
        self.stands == Stands::StepsDown
    }

    /// Asks the database what this login is. The roles must exist.
    ///
    /// # Errors
    /// When it cannot take the server's roles, or has their reach without taking them.
    pub async fn vet(mut self) -> Result<Self, MigrateError> {
        let mut connection = self.connect_plain().await?;
        let may = standing::rights_of(&mut connection).await?;
        let user = self.user().to_owned();
        if may.superuser {
            self.stands = Stands::StepsDown;
        } else if !may.acts_as_both {
            return Err(LoginError::NotAMember { user }.into());
        } else if may.inherits_system {
            return Err(LoginError::Inherits { user }.into());
        }
        Ok(self)
    }

    /// What the server's pools are made from.
    #[must_use]
    pub fn database_options(
        &self,
        system_connections: u32,
        tenant_connections: u32,
    ) -> DatabaseOptions {
        DatabaseOptions {
            connect: self.options.clone(),
            become_app: self.steps_down(),
            system_connections,
            tenant_connections,
        }
    }

    /// A connection as the login itself: for migrations and for looking.
    pub(super) async fn connect_plain(&self) -> Result<PgConnection, DatabaseError> {
        Ok(answered(limits::DATABASE_WAIT, self.options.connect()).await?)
    }

    /// A connection as the engine.
    pub(crate) async fn connect_as_system(&self) -> Result<PgConnection, DatabaseError> {
        let mut connection = self.connect_plain().await?;
        self.act_as_system(&mut connection).await?;
        Ok(connection)
    }

    /// Steps down to the engine's role.
    pub(super) async fn act_as_system(
        &self,
        connection: &mut PgConnection,
    ) -> Result<(), DatabaseError> {
        if self.steps_down() {
            connection
                .execute("SET SESSION AUTHORIZATION posthorn_app")
                .await?;
        }
        connection.execute("SET ROLE posthorn_system").await?;
        Ok(())
    }
}

/// Parameters of a URL that count.
const PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "options",
    "application_name",
];

fn is_known(name: &str) -> bool {
    PARAMETERS.contains(&name) || name.starts_with("options[")
}

/// The names of a URL's parameters.
fn parameters(url: &str) -> impl Iterator<Item = &str> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(url: &str) -> Result<Login, LoginError> {
        Login::from_url(&SecretString::from(url.to_owned()))
    }

    #[test]
    fn a_description_names_the_place_and_never_the_password() {
        let login = login("postgres://posthorn_app:hunter2@db.example:5433/events").unwrap();
        assert_eq!(
            login.describe(),
            "events at db.example:5433 as posthorn_app"
        );
    }

    #[test]
    fn a_url_that_is_none_is_refused_without_repeating_it() {
        for url in [
            "",
            "mysql://root:hunter2@db/x",
            "postgres://user:hunter2@[::1/x",
            "hunter2",
        ] {
            let error = login(url).map(|_| ()).unwrap_err();
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_parameter_that_is_not_known_is_counted_and_not_shown() {
        let names = |url: &'static str| {
            parameters(url)
                .filter(|name| !is_known(name))
                .collect::<Vec<_>>()
        };
        assert_eq!(names("postgres://u@h/d"), [] as [&str; 0]);
        assert_eq!(
            names("postgres://u@h/d?sslmode=require&options[a]=b"),
            [] as [&str; 0]
        );
        assert_eq!(
            names("postgres://u@h/d?pasword=hunter2&channel_binding=require").len(),
            2
        );
        assert!(login("postgres://u@h/d?pasword=hunter2").is_ok());
    }

    #[test]
    fn a_socket_is_described_by_its_folder() {
        let login = Login::over_socket(Path::new("/run/ph"), 5432, "posthorn_app", "posthorn");
        assert_eq!(
            login.describe(),
            "posthorn at socket /run/ph as posthorn_app"
        );
    }
}

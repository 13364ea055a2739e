//! The database that the settings ask for, whoever runs it.
//!
//! [`Reach`] is that database made reachable: it knows the owner's login, for migrations, and the server's
//! own, which is never a superuser's in effect. A managed cluster is started, or taken over, by opening it
//! and stopped by closing it, unless somebody else still uses it.

use std::time::Duration;

use anyhow::Context as _;
use posthorn_domain::limits;
use posthorn_store::clock::Clock;
use posthorn_store::migrate::{self, Answer, Login, MigrateError, Prepared};

use crate::managed::Cluster;
use crate::settings::environment::Environment;
use crate::settings::{DatabaseSettings, Migrate};

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// A database that can be reached.
pub(crate) enum Reach {
    /// Somebody else's.
    Given(Box<Logins>),
    /// Our own.
    Managed(Box<Cluster>),
}

/// The logins to a given database.
pub(crate) struct Logins {
    server: Login,
    /// Who runs migrations.
    owner: Login,
}

impl Reach {
    /// Reads the logins, or starts the cluster.
    ///
    /// # Errors
    /// When a URL is none, nobody answers in time, or the cluster cannot be started.
    pub(crate) async fn open(
        settings: &DatabaseSettings,
        environment: &Environment,
    ) -> anyhow::Result<Self> {
        let clock = Clock::start();
        match settings {
            DatabaseSettings::Given { url, migrate_url } => {
                let server = Login::from_url(url).context("DATABASE_URL")?;
                let owner = match migrate_url {
                    Some(url) => Login::from_url(url).context("POSTHORN_MIGRATE_DATABASE_URL")?,
                    None => server.clone(),
                };
                wait_for(&owner, &clock).await?;
                Ok(Self::Given(Box::new(Logins { server, owner })))
            }
            DatabaseSettings::Managed { data_dir, pg_bin } => {
                let cluster =
                    Cluster::open(data_dir, pg_bin.as_deref(), environment, clock).await?;
                Ok(Self::Managed(Box::new(cluster)))
            }
        }
    }

    /// Which database this is, for the one line at start. Never a password.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Given(logins) => format!("given: {}", logins.server.describe()),
            Self::Managed(cluster) => format!("managed: {}", cluster.describe()),
        }
    }

    /// Makes roles, schema and leaves.
    ///
    /// # Errors
    /// As [`migrate::prepare`].
    pub(crate) async fn prepare(&self) -> Result<Prepared, MigrateError> {
        migrate::prepare(&self.owner()).await
    }

    /// Prepares if the settings say so, then gives the login that the server works with.
    ///
    /// # Errors
    /// When the database cannot be made fit, or the login may not do what the server does.
    pub(crate) async fn ready_login(&self, migrate: Migrate) -> Result<Login, MigrateError> {
        if migrate == Migrate::On {
            self.prepare().await?;
        }
        self.server().vet().await
    }

    /// The server's login, before it was vetted.
    pub(crate) fn server(&self) -> Login {
        match self {
            Self::Given(logins) => logins.server.clone(),
            Self::Managed(cluster) => cluster.login("posthorn_app"),
        }
    }

    /// Our own cluster, if it is one.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        match self {
            Self::Given(_) => None,
            Self::Managed(cluster) => Some(cluster),
        }
    }

    /// Where connections to it go over TCP: host and port. A managed one has a socket alone.
    pub(crate) fn over_tcp(&self) -> Vec<(&str, u16)> {
        match self {
            Self::Given(logins) => [&logins.server, &logins.owner]
                .into_iter()
                .filter_map(Login::over_tcp)
                .collect(),
            Self::Managed(_) => Vec::new(),
        }
    }

    /// Lets go of the database; stops a managed one that nobody else uses.
    ///
    /// # Errors
    /// When the cluster does not stop.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Given(_) => Ok(()),
            Self::Managed(cluster) => Ok(cluster.close().await?),
        }
    }

    fn owner(&self) -> Login {
        match self {
            Self::Given(logins) => logins.owner.clone(),
            Self::Managed(cluster) => cluster.login(Cluster::SUPERUSER),
        }
    }
}

/// Waits until somebody answers; a refusal, such as a wrong password, is told at once.
async fn wait_for(login: &Login, clock: &Clock) -> anyhow::Result<()> {
    let begun = clock.monotonic();
    let mut told = false;
    loop {
        let answer = migrate::answers(login)
            .await
            .with_context(|| login.describe())?;
        if answer == Answer::Ready {
            return Ok(());
        }
        if clock.monotonic().saturating_duration_since(begun) > limits::DATABASE_START_WAIT {
            anyhow::bail!(
                "nobody answers for the database {} after {} s",
                login.describe(),
                limits::DATABASE_START_WAIT.as_secs()
            );
        }
        if !told {
            tracing::warn!(
                database = login.describe(),
                "the database does not answer yet: waiting"
            );
            told = true;
        }
        clock.sleep(BETWEEN_LOOKS).await;
    }
}

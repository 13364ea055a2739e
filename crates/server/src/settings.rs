//! What the operator decides: defaults, overlaid by a TOML file, the environment and flags.
//!
//! [`Settings::read`] either returns settings that make sense together or every problem that it found,
//! each named by the variable, the line of the file or the flag that it came from. Contradictions are
//! refused, never resolved in silence, and so is a name that does not exist: a misspelt setting must not
//! be an ignored one. Secrets are never part of an error.
//!
//! The environment itself is read in [`environment`] and nowhere else.

pub(crate) mod environment;
mod layers;
mod read;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::retention::Retention;
use posthorn_egress::EgressOptions;
use secrecy::SecretString;

pub(crate) use layers::Flags;
#[cfg(test)]
use layers::SettingsError;
pub(crate) use value::PublicUrl;

/// Settings that were checked together.
#[derive(Clone)]
pub(crate) struct Settings {
    /// Where the API and the console are served.
    pub(crate) listen: SocketAddr,
    /// The address that people and programs use, and the only origin that a browser may call from. `None`:
    /// the listener's own, on loopback.
    pub(crate) public_url: Option<PublicUrl>,
    /// Peers whose `Forwarded` headers are believed.
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// The ring as text; `None` in managed mode, where a file holds it.
    pub(crate) master_keys: Option<SecretString>,
    /// What endpoints may be reached beside the public internet.
    pub(crate) egress: EgressPolicy,
    /// How they are reached.
    pub(crate) egress_options: EgressOptions,
    /// What is logged, as tracing's filter, and how.
    pub(crate) log: LogSettings,
    /// Where `/metrics` is served; `None`: on the main listener, for loopback alone.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// Which database.
    pub(crate) database: DatabaseSettings,
    /// Whether to run migrations at start.
    pub(crate) migrate: Migrate,
    /// What this node does.
    pub(crate) roles: BTreeSet<Role>,
    /// Connections to the database.
    pub(crate) pools: Pools,
    /// How long things are kept.
    pub(crate) retention: Retention,
    /// How long a node that was told to stop goes on as before, not ready any more.
    pub(crate) shutdown_pause: Duration,
}

/// How the program speaks about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// `info`, or a list such as `info,posthorn_worker=debug`.
    pub(crate) filter: String,
    /// For a terminal or for a collector.
    pub(crate) format: LogFormat,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Which database to use.
#[derive(Clone)]
pub(crate) enum DatabaseSettings {
    /// One that somebody else runs.
    Given {
        /// The server's login.
        url: SecretString,
        /// The owner's, if it is another.
        migrate_url: Option<SecretString>,
    },
    /// A cluster that this program runs.
    Managed {
        /// The folder that holds it and the key file.
        data_dir: PathBuf,
        /// Where PostgreSQL's programs are, if they are not to be looked for.
        pg_bin: Option<PathBuf>,
    },
}

/// Whether migrations are run at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Migrate {
    /// Before anything else.
    On,
    /// By somebody else; until then the node is not ready.
    Off,
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Serves `/v1`.
    Api,
    /// Delivers.
    Worker,
    /// Serves the console's pages.
    Console,
}

impl Role {
    /// Every role: what a node does unless told otherwise.
    pub(crate) const ALL: [Self; 3] = [Self::Api, Self::Worker, Self::Console];

    /// What nodes of these roles do, for a sentence.
    pub(crate) fn doing(roles: &BTreeSet<Self>) -> &'static str {
        match (roles.contains(&Self::Api), roles.contains(&Self::Worker)) {
            (true, true) => "accepts and sends",
            (true, false) => "accepts",
            (false, _) => "sends",
        }
    }

    /// The word in settings and flags.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Worker => "worker",
            Self::Console => "console",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a role: api, worker, console"))
    }
}

/// Sizes of the connection pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pools {
    /// For the engine's reads and sweeps.
    pub(crate) system: u32,
    /// For tenants' requests.
    pub(crate) tenant: u32,
}

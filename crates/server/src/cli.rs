//! The command line: one verb a file, plain text for people, one JSON object with `--json`.
//!
//! Every verb but `serve` runs to its end and needs the database alone; when the database is one of
//! Posthorn's own and is not running, the verb starts it for its own run. Problems go to standard error
//! and make the exit status 1 (2 for a wrong command line), so that standard output is the result alone.

mod config;
mod doctor;
mod key;
mod keys;
mod migrate;
mod openapi;
mod output;
mod session;
mod tenant;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::lifecycle;
use crate::settings::environment::Environment;
use crate::settings::{Flags, Settings};
use crate::telemetry;

pub(crate) use keys::new_key_id;
pub(crate) use output::Output;

/// Webhook delivery server: accepts events, signs them, and delivers them to each tenant's endpoints.
#[derive(Debug, Parser)]
#[command(name = "posthorn", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// A TOML file of settings; the environment and flags win over it.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object in place of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run the server: API, worker and console.
    Serve {
        /// What this node does: api, worker, console.
        #[arg(long, value_name = "LIST")]
        roles: Option<String>,
        /// Where to listen [default: 127.0.0.1:8400].
        #[arg(long, value_name = "ADDRESS")]
        listen: Option<String>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Make roles, schema and partitions, whichever are missing.
    Migrate {
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Manage tenants.
    #[command(subcommand)]
    Tenant(tenant::Verb),
    /// Manage a tenant's API keys.
    #[command(subcommand)]
    Key(key::Verb),
    /// Manage master keys, which seal signing secrets in the database.
    #[command(subcommand)]
    Keys(keys::Verb),
    /// Print the OpenAPI document.
    Openapi,
    /// Look for what is wrong: settings, database, schema, and deliveries that were lost sight of.
    Doctor {
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Look at settings.
    #[command(subcommand)]
    Config(config::Verb),
}

/// Flags of every verb that needs the database.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct DatabaseFlags {
    /// Run a PostgreSQL of Posthorn's own, in the data folder.
    #[arg(long)]
    managed: bool,
    /// The folder of that PostgreSQL and its key file; implies --managed.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DatabaseFlags {
    fn flags(&self, cli: &CommonFlags) -> Flags {
        Flags {
            config: cli.config.clone(),
            managed: self.managed,
            data_dir: self.data_dir.clone(),
            ..Flags::default()
        }
    }
}

/// What holds for every verb.
#[derive(Clone, Debug)]
pub(crate) struct CommonFlags {
    config: Option<PathBuf>,
    output: Output,
}

impl CommonFlags {
    /// Settings for a verb that runs to its end; what it logs is warnings alone.
    fn settings(&self, database: &DatabaseFlags) -> anyhow::Result<(Settings, Environment)> {
        let environment = Environment::of_this_process();
        let settings = Settings::read(&database.flags(self), &environment)?;
        telemetry::log_warnings();
        Ok((settings, environment))
    }
}

/// Does what the command line says.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    let common = CommonFlags {
        config: cli.config,
        output: Output::of(cli.json),
    };
    match cli.verb {
        Verb::Serve {
            roles,
            listen,
            database,
        } => {
            let environment = Environment::of_this_process();
            let flags = Flags {
                listen,
                roles,
                ..database.flags(&common)
            };
            lifecycle::serve(&flags, &environment).await
        }
        Verb::Migrate { database } => migrate::run(&common, &database).await,
        Verb::Tenant(verb) => tenant::run(&common, verb).await,
        Verb::Key(verb) => key::run(&common, verb).await,
        Verb::Keys(verb) => keys::run(&common, verb).await,
        Verb::Openapi => openapi::run(),
        Verb::Doctor { database } => doctor::run(&common, &database).await,
        Verb::Config(verb) => config::run(&common, &verb),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_verb_that_is_not_built_is_refused() {
        assert!(Cli::try_parse_from(["posthorn", "user", "create", "a@b.test"]).is_err());
    }
}

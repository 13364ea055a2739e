//! `posthorn config check`: whether the settings make sense, without starting anything.

use clap::Subcommand;
use serde_json::json;

use super::{CommonFlags, DatabaseFlags};
use crate::settings::environment::Environment;
use crate::settings::{DatabaseSettings, Settings};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Read all settings as `serve` would and say what is wrong. Starts nothing.
    Check {
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

pub(super) fn run(common: &CommonFlags, verb: &Verb) -> anyhow::Result<()> {
    let Verb::Check { database } = verb;
    let settings = Settings::read(&database.flags(common), &Environment::of_this_process())?;
    settings.ready_to_serve()?;
    let database = match &settings.database {
        DatabaseSettings::Given { .. } => "given".to_owned(),
        DatabaseSettings::Managed { data_dir, .. } => format!("managed in {}", data_dir.display()),
    };
    let roles: Vec<&str> = settings.roles.iter().map(|role| role.as_str()).collect();
    let text = format!(
        "settings are good: listen {}, database {database}, roles {}",
        settings.listen,
        roles.join(",")
    );
    common.output.print(
        &text,
        &json!({ "ok": true, "listen": settings.listen, "database": database, "roles": roles }),
    )?;
    Ok(())
}

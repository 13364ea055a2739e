//! `posthorn tenant create`: a new tenant.

use clap::Subcommand;
use posthorn_domain::api_key::Environment;
use posthorn_domain::id::TenantId;
use posthorn_domain::limits;
use posthorn_store::configure::{self, NewTenant};
use posthorn_store::entropy::Entropy;
use posthorn_store::scope::Actor;
use serde_json::json;

use super::{CommonFlags, DatabaseFlags, session};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make a tenant and print its id.
    Create {
        /// 1 to 100 characters, for people.
        name: String,
        /// Its keys begin with `ph_test_`; else with `ph_live_`.
        #[arg(long)]
        test: bool,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

pub(super) async fn run(common: &CommonFlags, verb: Verb) -> anyhow::Result<()> {
    let Verb::Create {
        name,
        test,
        database,
    } = verb;
    let name = name.trim().to_owned();
    let length = name.chars().count();
    anyhow::ensure!(
        (1..=limits::NAME_CHARS).contains(&length),
        "a name has 1 to {} characters",
        limits::NAME_CHARS
    );
    let environment = if test {
        Environment::Test
    } else {
        Environment::Live
    };
    let id = session::with(common, &database, async |session| {
        let id = TenantId::mint(session.clock.now(), Entropy.bytes());
        configure::create_tenant(
            &session.database,
            &NewTenant {
                id,
                name,
                environment,
            },
            Actor::COMMAND_LINE,
        )
        .await?;
        Ok(id)
    })
    .await?;
    common.output.print(&id.to_string(), &json!({ "id": id }))?;
    Ok(())
}

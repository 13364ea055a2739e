//! `posthorn key create|revoke`: a tenant's API keys.

use std::io::{self, Write as _};

use clap::Subcommand;
use posthorn_domain::api_key;
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::limits;
use posthorn_domain::scope::Scope;
use posthorn_store::configure::{self, NewKey, Revoked};
use posthorn_store::entropy::Entropy;
use posthorn_store::scope::{Actor, TenantScope};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::output::Output;
use super::session::Session;
use super::{CommonFlags, DatabaseFlags, session};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Make an API key and print it. It is shown this once and stored as a hash.
    Create {
        /// Whose key it is.
        #[arg(long, value_name = "ID")]
        tenant: TenantId,
        /// For people.
        #[arg(long, default_value = "")]
        name: String,
        /// What it may do, such as events:write,events:read [default: everything but admin].
        #[arg(long, value_name = "LIST", long_help = about_scopes(), value_parser = scopes_in)]
        scopes: Vec<Scopes>,
        #[command(flatten)]
        database: DatabaseFlags,
    },
    /// Revoke an API key, for ever. Every node refuses it within a second.
    Revoke {
        /// The key's id, as `key create` told it.
        id: KeyId,
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

pub(super) async fn run(common: &CommonFlags, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Create {
            tenant,
            name,
            scopes,
            database,
        } => {
            let length = name.chars().count();
            anyhow::ensure!(
                length <= limits::NAME_CHARS,
                "a name has at most {} characters",
                limits::NAME_CHARS
            );
            let made = session::with(common, &database, async |session| {
                let scopes = scopes.into_iter().flat_map(|Scopes(some)| some);
                let made = create(session, tenant, name, scopes.collect()).await?;
                // Nodes read their configuration by the clock: a key that is printed is one they know.
                session.clock.sleep(limits::CHANGE_IN_FORCE).await;
                Ok(made)
            });
            let (id, text) = made.await?;
            let text = text.expose_secret();
            // The key alone, so that a shell may take it: KEY=$(posthorn key create …). Its id is for people.
            if common.output == Output::Text {
                let _ = writeln!(io::stderr(), "{id} (this once: the key itself follows)");
            }
            common
                .output
                .print(text, &json!({ "id": id, "key": text }))?;
        }
        Verb::Revoke { id, database } => {
            let revoked = session::with(common, &database, async |session| {
                let Some(tenant) = configure::tenant_of_key(&session.database, id).await? else {
                    return Ok(Revoked::Unknown);
                };
                let scope = TenantScope::new_authenticated(tenant, Actor::COMMAND_LINE);
                Ok(configure::revoke_key(&session.database, scope, id).await?)
            });
            let said = match revoked.await? {
                Revoked::Now(_) => "revoked",
                Revoked::Before => "it was revoked before",
                Revoked::Unknown => anyhow::bail!("there is no key {id}"),
            };
            common
                .output
                .print(said, &json!({ "id": id, "revoked": true }))?;
        }
    }
    Ok(())
}

async fn create(
    session: &Session,
    tenant: TenantId,
    name: String,
    scopes: Vec<Scope>,
) -> anyhow::Result<(KeyId, SecretString)> {
    let tenants = configure::tenants(&session.database).await?;
    let found = tenants.iter().find(|one| one.id == tenant);
    let found = found.ok_or_else(|| anyhow::anyhow!("there is no tenant {tenant}"))?;
    let text = api_key::mint(found.environment, Entropy.bytes());
    let key = NewKey {
        id: KeyId::mint(session.clock.now(), Entropy.bytes()),
        name,
        prefix: api_key::display_prefix(text.expose_secret()),
        hash: api_key::check(text.expose_secret())?,
        scopes: if scopes.is_empty() {
            everything_but_admin()
        } else {
            scopes
        },
        expires_at: None,
    };
    let scope = TenantScope::new_authenticated(tenant, Actor::COMMAND_LINE);
    configure::create_key(&session.database, scope, &key).await?;
    Ok((key.id, text))
}

/// Scopes as one flag names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scopes(Vec<Scope>);

/// Reads scopes with commas between them; a refusal names all that are none, and those that there are.
fn scopes_in(text: &str) -> Result<Scopes, String> {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for word in text.split(',').map(str::trim) {
        match word.parse() {
            Ok(scope) => known.push(scope),
            Err(_) => unknown.push(format!("`{word}`")),
        }
    }
    if unknown.is_empty() {
        return Ok(Scopes(known));
    }
    let all: Vec<_> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    let are = if unknown.len() == 1 {
        "is no scope"
    } else {
        "are no scopes"
    };
    Err(format!(
        "{} {are}; there are {}",
        unknown.join(", "),
        all.join(", ")
    ))
}

/// What `--help` tells of scopes: each with its meaning.
fn about_scopes() -> String {
    let mut about = "What it may do: scopes with commas between them, such as events:write,events:read [default: \
                     everything but admin].\n"
        .to_owned();
    for scope in Scope::ALL {
        about.extend(["\n", scope.as_str(), ": ", scope.meaning()]);
    }
    about
}

fn everything_but_admin() -> Vec<Scope> {
    Scope::ALL
        .iter()
        .copied()
        .filter(|scope| *scope != Scope::Admin)
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn scopes_that_are_none_are_all_named_beside_those_that_there_are() {
        let command = |scopes: &str| {
            let words = [
                "posthorn",
                "key",
                "create",
                "--tenant",
                "ten_01kb6wq3c5e8h2k4n7r9t1v3x5",
                "--scopes",
            ];
            let words = words.into_iter().chain([scopes]);
            Cli::command()
                .try_get_matches_from(words)
                .unwrap_err()
                .to_string()
        };
        let refusal = command("foo,events:read,bar");
        assert!(refusal.contains("`foo`, `bar` are no scopes"), "{refusal}");
        for scope in Scope::ALL {
            assert!(refusal.contains(scope.as_str()), "{scope}: {refusal}");
        }
        assert_eq!(
            scopes_in("events:read, admin"),
            Ok(Scopes(vec![Scope::EventsRead, Scope::Admin]))
        );
        assert!(scopes_in("").is_err());
    }

    #[test]
    fn the_help_lists_every_scope_with_its_meaning() {
        let words = ["posthorn", "key", "create", "--help"];
        let help = Cli::command().try_get_matches_from(words).unwrap_err();
        let help: Vec<_> = help
            .to_string()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let help = help.join(" ");
        for scope in Scope::ALL {
            let line = format!("{scope}: {}", scope.meaning());
            assert!(help.contains(&line), "{line}: {help}");
        }
    }

    #[test]
    fn a_key_has_every_scope_but_admin_unless_told_otherwise() {
        let scopes = everything_but_admin();
        assert_eq!(scopes.len(), Scope::ALL.len() - 1);
        assert!(!scopes.contains(&Scope::Admin));
    }
}

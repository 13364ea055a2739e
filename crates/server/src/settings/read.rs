//! From the layers to [`Settings`]: each value parsed, then all of them together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use posthorn_domain::address::EgressPolicy;
use posthorn_domain::retention::{Days, Retention};
use posthorn_domain::seal::KeyRing;
use posthorn_egress::{EgressOptions, ForwardProxy, NameServers};
use posthorn_store::migrate::Login;
use secrecy::SecretString;

use super::environment::Environment;
use super::layers::{Flags, Layers, SettingsError};
use super::value::{self, PublicUrl};
use super::{DatabaseSettings, LogFormat, LogSettings, Migrate, Pools, Role, Settings};

/// Loopback, so that nothing is reachable from elsewhere until somebody says so.
const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8400);

/// What the program says of itself, without what its libraries say.
const DEFAULT_LOG: &str = "info,sqlx=warn,hyper=warn,reqwest=warn";

impl Settings {
    /// Reads, parses and checks everything.
    ///
    /// # Errors
    /// Every problem that was found.
    pub(crate) fn read(flags: &Flags, environment: &Environment) -> Result<Self, SettingsError> {
        let mut layers = Layers::stack(flags, environment);
        let listen = layers.take("listen", DEFAULT_LISTEN, parsed);
        let database = layers.database(environment);
        let master_keys = layers.master_keys();
        layers.refuse_sign_up();
        let read = Self {
            listen,
            public_url: layers.public_url(listen),
            trusted_proxies: layers.take("trusted_proxies", Vec::new(), value::networks),
            master_keys,
            egress: layers.egress(),
            egress_options: layers.egress_options(),
            log: layers.log(),
            metrics_listen: layers.take("metrics_listen", None, |text| parsed(text).map(Some)),
            migrate: layers.migrate(),
            roles: layers.take("roles", Role::ALL.into(), roles),
            pools: Pools {
                system: layers.take("system_connections", 8, connections),
                tenant: layers.take("tenant_connections", 8, connections),
            },
            retention: layers.retention(),
            shutdown_pause: layers.take("shutdown_pause_seconds", Duration::ZERO, value::pause),
            // Any value does when a problem was found: it is not returned.
            database: database.unwrap_or(DatabaseSettings::Managed {
                data_dir: PathBuf::new(),
                pg_bin: None,
            }),
        };
        layers.refuse_shared_listener(&read);
        if layers.problems.is_empty() {
            Ok(read)
        } else {
            Err(SettingsError {
                problems: layers.problems,
            })
        }
    }

    /// What serving needs and the other commands do not.
    ///
    /// # Errors
    /// When a database is given and no master key is.
    pub(crate) fn ready_to_serve(&self) -> Result<(), SettingsError> {
        if matches!(self.database, DatabaseSettings::Given { .. }) && self.master_keys.is_none() {
            return Err(SettingsError::of(
                "POSTHORN_MASTER_KEYS (or POSTHORN_MASTER_KEYS_FILE) is needed with DATABASE_URL: \
                 `posthorn keys generate` prints one",
            ));
        }
        Ok(())
    }
}

impl Layers {
    /// The parsed value, or `default` when it is not given; a problem when it does not parse.
    fn take<T>(
        &mut self,
        key: &str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(given) = self.get(key).cloned() else {
            return default;
        };
        match parse(given.text.trim()) {
            Ok(value) => value,
            Err(why) => {
                self.problem(format!("{}: `{}` {why}", given.origin, given.text));
                default
            }
        }
    }

    /// The ring, once it is seen to be one. Neither it nor what is wrong in it is shown (INV-10): the error names a place.
    fn master_keys(&mut self) -> Option<SecretString> {
        let given = self.get("master_keys").cloned()?;
        if let Err(error) = KeyRing::parse(&given.text) {
            self.problem(format!("{}: {error}", given.origin));
        }
        Some(SecretString::from(given.text))
    }

    /// Either a database that is given or one of our own: never both, never a guess.
    fn database(&mut self, environment: &Environment) -> Option<DatabaseSettings> {
        let url = self.get("database_url").cloned();
        let data_dir = self.get("data_dir").cloned();
        let switch = self.get("managed").cloned();
        let wants_managed = self.take("managed", false, value::switch);
        let pg_bin = self.get("pg_bin").map(|given| PathBuf::from(&given.text));
        let migrate_url = self.get("migrate_database_url").cloned();
        if let (Some(migrate), None) = (&migrate_url, &url) {
            self.problem(format!(
                "{} is given and DATABASE_URL is not",
                migrate.origin
            ));
        }
        let manager = data_dir
            .as_ref()
            .or(switch.as_ref().filter(|_| wants_managed));
        match (url, manager) {
            (Some(url), Some(manager)) => {
                self.problem(format!(
                    "{} and {} contradict each other: the first names a database that is there, the second asks for one \
                     of Posthorn's own. Give one of them",
                    url.origin, manager.origin
                ));
                None
            }
            (None, None) => {
                self.problem(
                    "no database: set DATABASE_URL, or let Posthorn run its own with POSTHORN_DATA_DIR or --managed",
                );
                None
            }
            (Some(url), None) => {
                for given in [Some(&url), migrate_url.as_ref()].into_iter().flatten() {
                    let login = Login::from_url(&SecretString::from(given.text.clone()));
                    if let Err(error) = login {
                        self.problem(format!("{}: {error}", given.origin));
                    }
                }
                Some(DatabaseSettings::Given {
                    url: SecretString::from(url.text),
                    migrate_url: migrate_url.map(|given| SecretString::from(given.text)),
                })
            }
            (None, Some(manager)) => {
                if switch.is_some() && !wants_managed {
                    self.problem(format!(
                        "{} asks for a managed database and `managed` is off",
                        manager.origin
                    ));
                }
                let data_dir = data_dir
                    .map(|given| PathBuf::from(given.text))
                    .or_else(|| default_data_dir(environment));
                if data_dir.is_none() {
                    self.problem("--managed needs POSTHORN_DATA_DIR: HOME is not set, so there is no default");
                }
                Some(DatabaseSettings::Managed {
                    data_dir: data_dir?,
                    pg_bin,
                })
            }
        }
    }

    /// Without a public URL the server stays on loopback: cookies and links would be wrong elsewhere.
    fn public_url(&mut self, listen: SocketAddr) -> Option<PublicUrl> {
        if self.get("public_url").is_none() && !listen.ip().is_loopback() {
            let origin = self
                .get("listen")
                .map_or("POSTHORN_LISTEN".to_owned(), |given| {
                    given.origin.to_string()
                });
            self.problem(format!(
                "{origin}: {listen} can be reached from other machines, and POSTHORN_PUBLIC_URL is not set. \
                 Set it to the https address that people use, or listen on 127.0.0.1"
            ));
        }
        self.take("public_url", None, |text| PublicUrl::parse(text).map(Some))
    }

    fn egress(&mut self) -> EgressPolicy {
        let closed = EgressPolicy::default();
        let policy = self.take("egress_allow", closed, |text| {
            EgressPolicy::parse(text).map_err(|error| error.to_string())
        });
        policy.https_only(self.take("https_only", false, value::switch))
    }

    fn egress_options(&mut self) -> EgressOptions {
        EgressOptions {
            extra_roots: self.take("egress_ca", None, |path| value::roots(path).map(Some)),
            proxy: self.forward_proxy(),
            name_servers: self.take("egress_dns", NameServers::System, value::name_servers),
        }
    }

    /// There may be a password in it, so that neither it nor what is wrong with it is shown (INV-10).
    fn forward_proxy(&mut self) -> Option<ForwardProxy> {
        let given = self.get("egress_proxy").cloned()?;
        let proxy = ForwardProxy::parse(given.text.trim());
        if let Err(error) = &proxy {
            self.problem(format!("{}: {error}", given.origin));
        }
        proxy.ok()
    }

    fn log(&mut self) -> LogSettings {
        let filter = self.take("log", DEFAULT_LOG.to_owned(), |text| {
            value::log_filter(text).map(|()| text.to_owned())
        });
        let format = self.take("log_format", LogFormat::Text, |text| match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("must be text or json".to_owned()),
        });
        LogSettings { filter, format }
    }

    fn retention(&mut self) -> Retention {
        let days = |text: &str| Days::parse(text).map_err(|error| error.to_string());
        let kept = Retention::default();
        Retention {
            events: self.take("retention_days", kept.events, days),
            dead_letters: self.take("dead_letter_retention_days", kept.dead_letters, days),
        }
    }

    fn migrate(&mut self) -> Migrate {
        if self.take("migrate", true, value::switch) {
            Migrate::On
        } else {
            Migrate::Off
        }
    }

    /// The setting is there from the beginning, so that `closed` can be written down; the rest is not built.
    fn refuse_sign_up(&mut self) {
        self.take("signup", (), |text| match text {
            "closed" => Ok(()),
            "invite" | "open" => Err("is not offered by this version: only closed".to_owned()),
            _ => Err("must be closed".to_owned()),
        });
    }

    fn refuse_shared_listener(&mut self, settings: &Settings) {
        let Some(metrics) = settings.metrics_listen else {
            return;
        };
        if metrics.port() != 0 && metrics == settings.listen {
            self.problem(format!("POSTHORN_METRICS_LISTEN and POSTHORN_LISTEN are both {metrics}: give metrics a port of its own"));
        }
    }
}

fn default_data_dir(environment: &Environment) -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/posthorn"));
    }
    environment.data_home().map(|home| home.join("posthorn"))
}

fn roles(text: &str) -> Result<std::collections::BTreeSet<Role>, String> {
    let roles: std::collections::BTreeSet<Role> = value::items(text)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    if roles.is_empty() {
        Err("names no role: api, worker, console".to_owned())
    } else if roles.contains(&Role::Console) && !roles.contains(&Role::Api) {
        Err("console without api: the console's pages call the API of their own address".to_owned())
    } else {
        Ok(roles)
    }
}

fn connections(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number @ 1..=200) => Ok(number),
        _ => Err("must be a number from 1 to 200".to_owned()),
    }
}

fn parsed<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|error| format!("does not parse: {error}"))
}

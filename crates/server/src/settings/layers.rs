//! Where a setting's value comes from, and which one counts.
//!
//! The registry names every setting once; the file, the environment and the flags are laid over one
//! another by it. A name that it does not know is a problem. `PORT`, `DATABASE_URL` and `…_FILE` are the
//! only names that do not follow from it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::environment::Environment;

/// A setting: its key in the file; in the environment it is `POSTHORN_` and the key in capitals.
pub(super) struct Known {
    pub(super) key: &'static str,
    kind: Kind,
}

#[derive(PartialEq, Eq)]
enum Kind {
    /// Shown in errors.
    Plain,
    /// Never shown; may come from a file named by `…_FILE`.
    Secret,
}

const fn plain(key: &'static str) -> Known {
    Known {
        key,
        kind: Kind::Plain,
    }
}

const fn secret(key: &'static str) -> Known {
    Known {
        key,
        kind: Kind::Secret,
    }
}

/// Every setting.
pub(super) const KNOWN: [Known; 25] = [
    plain("listen"),
    plain("public_url"),
    plain("trusted_proxies"),
    secret("master_keys"),
    plain("signup"),
    plain("egress_allow"),
    plain("egress_ca"),
    plain("https_only"),
    secret("egress_proxy"),
    plain("egress_dns"),
    plain("log"),
    plain("log_format"),
    plain("metrics_listen"),
    secret("database_url"),
    secret("migrate_database_url"),
    plain("managed"),
    plain("data_dir"),
    plain("pg_bin"),
    plain("migrate"),
    plain("roles"),
    plain("system_connections"),
    plain("tenant_connections"),
    plain("retention_days"),
    plain("dead_letter_retention_days"),
    plain("shutdown_pause_seconds"),
];

/// Values given on the command line; they win.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) config: Option<PathBuf>,
    /// `--listen`.
    pub(crate) listen: Option<String>,
    /// `--roles`.
    pub(crate) roles: Option<String>,
    /// `--managed`.
    pub(crate) managed: bool,
    /// `--data-dir`.
    pub(crate) data_dir: Option<PathBuf>,
}

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    File(PathBuf, &'static str),
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, key) => write!(f, "`{key}` in {}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A value and where it was given.
#[derive(Clone)]
pub(super) struct Given {
    pub(super) text: String,
    pub(super) origin: Origin,
}

/// One thing that is wrong, in a sentence that names the setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem(pub(super) String);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything that is wrong with the settings.
#[derive(Debug, thiserror::Error)]
pub(crate) struct SettingsError {
    /// At least one.
    pub(crate) problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("these settings are refused:")?;
        self.problems
            .iter()
            .try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl SettingsError {
    /// A single problem.
    pub(super) fn of(text: &str) -> Self {
        Self {
            problems: vec![Problem(text.to_owned())],
        }
    }
}

/// All layers, laid over one another.
#[derive(Default)]
pub(super) struct Layers {
    values: BTreeMap<&'static str, Given>,
    pub(super) problems: Vec<Problem>,
}

impl Layers {
    /// File, then environment, then flags.
    pub(super) fn stack(flags: &Flags, environment: &Environment) -> Self {
        let mut layers = Self::default();
        if let Some((path, origin)) = config_path(flags, environment) {
            layers.add_file(&path, &origin);
        }
        layers.add_environment(environment);
        layers.add_flags(flags);
        layers
    }

    pub(super) fn get(&self, key: &str) -> Option<&Given> {
        self.values.get(key)
    }

    pub(super) fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(Problem(text.into()));
    }

    fn add_file(&mut self, path: &Path, origin: &Origin) {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                return self.problem(format!(
                    "{origin}: {} cannot be read: {error}",
                    path.display()
                ));
            }
        };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            // The parser's own text quotes the line, which may hold a secret.
            Err(error) => {
                let line = error.span().map_or(0, |span| {
                    text.get(..span.start).unwrap_or("").lines().count().max(1)
                });
                return self.problem(format!(
                    "{}: line {line}: {}",
                    path.display(),
                    error.message()
                ));
            }
        };
        for (name, value) in table {
            let Some(known) = KNOWN.iter().find(|known| known.key == name) else {
                self.problem(format!("{}: there is no setting `{name}`", path.display()));
                continue;
            };
            match text_of(&value) {
                Some(text) => self.set(known.key, text, Origin::File(path.to_owned(), known.key)),
                None => self.problem(format!(
                    "{}: `{name}` must be text, a number or a list of texts",
                    path.display()
                )),
            }
        }
    }

    fn add_environment(&mut self, environment: &Environment) {
        let mut given: BTreeMap<&'static str, Given> = BTreeMap::new();
        for (name, value) in environment.iter() {
            let Some(slot) = Slot::named(name) else {
                if name.starts_with("POSTHORN_") && name != "POSTHORN_CONFIG" {
                    self.problem(format!("there is no setting {name}"));
                }
                continue;
            };
            let Some(text) = value.to_str() else {
                self.problem(format!("{name} is not UTF-8"));
                continue;
            };
            let text = match slot.source {
                Source::Value => text.to_owned(),
                Source::Port => format!("0.0.0.0:{text}"),
                Source::File => match fs::read_to_string(text) {
                    Ok(content) => content.trim_end_matches(['\n', '\r']).to_owned(),
                    Err(error) => {
                        self.problem(format!("{name}: {text} cannot be read: {error}"));
                        continue;
                    }
                },
            };
            let one = Given {
                text,
                origin: Origin::Variable(name.to_owned()),
            };
            if let Some(other) = given.insert(slot.key, one.clone())
                && other.text != one.text
            {
                self.problem(format!(
                    "{} and {} contradict each other: set one of them",
                    other.origin, one.origin
                ));
            }
        }
        self.values.extend(given);
    }

    fn add_flags(&mut self, flags: &Flags) {
        let texts = [
            ("listen", "--listen", flags.listen.clone()),
            ("roles", "--roles", flags.roles.clone()),
            (
                "managed",
                "--managed",
                flags.managed.then(|| "on".to_owned()),
            ),
            (
                "data_dir",
                "--data-dir",
                flags
                    .data_dir
                    .as_ref()
                    .map(|path| path.to_string_lossy().into_owned()),
            ),
        ];
        for (key, flag, text) in texts {
            if let Some(text) = text {
                self.set(key, text, Origin::Flag(flag));
            }
        }
    }

    fn set(&mut self, key: &'static str, text: String, origin: Origin) {
        if !text.is_empty() {
            self.values.insert(key, Given { text, origin });
        }
    }
}

/// What a variable's name stands for.
struct Slot {
    key: &'static str,
    source: Source,
}

enum Source {
    Value,
    File,
    Port,
}

impl Slot {
    fn named(name: &str) -> Option<Self> {
        match name {
            "PORT" => {
                return Some(Self {
                    key: "listen",
                    source: Source::Port,
                });
            }
            "DATABASE_URL" => {
                return Some(Self {
                    key: "database_url",
                    source: Source::Value,
                });
            }
            "DATABASE_URL_FILE" => {
                return Some(Self {
                    key: "database_url",
                    source: Source::File,
                });
            }
            _ => {}
        }
        let key = name.strip_prefix("POSTHORN_")?.to_owned();
        if key != key.to_uppercase() {
            return None;
        }
        let key = key.to_lowercase();
        if let Some(known) = KNOWN.iter().find(|known| known.key == key) {
            return Some(Self {
                key: known.key,
                source: Source::Value,
            });
        }
        let key = key.strip_suffix("_file")?;
        let known = KNOWN
            .iter()
            .find(|known| known.kind == Kind::Secret && known.key == key)?;
        Some(Self {
            key: known.key,
            source: Source::File,
        })
    }
}

fn config_path(flags: &Flags, environment: &Environment) -> Option<(PathBuf, Origin)> {
    if let Some(path) = &flags.config {
        return Some((path.clone(), Origin::Flag("--config")));
    }
    let (name, value) = environment
        .iter()
        .find(|(name, _)| *name == "POSTHORN_CONFIG")?;
    Some((PathBuf::from(value), Origin::Variable(name.to_owned())))
}

/// A value of the file as the text that a variable would have: lists are joined by commas.
fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(true) => Some("on".to_owned()),
        toml::Value::Boolean(false) => Some("off".to_owned()),
        toml::Value::Array(items) => {
            let texts: Option<Vec<&str>> = items.iter().map(toml::Value::as_str).collect();
            Some(texts?.join(","))
        }
        _ => None,
    }
}

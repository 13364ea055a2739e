//! Licences and banned crates, by the lists of `deny.toml`, for machines without cargo-deny.

use anyhow::{Context as _, Result};

use super::House;
use super::metadata::Package;

const FILE: &str = "deny.toml";

pub(super) fn allowed(house: &House<'_>) -> Result<Vec<String>> {
    let allow = names(house, "licenses", "allow")?;
    let refused = house
        .metadata
        .packages
        .iter()
        .filter(|package| !package.ours && !fits(&package.licence, &allow));
    Ok(refused
        .map(|package| format!("{}: {:?}", told(package), package.licence))
        .collect())
}

pub(super) fn banned(house: &House<'_>) -> Result<Vec<String>> {
    let deny = names(house, "bans", "deny")?;
    let found = house
        .metadata
        .packages
        .iter()
        .filter(|package| deny.contains(&package.name));
    Ok(found.map(told).collect())
}

fn told(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

/// A list of names, or of tables with a `name` or a `crate`.
fn names(house: &House<'_>, section: &str, key: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(house.workspace.join(FILE))
        .with_context(|| format!("reading {FILE}"))?;
    let document: toml::Table = text.parse().context(FILE)?;
    let list = document
        .get(section)
        .and_then(|section| section.get(key))
        .and_then(toml::Value::as_array);
    let list = list.with_context(|| format!("{FILE}: [{section}] {key} is missing"))?;
    let name_of = |value: &toml::Value| {
        let name = value
            .as_str()
            .or_else(|| value.get("crate")?.as_str())
            .or_else(|| value.get("name")?.as_str());
        name.map(str::to_owned)
    };
    Ok(list.iter().filter_map(name_of).collect())
}

/// Whether an SPDX expression can be met with the allowed licences: `OR` takes one side, `AND` both.
fn fits(expression: &str, allow: &[String]) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allow) && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allow: &[String]) -> bool {
    let mut met = all_of(words, allow);
    while words.next_if_eq(&"OR").is_some() {
        // Both sides are read, whatever the first one says.
        let other = all_of(words, allow);
        met = met || other;
    }
    met
}

fn all_of(words: &mut Words<'_>, allow: &[String]) -> bool {
    let mut met = one(words, allow);
    while words.next_if_eq(&"AND").is_some() {
        let other = one(words, allow);
        met = met && other;
    }
    met
}

fn one(words: &mut Words<'_>, allow: &[String]) -> bool {
    match words.next() {
        Some("(") => {
            let met = any_of(words, allow);
            words.next_if_eq(&")").is_some() && met
        }
        Some(name) => {
            let mut name = name.to_owned();
            if words.next_if_eq(&"WITH").is_some() {
                name = format!("{name} WITH {}", words.next().unwrap_or_default());
            }
            allow.contains(&name)
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    fn allow() -> Vec<String> {
        ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"]
            .map(str::to_owned)
            .to_vec()
    }

    #[test]
    fn one_side_of_an_or_and_both_of_an_and_must_be_allowed() {
        assert!(fits("GPL-3.0 OR MIT", &allow()));
        assert!(fits("MIT/GPL-3.0", &allow()));
        assert!(!fits("MIT AND GPL-3.0", &allow()));
        assert!(fits("ISC AND (Apache-2.0 OR GPL-3.0)", &allow()));
        assert!(!fits("ISC AND (GPL-2.0 OR GPL-3.0)", &allow()));
        assert!(fits("Apache-2.0 WITH LLVM-exception OR GPL-3.0", &allow()));
    }

    #[test]
    fn no_licence_is_not_allowed() {
        assert!(!fits("", &allow()));
    }
}

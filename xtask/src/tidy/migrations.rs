//! Migrations only grow: numbered without a gap, and never changed once released.

use std::process::Command;

use anyhow::Result;

use super::House;
use crate::cluster::migrations;
use crate::process::capture;

pub(super) fn check(house: &House<'_>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let released = last_release(house);
    for (index, path) in migrations(house.workspace)?.iter().enumerate() {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !is_well_named(&name, index + 1) {
            faults.push(format!(
                "migrations/{name}: want {:04}_words_like_this.sql",
                index + 1
            ));
        }
        let text = std::fs::read_to_string(path)?;
        if !text.starts_with("--") {
            faults.push(format!("migrations/{name}: say why in a comment on top"));
        }
        let old = released
            .as_ref()
            .and_then(|tag| at_release(house, tag, &name));
        if old.is_some_and(|old| old != text) {
            faults.push(format!(
                "migrations/{name} was released: add another, do not change it"
            ));
        }
    }
    Ok(faults)
}

fn is_well_named(name: &str, number: usize) -> bool {
    let Some(words) = name
        .strip_suffix(".sql")
        .and_then(|stem| stem.strip_prefix(&format!("{number:04}_")))
    else {
        return false;
    };
    !words.is_empty()
        && words
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

fn last_release(house: &House<'_>) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(house.workspace.root()).args([
        "describe",
        "--tags",
        "--abbrev=0",
        "--match",
        "v*",
    ]);
    Some(capture(&mut git).ok()?.trim().to_owned())
}

fn at_release(house: &House<'_>, tag: &str, name: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.current_dir(house.workspace.root())
        .args(["show", &format!("{tag}:migrations/{name}")]);
    capture(&mut git).ok()
}

#[cfg(test)]
mod tests {
    use super::is_well_named;

    #[test]
    fn a_migration_is_named_by_its_place_and_its_idea() {
        assert!(is_well_named("0001_engine.sql", 1));
        assert!(!is_well_named("0003_engine.sql", 2));
        assert!(!is_well_named("0001_Engine.sql", 1));
        assert!(!is_well_named("0001_.sql", 1));
    }
}

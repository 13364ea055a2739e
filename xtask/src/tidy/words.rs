//! One word per concept: the words that the glossary of `ARCHITECTURE.md` leaves out name nothing here.
//!
//! Only names that are defined here are looked at (a library may call its things what it likes), in Rust and in SQL.

use anyhow::Result;

use super::House;
use crate::cluster::migrations;

/// Each has a word of ours in its place: event, endpoint, delivery, attempt, event type.
const UNUSED: &[&str] = &["message", "hook", "subscriber", "job", "topic"];

/// These two are words of Rust as well, so only a type may not be called by them.
const UNUSED_TYPES: &[&str] = &["Task", "Try"];

const DEFINES: &[&str] = &[
    "fn ", "struct ", "enum ", "trait ", "mod ", "const ", "static ", "type ", "let ",
];

pub(super) fn check(house: &House<'_>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for file in house.sources.files.iter().filter(|file| file.is_product()) {
        for (number, line) in file.code().lines().enumerate() {
            for word in defined(line).into_iter().filter(|name| is_unused(name)) {
                faults.push(format!(
                    "{}:{}: `{word}` is not a word of the glossary",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    for path in migrations(house.workspace)? {
        let sql = std::fs::read_to_string(&path)?;
        for (number, line) in sql.lines().enumerate() {
            let code = line.split("--").next().unwrap_or_default();
            let names = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            for word in names.filter(|name| is_unused(name)) {
                faults.push(format!(
                    "{}:{}: `{word}` is not a word of the glossary",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    Ok(faults)
}

/// Names that a line defines: items, variables, fields.
fn defined(line: &str) -> Vec<&str> {
    let line = line.trim();
    if line.starts_with("//") {
        return Vec::new();
    }
    let mut names = Vec::new();
    for keyword in DEFINES {
        let at = line.find(keyword).filter(|at| {
            line.get(..*at).is_some_and(|before| {
                before.is_empty() || before.ends_with(' ') || before.ends_with(')')
            })
        });
        if let Some(rest) = at.and_then(|at| line.get(at + keyword.len()..)) {
            names.extend(first_name(rest.trim_start_matches("mut ")));
        }
    }
    let field = line
        .trim_start_matches("pub(crate) ")
        .trim_start_matches("pub(super) ")
        .trim_start_matches("pub ");
    if let Some((name, _)) = field.split_once(": ")
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    {
        names.push(name);
    }
    names
}

fn first_name(text: &str) -> Option<&str> {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    text.get(..end).filter(|name| !name.is_empty())
}

fn is_unused(name: &str) -> bool {
    UNUSED_TYPES.contains(&name)
        || words_of(name)
            .iter()
            .any(|word| UNUSED.contains(&word.as_str()))
}

/// `DeadLetterHook`, `dead_letter_hook` → dead, letter, hook.
fn words_of(name: &str) -> Vec<String> {
    let mixed = name.chars().any(char::is_lowercase);
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' {
            words.push(String::new());
            continue;
        }
        let begins = c.is_uppercase() && mixed && words.last().is_some_and(|word| !word.is_empty());
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_apart_in_either_spelling() {
        assert_eq!(words_of("DeadLetterHook"), ["dead", "letter", "hook"]);
        assert_eq!(words_of("webhook_id"), ["webhook", "id"]);
        assert_eq!(words_of("MAX_JOBS"), ["max", "jobs"]);
    }

    #[test]
    fn definitions_are_looked_at_and_uses_are_not() {
        assert_eq!(
            defined("    pub(crate) fn send_message(&self)"),
            ["send_message"]
        );
        assert_eq!(defined("let job = 1;"), ["job"]);
        assert!(defined("error.message()").is_empty());
        assert!(defined("// a message").is_empty());
    }
}

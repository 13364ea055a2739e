//! Each promise, INV-1 to INV-13, is cited by the code that keeps it and by a test that would see it broken.
//!
//! A promise that `docs/contract.toml` says is planned is not looked for.

use std::process::Command;

use anyhow::Result;

use super::House;
use super::contract::Contract;
use crate::mutants;
use crate::process::capture;

/// How many promises there are.
pub(super) const PROMISES: u32 = 13;

pub(super) fn check(house: &House<'_>) -> Result<Vec<String>> {
    let contract = Contract::read(house.workspace)?;
    let mut faults = Vec::new();
    for number in 1..=PROMISES {
        let name = format!("INV-{number}");
        if contract.is_planned("promises", &name) {
            continue;
        }
        let product = house.sources.files.iter().filter(|file| file.is_product());
        if !product
            .map(super::sources::Source::code)
            .any(|code| cites(code, &name))
        {
            faults.push(format!("{name} is cited by no code"));
        }
        if !house
            .sources
            .files
            .iter()
            .any(|file| cites(file.tests(), &name))
        {
            faults.push(format!("{name} is cited by no test"));
        }
    }
    Ok(faults)
}

/// A patch that no longer applies breaks nothing, and nobody learns whether a test would have seen it.
pub(super) fn mutants_apply(house: &House<'_>) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    for patch in mutants::patches(house.workspace)? {
        let mut git = Command::new("git");
        git.current_dir(house.workspace.root())
            .args(["apply", "--check"])
            .arg(&patch);
        if capture(&mut git).is_err() {
            let name = patch.file_name().unwrap_or_default().to_string_lossy();
            faults.push(format!("tests/mutants/{name} no longer applies"));
        }
    }
    Ok(faults)
}

/// Whether a text names this promise and not one whose number only begins alike.
fn cites(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        !text
            .get(at + name.len()..)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::cites;

    #[test]
    fn a_longer_number_is_another_promise() {
        assert!(cites("(INV-1)", "INV-1"));
        assert!(!cites("INV-12", "INV-1"));
        assert!(cites("INV-12, INV-1", "INV-1"));
    }
}

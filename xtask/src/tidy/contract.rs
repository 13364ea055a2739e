//! `docs/contract.toml`: each promise, operation, screen and case with the tests that hold it.
//!
//! A row either names tests or says `planned = true`. It fails when a row has neither, when a named test does not
//! exist, when the route of a planned operation is served, or when a served one has no row: so that a long list
//! is never half built in silence.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::House;
use super::promises::PROMISES;
use crate::openapi;
use crate::workspace::Workspace;

const FILE: &str = "docs/contract.toml";
const METHODS: &[&str] = &["get", "post", "put", "patch", "delete"];

pub(super) struct Contract {
    sections: Vec<(String, Vec<Row>)>,
}

struct Row {
    name: String,
    tests: Vec<String>,
    planned: bool,
}

impl Contract {
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let text = std::fs::read_to_string(workspace.join(FILE))
            .with_context(|| format!("reading {FILE}"))?;
        Self::parse(&text).with_context(|| FILE.to_owned())
    }

    fn parse(text: &str) -> Result<Self> {
        let document: toml::Table = text.parse()?;
        let mut sections = Vec::new();
        for (section, rows) in &document {
            let rows = rows
                .as_table()
                .with_context(|| format!("[{section}] is a table of rows"))?;
            let rows = rows
                .iter()
                .map(|(name, row)| row_of(name, row))
                .collect::<Result<_>>()?;
            sections.push((section.clone(), rows));
        }
        Ok(Self { sections })
    }

    pub(super) fn is_planned(&self, section: &str, name: &str) -> bool {
        self.rows(section)
            .any(|row| row.name == name && row.planned)
    }

    pub(super) fn tests_of(&self, section: &str, name: &str) -> Vec<String> {
        self.rows(section)
            .filter(|row| row.name == name)
            .flat_map(|row| row.tests.clone())
            .collect()
    }

    fn rows(&self, section: &str) -> impl Iterator<Item = &Row> {
        self.sections
            .iter()
            .filter(move |(name, _)| name == section)
            .flat_map(|(_, rows)| rows)
    }
}

fn row_of(name: &str, row: &toml::Value) -> Result<Row> {
    let row = row
        .as_table()
        .with_context(|| format!("{name} is a table"))?;
    let known = ["what", "tests", "planned", "open"];
    if let Some(key) = row.keys().find(|key| !known.contains(&key.as_str())) {
        anyhow::bail!("{name}: unknown key `{key}`");
    }
    let tests = row
        .get("tests")
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten();
    Ok(Row {
        name: name.to_owned(),
        tests: tests
            .filter_map(toml::Value::as_str)
            .map(str::to_owned)
            .collect(),
        planned: row
            .get("planned")
            .and_then(toml::Value::as_bool)
            .unwrap_or(false),
    })
}

pub(super) fn check(house: &House<'_>) -> Result<Vec<String>> {
    let contract = Contract::read(house.workspace)?;
    let mut faults = Vec::new();
    for (section, rows) in &contract.sections {
        for row in rows {
            faults.extend(faults_of(section, row, house));
        }
    }
    for number in 1..=PROMISES {
        let name = format!("INV-{number}");
        if !contract.rows("promises").any(|row| row.name == name) {
            faults.push(format!("{name} has no row"));
        }
    }
    let served = served(house.workspace)?;
    for row in contract
        .rows("api")
        .filter(|row| row.planned && served.contains(&shape(&row.name)))
    {
        faults.push(format!(
            "{} is served and says that it is planned",
            row.name
        ));
    }
    for row in contract
        .rows("api")
        .filter(|row| !row.planned && !served.contains(&shape(&row.name)))
    {
        faults.push(format!(
            "{} is not served and does not say that it is planned",
            row.name
        ));
    }
    let listed: BTreeSet<String> = contract.rows("api").map(|row| shape(&row.name)).collect();
    faults.extend(
        served
            .difference(&listed)
            .map(|route| format!("{route} is served and has no row")),
    );
    Ok(faults)
}

fn faults_of(section: &str, row: &Row, house: &House<'_>) -> Vec<String> {
    let name = &row.name;
    let mut faults = Vec::new();
    if row.planned && !row.tests.is_empty() {
        faults.push(format!(
            "{section}.{name} has tests and says that it is planned"
        ));
    }
    if !row.planned && row.tests.is_empty() {
        faults.push(format!("{section}.{name} has no test"));
    }
    let missing = row
        .tests
        .iter()
        .filter(|test| !house.sources.tests.contains_key(test.as_str()));
    faults.extend(missing.map(|test| format!("{section}.{name}: there is no test `{test}`")));
    faults
}

/// One line of numbers: how much of each list is held.
pub(super) fn told(house: &House<'_>) -> Result<String> {
    let contract = Contract::read(house.workspace)?;
    let parts: Vec<String> = contract
        .sections
        .iter()
        .map(|(section, rows)| {
            let held = rows.iter().filter(|row| !row.planned).count();
            format!("{section} {held} of {}", rows.len())
        })
        .collect();
    Ok(format!(
        "contract: held {}; the rest is planned",
        parts.join(", ")
    ))
}

/// The operations of the committed description, as `GET /v1/events/{}`.
fn served(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let Ok(text) = std::fs::read_to_string(workspace.join(openapi::FILE)) else {
        return Ok(BTreeSet::new());
    };
    let document: Value = serde_json::from_str(&text).context(openapi::FILE)?;
    let mut routes = BTreeSet::new();
    let paths = document
        .get("paths")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    for (path, operations) in paths.filter(|(path, _)| path.starts_with("/v1")) {
        for method in METHODS
            .iter()
            .filter(|method| operations.get(**method).is_some())
        {
            routes.insert(shape(&format!("{} {path}", method.to_uppercase())));
        }
    }
    Ok(routes)
}

/// A route without the names of its parameters.
fn shape(route: &str) -> String {
    let mut shape = String::new();
    let mut inside = false;
    for c in route.chars() {
        match c {
            '{' => {
                inside = true;
                shape.push_str("{}");
            }
            '}' => inside = false,
            c if !inside => shape.push(c),
            _ => {}
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_the_same_whatever_its_parameters_are_called() {
        assert_eq!(
            shape("GET /v1/events/{event_id}/payload"),
            "GET /v1/events/{}/payload"
        );
    }

    #[test]
    fn an_unknown_key_of_a_row_is_refused() {
        assert!(Contract::parse("[cases]\nA01 = { test = [\"a\"] }").is_err());
        assert!(
            Contract::parse("[cases]\nA01 = { tests = [\"a\"], what = \"big integers\" }").is_ok()
        );
    }
}

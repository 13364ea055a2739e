//! Files: their names, their heads, and what may not be in them.

use super::House;

/// Names that say nothing of what is inside.
const EMPTY_NAMES: &[&str] = &[
    "utils", "util", "common", "helpers", "helper", "misc", "types", "models",
];

pub(super) fn names(house: &House<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for file in &house.sources.files {
        if file.path.ends_with("/mod.rs") {
            faults.push(format!(
                "{}: no mod.rs; a module's file stands beside its folder",
                file.path
            ));
        }
        let empty = file
            .path
            .split(['/', '.'])
            .find(|part| EMPTY_NAMES.contains(part));
        if let Some(name) = empty {
            faults.push(format!(
                "{}: `{name}` says nothing of what is inside",
                file.path
            ));
        }
    }
    faults
}

pub(super) fn module_docs(house: &House<'_>) -> Vec<String> {
    let silent = house
        .sources
        .files
        .iter()
        // Tests beside a file are part of it.
        .filter(|file| !file.path.ends_with("/tests.rs") && !file.text.starts_with("//!"));
    silent
        .map(|file| format!("{}: begin with //! and say what it is", file.path))
        .collect()
}

pub(super) fn globs(house: &House<'_>) -> Vec<String> {
    lines(
        house,
        |line| line.starts_with("pub") && line.contains("use ") && line.ends_with("::*;"),
        "name what is re-exported",
    )
}

pub(super) fn ignored(house: &House<'_>) -> Vec<String> {
    lines(
        house,
        |line| line.starts_with("#[ignore"),
        "a test runs or is removed",
    )
}

/// `sqlx::query("…")` as a function takes any text; the macros take what the schema knows.
pub(super) fn unchecked_sql(house: &House<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let product = house.sources.files.iter().filter(|file| file.is_product());
    // The load generator asks PostgreSQL what it did; it knows nothing of the schema.
    for file in product.filter(|file| !file.path.starts_with("crates/bench/")) {
        let mut reason = false;
        for (number, line) in file.code().lines().enumerate() {
            let line = line.trim();
            let raw = [
                "query(",
                "query_as(",
                "query_scalar(",
                "query_with(",
                "raw_sql(",
            ]
            .iter()
            .any(|call| line.contains(&format!("sqlx::{call}")));
            // The reason stands in an attribute or a comment directly above.
            if raw && !reason && !line.starts_with("//") {
                faults.push(format!(
                    "{}:{}: an unchecked query says why, in a line `// Unchecked: …` above it",
                    file.path,
                    number + 1
                ));
            }
            reason = line.starts_with("// Unchecked: ")
                || (reason && (line.starts_with("//") || line.starts_with("#[")));
        }
    }
    faults
}

/// The driver's errors may hold what no log may (INV-10): `store::database` has a type that tells them.
pub(super) fn driver_errors(house: &House<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    let tells = |path: &str| path.starts_with("crates/store/src/database");
    let product = house.sources.files.iter().filter(|file| file.is_product());
    for file in product.filter(|file| !tells(&file.path) && !file.path.starts_with("crates/bench/"))
    {
        for (number, line) in file.code().lines().enumerate() {
            if line.contains("sqlx::Error") && !line.trim().starts_with("//") {
                faults.push(format!(
                    "{}:{}: take `DatabaseError`: it can be shown, and the driver's error cannot",
                    file.path,
                    number + 1
                ));
            }
        }
    }
    faults
}

fn lines(house: &House<'_>, is_fault: impl Fn(&str) -> bool, what: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for file in &house.sources.files {
        for (number, line) in file.text.lines().enumerate() {
            if is_fault(line.trim()) {
                faults.push(format!("{}:{}: {what}", file.path, number + 1));
            }
        }
    }
    faults
}

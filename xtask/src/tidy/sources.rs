//! The Rust sources, each split into what runs and what tests it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;

/// One file, by its path in the checkout.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
    /// Where its tests begin, in bytes; the whole file where it is one of tests.
    tests_from: usize,
}

impl Source {
    fn new(path: String, text: String) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        let all_tests =
            path.starts_with("tests/") || path.contains("/tests/") || name == "tests.rs";
        let tests_from = if all_tests {
            0
        } else {
            text.find("#[cfg(test)]\nmod ").unwrap_or(text.len())
        };
        Self {
            path,
            text,
            tests_from,
        }
    }

    /// What is not a test.
    pub(super) fn code(&self) -> &str {
        self.text.get(..self.tests_from).unwrap_or_default()
    }

    pub(super) fn tests(&self) -> &str {
        self.text.get(self.tests_from..).unwrap_or_default()
    }

    /// Of the program, not of its tasks and tests.
    pub(super) fn is_product(&self) -> bool {
        self.path.starts_with("crates/")
    }
}

pub(super) struct Sources {
    pub(super) files: Vec<Source>,
    /// The name of each test → the packages' folders it is in.
    pub(super) tests: BTreeMap<String, BTreeSet<String>>,
}

impl Sources {
    pub(super) fn read(workspace: &Workspace) -> Result<Self> {
        let mut paths = Vec::new();
        for folder in ["crates", "tests", "xtask"] {
            walk(&workspace.join(folder), &mut paths)?;
        }
        paths.sort();
        let mut files = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
            let name = path
                .strip_prefix(workspace.root())?
                .to_string_lossy()
                .into_owned();
            files.push(Source::new(name, text));
        }
        let mut tests: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in &files {
            let folder = file
                .path
                .split("/src/")
                .next()
                .unwrap_or_default()
                .split("/tests/")
                .next()
                .unwrap_or_default();
            for name in test_names(file.tests()) {
                tests
                    .entry(name.to_owned())
                    .or_default()
                    .insert(folder.to_owned());
            }
        }
        Ok(Self { files, tests })
    }
}

/// The functions under an attribute that ends in `test]` or begins with `#[…test(`.
fn test_names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[") {
            let attribute = line.trim_start_matches("#[");
            let path = attribute.split(['(', ']']).next().unwrap_or_default();
            marked |= path.rsplit("::").next() == Some("test");
        } else if let Some(name) = function_name(line) {
            if marked {
                names.push(name);
            }
            marked = false;
        }
    }
    names
}

/// `pub(crate) async fn name(…` → `name`.
pub(super) fn function_name(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let qualifiers = [
        "",
        "pub",
        "pub(crate)",
        "pub(super)",
        "async",
        "const",
        "unsafe",
        "extern",
    ];
    if !before
        .split_whitespace()
        .all(|word| qualifiers.contains(&word))
    {
        return None;
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    rest.get(..end).filter(|name| !name.is_empty())
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            if path
                .file_name()
                .is_some_and(|name| name != "target" && name != "node_modules")
            {
                walk(&path, into)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_under_a_test_attribute_are_tests() {
        let text = "#[test]\nfn a_claim() {}\nfn builder() {}\n#[tokio::test(flavor = \"multi_thread\")]\n\
                    async fn another() {}\n#[testing]\nfn no() {}\n";
        assert_eq!(test_names(text), ["a_claim", "another"]);
    }

    #[test]
    fn a_file_is_split_where_its_tests_begin() {
        let source = Source::new(
            "crates/a/src/b.rs".into(),
            "fn x() {}\n#[cfg(test)]\nmod tests {}\n".into(),
        );
        assert_eq!(source.code(), "fn x() {}\n");
        assert!(source.tests().starts_with("#[cfg(test)]"));
        assert_eq!(
            Source::new("tests/src/c.rs".into(), "fn x() {}".into()).code(),
            ""
        );
    }
}

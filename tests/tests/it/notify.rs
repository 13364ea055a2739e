//! NOTIFY: a lock of the whole cluster at each commit, and a queue that a stuck listener holds open. Not used.

use std::fs;
use std::path::{Path, PathBuf};

/// What would use it: statements, the function, sqlx's listener.
const WORDS: [&str; 4] = ["NOTIFY ", "LISTEN ", "pg_notify", "PgListener"];

/// Sources of the program and its schema.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "sql")
        {
            into.push(path);
        }
    }
}

/// G11: what one node is to tell another lies in tables, which each reads by the clock.
#[test]
fn no_statement_listens_or_notifies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["crates/store", "migrations"] {
        sources(&root.join(folder), &mut files);
    }
    assert!(files.len() > 50, "{} files are not all", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//") && !line.starts_with("--"));
        for line in code {
            let found = WORDS.iter().find(|word| line.contains(**word));
            assert_eq!(found, None, "{}: {line}", file.display());
        }
    }
}

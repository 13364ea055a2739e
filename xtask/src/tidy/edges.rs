//! The dependency graph is the architecture: these edges, no others.

use std::collections::BTreeSet;

use super::House;

/// Crate → the crates of ours that it may know, and all of which it is made of.
const EDGES: &[(&str, &[&str])] = &[
    ("posthorn-domain", &[]),
    ("posthorn-store", &["posthorn-domain"]),
    ("posthorn-egress", &["posthorn-domain"]),
    ("posthorn-api", &["posthorn-domain", "posthorn-store"]),
    (
        "posthorn-worker",
        &["posthorn-domain", "posthorn-egress", "posthorn-store"],
    ),
    ("posthorn-console", &[]),
    (
        "posthorn-server",
        &[
            "posthorn-api",
            "posthorn-console",
            "posthorn-domain",
            "posthorn-egress",
            "posthorn-store",
            "posthorn-worker",
        ],
    ),
    ("xtask", &[]),
];

/// Nobody may know these; they may know anybody.
const LEAVES: &[&str] = &["posthorn-bench", "posthorn-tests"];

/// Only `store` speaks to PostgreSQL, only `egress` to the addresses that tenants gave.
const ONLY: &[(&str, &[&str])] = &[
    ("sqlx", &["posthorn-store"]),
    ("reqwest", &["posthorn-egress"]),
    ("hickory-resolver", &["posthorn-egress"]),
];

/// Pure: no runtime, no clock of its own, no sockets.
const PURE: (&str, &[&str]) = (
    "posthorn-domain",
    &["tokio", "rand", "axum", "hyper", "sqlx", "reqwest"],
);

pub(super) fn check(house: &House<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    for package in house
        .metadata
        .packages
        .iter()
        .filter(|package| package.ours)
    {
        let name = package.name.as_str();
        let knows: BTreeSet<&str> = package
            .knows
            .iter()
            .map(String::as_str)
            .filter(|known| known.starts_with("posthorn-"))
            .collect();
        if let Some((_, allowed)) = EDGES.iter().find(|(owner, _)| *owner == name) {
            for known in knows.iter().filter(|known| !allowed.contains(known)) {
                faults.push(format!("{name} may not know {known}"));
            }
        } else if !LEAVES.contains(&name) {
            faults.push(format!(
                "{name} is not in the design: say in xtask/src/tidy/edges.rs whom it may know"
            ));
        }
        faults.extend(
            knows
                .iter()
                .filter(|known| LEAVES.contains(known))
                .map(|leaf| format!("{name} may not know {leaf}, a leaf")),
        );
        for (library, owners) in ONLY {
            if package.knows.contains(*library)
                && !owners.contains(&name)
                && !LEAVES.contains(&name)
            {
                faults.push(format!(
                    "{name} may not use {library}: only {} does",
                    owners.join(", ")
                ));
            }
        }
        if name == PURE.0 {
            let impure = PURE
                .1
                .iter()
                .filter(|library| package.knows.contains(**library));
            faults
                .extend(impure.map(|library| format!("{name} is pure and may not use {library}")));
        }
    }
    faults
}

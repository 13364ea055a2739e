//! A model of the record rules: two nodes, one delivery, random interleavings of everything that can happen.
//!
//! The model keeps the rules that the store keeps in SQL (accept with its fence, record, pending, dead
//! letters, watermark, recovery, shards) in memory, and asks `posthorn_domain::delivery` for every
//! decision. A walk takes random steps, among them crashes, lapsed leases and statements whose outcome
//! stays unknown, checks the rules after each, then lets everything settle and asks for INV-2: each
//! delivery ends, on record. Without faults it also asks for INV-6: no number is requested twice.
//!
//! A model that finds nothing proves nothing: each rule is left out once, and the walks must notice.
//! Everything is seeded; a failure names its seed.

#![expect(
    clippy::indexing_slicing,
    reason = "a model with two nodes that are 0 and 1"
)]

#[path = "model/dice.rs"]
mod dice;
#[path = "model/node.rs"]
mod node;
#[path = "model/store.rs"]
mod store;
#[path = "model/world.rs"]
mod world;

use store::{Rule, Rules};
use world::{Faults, walk};

const WALKS: u64 = 40_000;

/// The first walk that breaks a rule, and how.
fn first_violation(faults: Faults, rules: Rules) -> Option<String> {
    (0..WALKS).find_map(|seed| {
        walk(seed, faults, rules)
            .err()
            .map(|what| format!("seed {seed}: {what}"))
    })
}

#[test]
fn inv_2_every_delivery_ends_on_record_whatever_crashes() {
    assert_eq!(first_violation(Faults::Many, Rules::ALL), None);
}

#[test]
fn inv_6_without_faults_no_attempt_is_requested_twice() {
    assert_eq!(first_violation(Faults::None, Rules::ALL), None);
}

#[test]
fn each_rule_is_missed_when_it_is_left_out() {
    for rule in Rule::ALL {
        let violation = first_violation(Faults::Many, Rules::without(rule));
        assert!(violation.is_some(), "nobody noticed: {rule:?}");
    }
}

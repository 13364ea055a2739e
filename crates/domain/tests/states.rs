//! `docs/states.md` says exactly what the code does: its tables name the states of the enums, and its
//! table of transitions is what `advance` answers, cell by cell.

use core::fmt::Write as _;
use core::time::Duration;

use posthorn_domain::delivery::life::{Before, Delivery, Due, Happening, Pending, advance};
use posthorn_domain::delivery::{Cause, DeliveryState, Outcome, Why};
use posthorn_domain::endpoint::EndpointState;
use posthorn_domain::retry::RetryPolicy;

const PAGE: &str = include_str!("../../../docs/states.md");

const MORE: &RetryPolicy = &RetryPolicy::Fixed {
    delay_ms: 1000,
    max_attempts: 9,
};
const NONE_LEFT: &RetryPolicy = &RetryPolicy::Fixed {
    delay_ms: 1000,
    max_attempts: 1,
};
const FAILED: &Outcome = &Outcome::Failed {
    floor: None,
    dies_as: Cause::Exhausted,
};

/// The words in the first column of the table below a heading.
fn first_column(heading: &str) -> Vec<&'static str> {
    let from = format!("\n## {heading}\n");
    let (_, section) = PAGE.split_once(&from).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).collect()
}

fn words<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|member| word(*member)).collect()
}

#[test]
fn the_page_names_exactly_the_states_of_a_delivery() {
    assert_eq!(
        first_column("States of a delivery"),
        words(DeliveryState::ALL, DeliveryState::as_str)
    );
}

#[test]
fn the_page_names_exactly_the_causes_of_a_death() {
    assert_eq!(
        first_column("Causes of a death"),
        words(Cause::ALL, Cause::as_str)
    );
}

#[test]
fn the_page_names_exactly_the_reasons_to_be_pending() {
    assert_eq!(
        first_column("Reasons to be pending"),
        words(Why::ALL, Why::as_str)
    );
}

#[test]
fn the_page_names_exactly_the_states_of_an_endpoint() {
    assert_eq!(
        first_column("States of an endpoint"),
        words(EndpointState::ALL, EndpointState::as_str)
    );
}

#[test]
fn the_diagram_names_exactly_the_states_of_a_delivery() {
    let (_, diagram) = PAGE.split_once("stateDiagram-v2\n").expect("a diagram");
    let diagram = diagram.split("```").next().unwrap_or_default();
    let arrows = diagram
        .lines()
        .filter_map(|line| line.trim().split_once(" --> "));
    let mut named: Vec<&str> = arrows
        .flat_map(|(from, to)| [from, to.split(':').next().unwrap_or_default()])
        .map(str::trim)
        .filter(|word| *word != "[*]")
        .collect();
    named.sort_unstable();
    named.dedup();
    let mut all = words(DeliveryState::ALL, DeliveryState::as_str);
    all.sort_unstable();
    assert_eq!(named, all);
}

#[test]
fn the_table_of_transitions_is_what_the_code_does() {
    let table = table_of_transitions();
    assert!(
        PAGE.contains(&table),
        "docs/states.md should hold this table:\n{table}"
    );
}

/// Everything that may happen, in the words of the page. An attempt's number is the expected one.
fn happenings(n: u32) -> Vec<(&'static str, Happening<'static>)> {
    let attempted = |outcome, policy| Happening::Attempted {
        n,
        outcome,
        policy,
        left: Duration::from_hours(24),
        draw: 0.5,
    };
    vec![
        ("attempt: 2xx", attempted(&Outcome::Success, MORE)),
        (
            "attempt: failed, the policy allows another",
            attempted(FAILED, MORE),
        ),
        (
            "attempt: failed, the policy allows no other",
            attempted(FAILED, NONE_LEFT),
        ),
        ("attempt: a fatal status", attempted(&Outcome::Fatal, MORE)),
        ("attempt: 410", attempted(&Outcome::Gone, MORE)),
        ("handed over to its shard's owner", Happening::HandedOver),
        ("recovered from a closed stream", Happening::Recovered),
        ("parked", Happening::Parked(Why::Paused)),
        ("released", Happening::Released),
        ("replayed", Happening::Replayed { n }),
        ("cancelled by a person", Happening::Cancel),
        ("discarded by a person", Happening::Discard),
        ("its end has come", Happening::Expired),
        (
            "its endpoint is gone (410 to another)",
            Happening::EndpointGone,
        ),
        ("its endpoint is deleted", Happening::EndpointDeleted),
        ("its payload is no longer kept", Happening::PayloadGone),
    ]
}

/// Deliveries that a reader sees in this state, and the number of their next attempt.
fn examples(state: DeliveryState) -> Vec<(Delivery, u32)> {
    let row = |n, due, before| Pending {
        n,
        before,
        ..Pending::unattempted(Why::Retry, due)
    };
    let soon = Due::In(Duration::from_secs(1));
    let replayed = [Before::Dead(Cause::Exhausted), Before::Discarded];
    let mut all = vec![
        (Delivery::Waiting, 1),
        (Delivery::Delivered, 2),
        (Delivery::Dead(Cause::Exhausted), 2),
        (Delivery::Discarded, 2),
        (Delivery::Cancelled, 2),
    ];
    for due in [soon, Due::Parked] {
        all.push((Delivery::Pending(row(1, due, Before::Open)), 1));
        all.push((Delivery::Pending(row(2, due, Before::Open)), 2));
        all.push((Delivery::Pending(row(2, due, Before::Delivered)), 2));
        all.extend(replayed.map(|before| (Delivery::Pending(row(2, due, before)), 2)));
    }
    all.retain(|(delivery, _)| delivery.state() == state);
    all
}

fn table_of_transitions() -> String {
    let mut table = String::from("| what happens |");
    for state in DeliveryState::ALL {
        let _ = write!(table, " {state} |");
    }
    table.push_str("\n| --- |");
    table.push_str(&" --- |".repeat(DeliveryState::ALL.len()));
    table.push('\n');
    for (place, (name, _)) in happenings(1).iter().enumerate() {
        let _ = write!(table, "| {name} |");
        for state in DeliveryState::ALL {
            let _ = write!(table, " {} |", cell(*state, place));
        }
        table.push('\n');
    }
    table
}

/// The states that one happening leads to from one state; `–` where it cannot happen or decides nothing.
fn cell(from: DeliveryState, place: usize) -> String {
    let mut reached: Vec<&str> = Vec::new();
    for (delivery, n) in examples(from) {
        let happening = happenings(n).into_iter().nth(place);
        let after = happening.and_then(|(_, happening)| advance(delivery, happening).ok());
        reached.extend(after.map(|after| after.state().as_str()));
    }
    reached.sort_unstable_by_key(|word| (*word == from.as_str(), *word));
    reached.dedup();
    if reached.is_empty() {
        "–".into()
    } else {
        reached.join(", ")
    }
}

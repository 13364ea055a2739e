//! Stalls: steps at the database that cannot be done, told once when it begins and once when it is over.
//!
//! While the database is away, or its disk is full, every loop of the engine fails at each of its steps, several times a second, and every
//! delivery at its own. What an operator needs of that is one line when it begins and one when it ends; the rest is at the
//! level debug, and `/readyz` says so meanwhile.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// What changed with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The first step fails.
    Began,
    /// No step fails any more.
    Ended,
    /// All get on as before, or another one fails still.
    Nothing,
}

/// The kinds of steps that failed when they were last done. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    failing: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Stalls {
    /// A step `name` was done.
    pub(crate) fn done(&self, name: &'static str) {
        if self.without(name) == Change::Ended {
            tracing::info!(step = name, "steps of the engine are done again");
        }
    }

    /// What one step came to.
    pub(crate) fn told<T, E: Display>(&self, name: &'static str, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.done(name),
            Err(error) => self.failed(name, error),
        }
    }

    fn without(&self, name: &'static str) -> Change {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if failing.remove(name) && failing.is_empty() {
            Change::Ended
        } else {
            Change::Nothing
        }
    }

    /// A step `name` failed.
    pub(crate) fn failed(&self, name: &'static str, error: &impl Display) {
        if self.with(name) == Change::Began {
            tracing::warn!(step = name, %error, "steps of the engine fail; what lasts is told at the level debug");
        } else {
            tracing::debug!(step = name, %error, "a step of the engine failed");
        }
    }

    fn with(&self, name: &'static str) -> Change {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let first = failing.is_empty();
        failing.insert(name);
        if first {
            Change::Began
        } else {
            Change::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_that_fail_together_are_told_when_it_begins_and_when_the_last_goes_on() {
        let stalls = Stalls::default();
        let told = [
            stalls.without("lease"),
            stalls.with("lease"),
            stalls.with("due"),
            stalls.with("lease"),
            stalls.without("due"),
            stalls.without("lease"),
            stalls.without("lease"),
        ];
        let wanted = [
            Change::Nothing,
            Change::Began,
            Change::Nothing,
            Change::Nothing,
            Change::Nothing,
            Change::Ended,
            Change::Nothing,
        ];
        assert_eq!(told, wanted);
    }
}

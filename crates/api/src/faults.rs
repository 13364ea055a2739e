//! Gathering what is wrong with a body, so that a caller learns of all of it at once.

use std::fmt::Display;

use crate::problem::{Failure, Fault, Problem};

/// Faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Notes a fault.
    pub(crate) fn add(
        &mut self,
        pointer: impl Into<String>,
        problem: Problem,
        detail: impl Into<String>,
    ) {
        self.0.push(Fault::new(pointer, problem, detail));
    }

    /// The value, or nothing and a fault.
    pub(crate) fn keep<T, E: Display>(
        &mut self,
        pointer: &str,
        problem: Problem,
        result: Result<T, E>,
    ) -> Option<T> {
        result
            .map_err(|error| self.add(pointer, problem, error.to_string()))
            .ok()
    }

    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing, or all faults as one failure.
    ///
    /// # Errors
    /// When there is a fault.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.into())
        }
    }
}

impl From<Faults> for Failure {
    fn from(faults: Faults) -> Self {
        Self::faults(faults.0)
    }
}

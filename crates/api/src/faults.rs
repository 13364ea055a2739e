//! Gathering what is wrong with a body, so that a caller learns of all of it at once.

use std::collections::BTreeSet;
use std::fmt::Display;

use posthorn_domain::limits;

use crate::problem::{Failure, Fault, Problem};

/// Faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    told: Vec<Fault>,
    /// Fields of the body that something else stands in for.
    left_out: BTreeSet<String>,
}

impl Faults {
    /// Notes a fault. Of more than [`limits::FAULTS_TOLD`] the first are told: an answer is not as large as whatever it
    /// refuses (INV-11).
    pub(crate) fn add(
        &mut self,
        pointer: impl Into<String>,
        problem: Problem,
        detail: impl Into<String>,
    ) {
        self.note(Fault::new(pointer, problem, detail));
    }

    /// Notes a fault, as [`Self::add`]. What two rules find is told once.
    pub(crate) fn note(&mut self, fault: Fault) {
        let room = self.told.len() < limits::FAULTS_TOLD;
        if room && !self.is_left_out(field(&fault.pointer)) && !self.told.contains(&fault) {
            self.told.push(fault);
        }
    }

    /// Leaves out the fields of the body that are faulty so far: what is found from now on in what stands in for them is not
    /// the caller's fault, and not noted.
    pub(crate) fn leave_out(&mut self) {
        let fields = self
            .told
            .iter()
            .map(|fault| field(&fault.pointer).to_owned());
        self.left_out = fields.collect();
    }

    /// Whether this field of the body, as it stands in a pointer, was left out for its faults.
    pub(crate) fn is_left_out(&self, field: &str) -> bool {
        self.left_out.contains(field)
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
        self.told.is_empty()
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
        Self::faults(faults.told)
    }
}

/// The field of the body that a pointer leads to or into.
fn field(pointer: &str) -> &str {
    pointer.split('/').nth(1).unwrap_or_default()
}

//! Query strings, read strictly: every name is known, stands once, and has a value that it can have.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, Query};
use chrono::{DateTime, Utc};
use http::request::Parts;

use crate::problem::{Failure, Fault, Problem};
use crate::wire::moment;

/// The parameters of a query, taken one by one by name; [`Parameters::finish`] refuses what is left.
///
/// Faults are gathered, so that a caller learns of all of them at once.
#[derive(Debug, Default)]
pub(crate) struct Parameters {
    pairs: Vec<(String, String)>,
    faults: Vec<Fault>,
}

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|_| {
            Failure::with_detail(Problem::ParameterInvalid, "The query cannot be read.")
        })?;
        Ok(Self {
            pairs: pairs.0,
            faults: Vec::new(),
        })
    }
}

impl Parameters {
    /// The value of `name` as text. A name that stands twice is a fault.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        let mut found = None;
        let mut twice = false;
        self.pairs.retain_mut(|(key, value)| {
            if key != name {
                return true;
            }
            twice |= found.replace(std::mem::take(value)).is_some();
            false
        });
        if twice {
            self.fault(
                name,
                Problem::ParameterInvalid,
                format!("{name} may stand once"),
            );
        }
        found
    }

    /// The value of `name` as whatever it should be; `expected` completes "… must be".
    pub(crate) fn parsed<T: FromStr>(&mut self, name: &'static str, expected: &str) -> Option<T> {
        let text = self.text(name)?;
        let value = text.parse().ok();
        if value.is_none() {
            self.fault(
                name,
                Problem::ParameterInvalid,
                format!("{name} must be {expected}"),
            );
        }
        value
    }

    /// As [`Parameters::parsed`], where the list cannot do without it.
    pub(crate) fn needed<T: FromStr>(&mut self, name: &'static str, expected: &str) -> Option<T> {
        if !self.pairs.iter().any(|(key, _)| key == name) {
            self.missing(name, expected);
        }
        self.parsed(name, expected)
    }

    /// Notes that the parameter `name` is not there; `expected` says what it is.
    pub(crate) fn missing(&mut self, name: &str, expected: &str) {
        self.fault(
            name,
            Problem::ParameterMissing,
            format!("{name} is needed: {expected}"),
        );
    }

    /// The value of the parameter `name`, or nothing and a fault.
    pub(crate) fn keep<T, E: Display>(
        &mut self,
        name: &str,
        problem: Problem,
        result: Result<T, E>,
    ) -> Option<T> {
        result
            .map_err(|error| self.fault(name, problem, error.to_string()))
            .ok()
    }

    /// The value of `name` as a moment in RFC 3339, to the microsecond.
    pub(crate) fn time(&mut self, name: &'static str) -> Option<DateTime<Utc>> {
        let text = self.text(name)?;
        let time = moment(&text);
        if time.is_none() {
            self.fault(
                name,
                Problem::ParameterInvalid,
                format!(
                    "{name} must be a time as in 2026-01-31T09:30:00Z, in the years 0 to 9999 of UTC"
                ),
            );
        }
        time
    }

    /// Notes a fault of the parameter `name`.
    pub(crate) fn fault(&mut self, name: &str, problem: Problem, detail: impl Into<String>) {
        self.faults
            .push(Fault::new(format!("?{name}"), problem, detail));
    }

    /// Refuses what nobody took, and says every fault.
    ///
    /// # Errors
    /// One failure with all faults of the query.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        for (name, _) in std::mem::take(&mut self.pairs) {
            // A name is shown as it came, but not without end.
            let shown: String = name.chars().take(64).collect();
            self.fault(
                &shown,
                Problem::ParameterUnknown,
                format!("{shown} is not a parameter of this operation"),
            );
        }
        if self.faults.is_empty() {
            Ok(())
        } else {
            Err(Failure::faults(self.faults))
        }
    }
}

/// The extractor of operations that take no query at all.
#[derive(Debug)]
pub(crate) struct NoQuery;

impl<S: Send + Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        if parts.uri.query().is_some_and(|query| !query.is_empty()) {
            Parameters::from_request_parts(parts, state)
                .await?
                .finish()?;
        }
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Parameters {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Parameters {
            pairs,
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_name_that_nobody_takes_is_refused_and_named() {
        let failure = query(&[("limitt", "5")]).finish().unwrap_err();
        assert_eq!(failure.problem, Problem::ParameterUnknown);
        assert_eq!(failure.faults[0].pointer, "?limitt");
    }

    #[test]
    fn a_name_that_stands_twice_is_refused() {
        let mut query = query(&[("limit", "5"), ("limit", "5")]);
        query.text("limit");
        assert_eq!(
            query.finish().unwrap_err().problem,
            Problem::ParameterInvalid
        );
    }

    #[test]
    fn a_number_with_letters_behind_it_is_refused() {
        let mut query = query(&[("limit", "10abc")]);
        assert_eq!(query.parsed::<u16>("limit", "a number"), None);
        assert!(query.finish().is_err());
    }

    #[test]
    fn a_time_keeps_its_microseconds_and_comes_out_in_utc() {
        let mut query = query(&[("since", "2026-01-31T11:30:00.123456+02:00")]);
        let time = query.time("since").unwrap();
        assert_eq!(time.to_rfc3339(), "2026-01-31T09:30:00.123456+00:00");
    }
}

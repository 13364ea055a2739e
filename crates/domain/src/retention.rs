//! How long things are kept.

use core::num::ParseIntError;

use crate::limits;

/// Whole days, from the fewest to the most that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Days(u16);

/// Why a number of days is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DaysError {
    /// It is no number.
    #[error("must be a number of days")]
    Number(#[from] ParseIntError),
    /// It is too small or too large.
    #[error(
        "must be from {} to {} days",
        limits::RETENTION_DAYS_MIN,
        limits::RETENTION_DAYS_MAX
    )]
    OutOfRange,
}

impl Days {
    /// So many days.
    ///
    /// # Errors
    /// [`DaysError::OutOfRange`].
    pub const fn new(days: u16) -> Result<Self, DaysError> {
        if days < limits::RETENTION_DAYS_MIN || days > limits::RETENTION_DAYS_MAX {
            Err(DaysError::OutOfRange)
        } else {
            Ok(Self(days))
        }
    }

    /// Reads a number of days.
    ///
    /// # Errors
    /// [`DaysError`].
    pub fn parse(text: &str) -> Result<Self, DaysError> {
        Self::new(text.parse()?)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// What an operator decided about keeping. An event that a delivery still needs is kept beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Events with their payloads, and attempts, from the day of accept. The day in which it ends is kept whole.
    pub events: Days,
    /// Dead letters, from when they died.
    pub dead_letters: Days,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            events: Days(limits::RETENTION_EVENTS_DAYS),
            dead_letters: Days(limits::RETENTION_DEAD_LETTERS_DAYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_from_1_to_365_are_taken_and_no_others() {
        for (text, right) in [
            ("1", true),
            ("365", true),
            ("0", false),
            ("366", false),
            ("-1", false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(Days::parse(text).is_ok(), right, "{text}");
        }
    }
}

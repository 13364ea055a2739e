//! Event types and the patterns by which an endpoint asks for them.
//!
//! A type is 1 to 8 parts of `A-Z a-z 0-9 _ -` joined by dots, at most 128 characters, and case counts.
//! A pattern is spelled the same, and a part may be `*` (exactly one part) or, last only, `**` (one or
//! more). A star inside a part is refused, since `inv*` would look as if it meant something.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits;

/// Why a text is neither a type nor a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// There is nothing.
    #[error("an event type has at least one part")]
    Empty,
    /// Over 128 characters.
    #[error("an event type has at most 128 characters")]
    TooLong,
    /// Over 8 parts.
    #[error("an event type has at most 8 parts")]
    TooManyParts,
    /// Two dots in a row, or one at an end.
    #[error("an event type has no empty part: no dot at an end, no two in a row")]
    EmptyPart,
    /// A character other than `A-Z a-z 0-9 _ -` and the dot.
    #[error("an event type is made of A-Z a-z 0-9 _ - and dots")]
    Character,
    /// A star in a type, inside a part, or `**` before the end.
    #[error(
        "a star is a whole part of a pattern: `*` for one part, `**` at the end for one or more"
    )]
    Star,
}

/// The name of an event type, such as `invoice.paid`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Box<str>);

impl EventType {
    /// Takes a text as it is, or says why not.
    ///
    /// # Errors
    ///
    /// [`EventTypeError`] names the first rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, EventTypeError> {
        for part in parts(text)? {
            check_literal(part)?;
        }
        Ok(Self(text.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What an endpoint asks for: a type, or a pattern of types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTypePattern(Box<str>);

impl EventTypePattern {
    /// Takes a text as it is, or says why not.
    ///
    /// # Errors
    ///
    /// [`EventTypeError`] names the first rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, EventTypeError> {
        let mut open_end = false;
        for part in parts(text)? {
            match part {
                _ if open_end => return Err(EventTypeError::Star),
                "*" => {}
                "**" => open_end = true,
                literal => check_literal(literal)?,
            }
        }
        Ok(Self(text.into()))
    }

    /// True when the pattern takes the type. `*` is one part, `**` one or more; case counts.
    #[must_use]
    pub fn matches(&self, event_type: &EventType) -> bool {
        let mut wanted = self.0.split('.');
        let mut given = event_type.0.split('.');
        loop {
            match (wanted.next(), given.next()) {
                (None, None) | (Some("**"), Some(_)) => return true,
                (Some("*"), Some(_)) => {}
                (Some(literal), Some(part)) if literal == part => {}
                _ => return false,
            }
        }
    }

    /// The one type that the pattern stands for, when it has no star.
    #[must_use]
    pub fn is_exact(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&self.0)
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! as_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = EventTypeError;

            fn from_str(text: &str) -> Result<Self, EventTypeError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }
    };
}

as_text!(EventType);
as_text!(EventTypePattern);

/// The parts between the dots, once the bounds of the whole are checked.
fn parts(text: &str) -> Result<core::str::Split<'_, char>, EventTypeError> {
    if text.is_empty() {
        return Err(EventTypeError::Empty);
    }
    if text.len() > limits::EVENT_TYPE_CHARS {
        return Err(EventTypeError::TooLong);
    }
    if text.split('.').count() > limits::EVENT_TYPE_PARTS {
        return Err(EventTypeError::TooManyParts);
    }
    Ok(text.split('.'))
}

fn check_literal(part: &str) -> Result<(), EventTypeError> {
    if part.is_empty() {
        return Err(EventTypeError::EmptyPart);
    }
    if part.contains('*') {
        return Err(EventTypeError::Star);
    }
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if part.bytes().all(known) {
        Ok(())
    } else {
        Err(EventTypeError::Character)
    }
}

#[cfg(test)]
mod tests;

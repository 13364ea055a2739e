//! A sender's own name for an event, an endpoint or an application.

use crate::id::Prefix;
use crate::limits;

/// A text that is no uid. The text is not kept: it came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a uid has 1 to 128 of A-Z a-z 0-9 . _ : - and does not begin like an id of ours")]
pub struct UidError;

/// 1 to 128 of `A-Z a-z 0-9 . _ : -`, which do not begin like an id of ours: an id and a uid cannot be taken for
/// each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uid(String);

impl Uid {
    /// Takes a text for a uid.
    ///
    /// # Errors
    /// [`UidError`] when it is none.
    pub fn parse(text: &str) -> Result<Self, UidError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        let formed = (1..=limits::UID_CHARS).contains(&text.len()) && text.bytes().all(known);
        if formed && !Prefix::begins(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(UidError)
        }
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_taken_as_it_stands() {
        let longest = "x".repeat(limits::UID_CHARS);
        for text in [
            "a",
            "order-7:2026.01_B",
            "evt",
            "evt-1",
            "uid:a",
            longest.as_str(),
        ] {
            assert_eq!(Uid::parse(text).map(String::from), Ok(text.to_owned()));
        }
    }

    #[test]
    fn a_text_that_is_empty_too_long_foreign_or_like_an_id_is_no_uid() {
        let long = "x".repeat(limits::UID_CHARS + 1);
        for text in [
            "", "a b", "a/b", "ä", "a\n", "\0", "evt_1", "ep_x", "ten_", &long,
        ] {
            assert_eq!(Uid::parse(text), Err(UidError), "{text}");
        }
    }
}

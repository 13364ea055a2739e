//! What makes two requests the same one: the key that the sender gave, and the hash of the body.
//!
//! A key is a structured string of RFC 8941 (`"8e03978e-40d5"`), as the header's draft has it, or the same characters
//! without quotes, as most clients send it: both are the same key.

use aws_lc_rs::digest;

use crate::limits;

/// Why a header is no key. The text is not kept: it came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyKeyError {
    /// No character, or more than 255.
    #[error("an idempotency key has 1 to 255 characters")]
    Length,
    /// A character that is not printable ASCII.
    #[error("an idempotency key has printable ASCII characters only")]
    Character,
    /// A quoted string that does not end, ends early, or escapes what needs none.
    #[error("an idempotency key in quotes is a string as in RFC 8941, with nothing after it")]
    Quotes,
}

/// A sender's key for a request: 1 to 255 printable ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// Reads the value of the header `Idempotency-Key`, bare or quoted.
    ///
    /// # Errors
    /// [`IdempotencyKeyError`] names the rule that it breaks.
    pub fn parse(value: &[u8]) -> Result<Self, IdempotencyKeyError> {
        let value = value.trim_ascii();
        if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(IdempotencyKeyError::Character);
        }
        let key: String = match value.split_first() {
            Some((b'"', rest)) => unquoted(rest).ok_or(IdempotencyKeyError::Quotes)?,
            _ => value.iter().copied().map(char::from).collect(),
        };
        if (1..=limits::IDEMPOTENCY_KEY_CHARS).contains(&key.len()) {
            Ok(Self(key))
        } else {
            Err(IdempotencyKeyError::Length)
        }
    }

    /// The key, without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What stands before the closing quote, which is the last character (RFC 8941, section 4.2.5).
fn unquoted(rest: &[u8]) -> Option<String> {
    let mut key = String::new();
    let mut bytes = rest.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return bytes.next().is_none().then_some(key),
            b'\\' => match bytes.next()? {
                escaped @ (b'"' | b'\\') => key.push(char::from(escaped)),
                _ => return None,
            },
            _ => key.push(char::from(byte)),
        }
    }
    None
}

/// What a request is told apart by: the same key with another body is another request. SHA-256 of the body, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyHash([u8; 32]);

impl BodyHash {
    /// The hash of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        Self::finished(digest::digest(&digest::SHA256, body))
    }

    /// The hash of a request that says in other places than its body, too, what it is about. Each part goes in behind its
    /// length (8 bytes, the highest first), so no two lists of parts read the same.
    #[must_use]
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self::finished(context.finish())
    }

    fn finished(hash: digest::Digest) -> Self {
        Self(hash.as_ref().try_into().unwrap_or_default())
    }

    /// Its 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Result<String, IdempotencyKeyError> {
        IdempotencyKey::parse(value.as_bytes()).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn a_key_is_the_same_with_quotes_and_without() {
        for (value, key) in [
            ("8e03978e-40d5", "8e03978e-40d5"),
            ("\"8e03978e-40d5\"", "8e03978e-40d5"),
            (" order 7/paid ", "order 7/paid"),
            (r#""a \"b\" \\""#, r#"a "b" \"#),
            (r#"a"b\"#, r#"a"b\"#),
        ] {
            assert_eq!(read(value).as_deref(), Ok(key));
        }
    }

    #[test]
    fn a_key_has_1_to_255_characters_beside_its_quotes() {
        let longest = "k".repeat(255);
        assert_eq!(read(&longest).as_ref(), Ok(&longest));
        assert_eq!(read(&format!("\"{longest}\"")).as_ref(), Ok(&longest));
        for value in ["", "  ", "\"\"", &"k".repeat(256)] {
            assert_eq!(read(value), Err(IdempotencyKeyError::Length), "{value}");
        }
    }

    #[test]
    fn characters_that_do_not_print_or_are_not_ascii_are_refused() {
        for value in ["ü", "a\tb", "\u{7f}", "a\0"] {
            assert_eq!(read(value), Err(IdempotencyKeyError::Character), "{value}");
        }
    }

    #[test]
    fn a_string_that_is_not_well_quoted_is_refused() {
        for value in [
            r#"""#,
            r#""a"#,
            r#""a"b"#,
            r#""a";p=1"#,
            r#""a\"#,
            r#""a\b""#,
        ] {
            assert_eq!(read(value), Err(IdempotencyKeyError::Quotes), "{value}");
        }
    }

    #[test]
    fn one_other_byte_is_another_hash() {
        assert_ne!(BodyHash::of(b"{}"), BodyHash::of(b"{} "));
        assert_eq!(BodyHash::of(b"").as_bytes()[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    }

    #[test]
    fn parts_that_join_to_the_same_bytes_are_another_hash() {
        let [whole, shifted, more, fewer] = [
            BodyHash::of_parts(&[b"ab", b"c"]),
            BodyHash::of_parts(&[b"a", b"bc"]),
            BodyHash::of_parts(&[b"ab", b"c", b""]),
            BodyHash::of_parts(&[b"abc"]),
        ];
        assert_eq!(whole, BodyHash::of_parts(&[b"ab", b"c"]));
        for other in [shifted, more, fewer, BodyHash::of(b"abc")] {
            assert_ne!(whole, other);
        }
    }
}

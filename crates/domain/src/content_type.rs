//! What a payload says that it is: its media type, sent to receivers as it was given (RFC 9110, 8.3).
//!
//! Nearly every payload is JSON and says so in the same words, so [`ContentType::JSON`] takes no memory of its own, and no
//! room in the log ([`ContentType::unusual`]).

use core::fmt;
use std::borrow::Cow;

use crate::limits;

/// The types that a payload may have, beside those that end in one of [`SUFFIXES`].
pub const TYPES: [&str; 8] = [
    "application/json",
    "application/octet-stream",
    "application/x-ndjson",
    "application/x-www-form-urlencoded",
    "application/xml",
    "text/csv",
    "text/plain",
    "text/xml",
];

/// Ends of a type that say what its syntax is (RFC 6839), such as that of `application/cloudevents+json`.
pub const SUFFIXES: [&str; 2] = ["+json", "+xml"];

/// Why a text is not the type of a payload. The text is not kept: it came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentTypeError {
    /// More than 255 bytes.
    #[error("a content type has at most 255 bytes")]
    TooLong,
    /// Not a media type.
    #[error("a content type is a media type as in `text/csv; charset=utf-8`")]
    Syntax,
    /// A media type that is not among [`TYPES`].
    #[error("a payload of this type is sent as application/octet-stream")]
    Unknown,
    /// JSON that says to be in another encoding than UTF-8, which JSON has not (RFC 8259, 8.1).
    #[error("JSON is in UTF-8")]
    Charset,
}

/// A media type with its parameters, byte for byte as it was given.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentType {
    text: Cow<'static, str>,
    is_json: bool,
}

impl ContentType {
    /// `application/json`, without parameters.
    pub const JSON: Self = Self {
        text: Cow::Borrowed("application/json"),
        is_json: true,
    };

    /// Reads the value of a header `Content-Type`.
    ///
    /// # Errors
    /// [`ContentTypeError`] names the rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, ContentTypeError> {
        if text.len() > limits::CONTENT_TYPE_BYTES {
            return Err(ContentTypeError::TooLong);
        }
        let (essence, charset) = parts(text).ok_or(ContentTypeError::Syntax)?;
        let listed = TYPES.iter().any(|one| essence.eq_ignore_ascii_case(one));
        if !listed && !SUFFIXES.iter().any(|suffix| ends_in(essence, suffix)) {
            return Err(ContentTypeError::Unknown);
        }
        let utf_8 = charset.is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"));
        if is_json(essence) && !utf_8 {
            return Err(ContentTypeError::Charset);
        }
        Ok(Self::kept(text.to_owned()))
    }

    /// A type as it was kept. It was read when it came, maybe by a later version, which takes more of them.
    #[must_use]
    pub fn kept(text: String) -> Self {
        if text == Self::JSON.text {
            return Self::JSON;
        }
        let essence = text.split(';').next().unwrap_or_default().trim();
        Self {
            is_json: is_json(essence),
            text: Cow::Owned(text),
        }
    }

    /// The text, as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text, where it is any other than that of [`ContentType::JSON`].
    #[must_use]
    pub fn unusual(&self) -> Option<&str> {
        matches!(self.text, Cow::Owned(_)).then_some(&*self.text)
    }

    /// Whether a payload of this type is one JSON value: it was looked at when it came.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        self.is_json
    }
}

impl fmt::Debug for ContentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

fn is_json(essence: &str) -> bool {
    essence.eq_ignore_ascii_case("application/json") || ends_in(essence, "+json")
}

/// Whether a type ends so, with something before it.
fn ends_in(essence: &str, suffix: &str) -> bool {
    let subtype = essence.split_once('/').map_or("", |(_, subtype)| subtype);
    let end = subtype.len().checked_sub(suffix.len());
    end.filter(|end| *end > 0)
        .and_then(|end| subtype.get(end..))
        .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

/// The type itself and its charset, if it has one; `None` for what is no media type, or has two charsets.
fn parts(text: &str) -> Option<(&str, Option<&str>)> {
    let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
    let (essence, mut rest) = text.split_at(end);
    let (kind, subtype) = essence.split_once('/')?;
    if !is_token(kind) || !is_token(subtype) {
        return None;
    }
    let mut charset = None;
    loop {
        rest = rest.trim_start_matches(SPACE);
        if rest.is_empty() {
            return Some((essence, charset));
        }
        rest = rest.strip_prefix(';')?.trim_start_matches(SPACE);
        // `a/b;` and `a/b;;c=d` are media types, too.
        if rest.is_empty() || rest.starts_with(';') {
            continue;
        }
        let (name, after) = rest.split_once('=')?;
        let (given, left) = value(after)?;
        if !is_token(name) {
            return None;
        }
        if name.eq_ignore_ascii_case("charset") && charset.replace(given).is_some() {
            return None;
        }
        rest = left;
    }
}

const SPACE: [char; 2] = [' ', '\t'];

/// The value of a parameter, and what follows it.
fn value(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return is_token(value).then_some((value, rest));
    };
    let mut escaped = false;
    for (at, byte) in quoted.bytes().enumerate() {
        match byte {
            _ if !matches!(byte, b'\t' | b' '..=b'~') => return None,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some((quoted.get(..at)?, quoted.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests;

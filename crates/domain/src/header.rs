//! Custom headers: what a tenant adds to its requests, and what it may not.
//!
//! A name is a token of RFC 9110, kept in lower case; a value is visible ASCII with spaces or tabs inside.
//! Refused are the headers that Posthorn sends itself, those that belong to the connection, and the same
//! name twice in whatever case. Values may be credentials: they are in no `Debug` and no error.

use core::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits;

/// Which rule a header breaks. Names are kept (shortened), values are not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// More headers than allowed.
    #[error("at most {0} headers")]
    TooMany(usize),
    /// The name is not a token.
    #[error("the name of a header is made of letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// Posthorn sends this one itself, or it belongs to the connection.
    #[error("the header {0} is not for you to set")]
    Reserved(String),
    /// The name is there twice.
    #[error("the header {0} is there twice")]
    Twice(String),
    /// The value has a character outside visible ASCII, or a space at an end.
    #[error("the value of the header {0} is not visible ASCII, or has white space at an end")]
    Value(String),
    /// Name and value are over 4 KiB together.
    #[error("the header {0} is over 4096 bytes")]
    TooLong(String),
}

/// What is wrong with some headers: every fault, never none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadersError(Vec<HeaderFault>);

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFault {
    /// The header, spelled as it was given; none where there are too many.
    pub name: Option<String>,
    /// The rule that it breaks.
    pub error: HeaderError,
}

impl HeadersError {
    /// Nothing, or the faults there are.
    ///
    /// # Errors
    ///
    /// When there is one.
    pub(crate) fn of(faults: Vec<HeaderFault>) -> Result<(), Self> {
        if faults.is_empty() {
            Ok(())
        } else {
            Err(Self(faults))
        }
    }

    /// Each fault, in the order of the headers.
    #[must_use]
    pub fn faults(&self) -> &[HeaderFault] {
        &self.0
    }
}

impl fmt::Display for HeadersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { "; " };
            write!(f, "{gap}{}", fault.error)?;
        }
        Ok(())
    }
}

impl core::error::Error for HeadersError {}

/// Headers that are sent as given.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(Vec<(String, String)>);

/// What Posthorn sends itself or leaves out on purpose, and what belongs to the connection (RFC 9110, 7.6.1).
const RESERVED: &[&str] = &[
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// Ours by prefix: the signature's headers, and those that we may come to send.
const RESERVED_PREFIXES: &[&str] = &["webhook-", "posthorn-"];

impl CustomHeaders {
    /// Takes the headers of an endpoint: at most 20.
    ///
    /// # Errors
    ///
    /// [`HeadersError`] names each header that is refused, and the rule.
    pub fn parse<N: AsRef<str>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, HeadersError> {
        Self::parse_at_most(limits::ENDPOINT_HEADERS, pairs)
    }

    /// Takes the headers of an event: at most 10.
    ///
    /// # Errors
    ///
    /// [`HeadersError`] names each header that is refused, and the rule.
    pub fn parse_for_event<N: AsRef<str>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, HeadersError> {
        Self::parse_at_most(limits::EVENT_HEADERS, pairs)
    }

    /// The names, in lower case and in the order given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    /// Names and values. Values may be credentials.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of a header, by its name in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find_map(|(own, value)| (own == name).then_some(value))
    }

    /// Whether one of them has this name, as a receiver may read it: in whatever case, and with `_` for `-`.
    #[must_use]
    pub fn have_alike(&self, name: &str) -> bool {
        self.names().any(|own| alike(own, name))
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn parse_at_most<N: AsRef<str>, V: Into<String>>(
        most: usize,
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, HeadersError> {
        let mut headers: Vec<(String, String)> = Vec::new();
        let mut faults = Vec::new();
        for (at, (given, value)) in pairs.into_iter().enumerate() {
            // Of headers over the limit none is looked at, so that there are not more faults than headers may be.
            if at == most {
                let error = HeaderError::TooMany(most);
                faults.push(HeaderFault { name: None, error });
                break;
            }
            let checked = check(given.as_ref(), value.into()).and_then(|(name, value)| {
                if headers.iter().any(|(other, _)| *other == name) {
                    Err(HeaderError::Twice(shown(&name)))
                } else {
                    Ok((name, value))
                }
            });
            match checked {
                Ok(header) => headers.push(header),
                Err(error) => faults.push(HeaderFault {
                    name: Some(given.as_ref().to_owned()),
                    error,
                }),
            }
        }
        HeadersError::of(faults).map(|()| Self(headers))
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// As a JSON object of strings: for sealing (an endpoint's) and for keeping (an event's).
impl Serialize for CustomHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// From a JSON object of strings; a name that is there twice is refused.
impl<'de> Deserialize<'de> for CustomHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = deserializer.deserialize_map(PairsVisitor)?;
        Self::parse(pairs).map_err(serde::de::Error::custom)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            // One over the limit is enough to be refused.
            if pairs.len() <= limits::ENDPOINT_HEADERS {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}

/// The name of a header that is not ours or the connection's, in lower case.
pub(crate) fn header_name(name: &str) -> Result<String, HeaderError> {
    if name.is_empty() || name.len() > limits::HEADER_BYTES || !name.bytes().all(is_token) {
        return Err(HeaderError::Name);
    }
    let name = name.to_ascii_lowercase();
    if is_reserved(&name) {
        return Err(HeaderError::Reserved(shown(&name)));
    }
    Ok(name)
}

fn check(name: &str, value: String) -> Result<(String, String), HeaderError> {
    let name = header_name(name)?;
    if name.len() + value.len() > limits::HEADER_BYTES {
        return Err(HeaderError::TooLong(shown(&name)));
    }
    let inside = |b: u8| matches!(b, b' '..=b'~' | b'\t');
    if !value.bytes().all(inside) || value.trim_matches([' ', '\t']).len() != value.len() {
        return Err(HeaderError::Value(shown(&name)));
    }
    Ok((name, value))
}

/// A name as errors tell it.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Many servers hand headers to programs as variables in which `-` and `_` are one (RFC 3875, 4.1.18): a name of ours is
/// reserved in both spellings.
fn is_reserved(name: &str) -> bool {
    let name = name.replace('_', "-");
    RESERVED.contains(&name.as_str())
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Whether two names are one to a receiver: case does not count, and `-` and `_` are the same to some.
#[must_use]
pub fn alike(one: &str, other: &str) -> bool {
    let plain = |byte: u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    one.bytes().map(plain).eq(other.bytes().map(plain))
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

#[cfg(test)]
mod tests;

//! A request as it came over the wire.

use std::time::Instant;

use bytes::Bytes;

/// One request, byte for byte.
#[derive(Clone, Debug)]
pub struct Received {
    /// Which connection it came on: 1 for the first that was accepted.
    pub connection: usize,
    /// Such as `POST /hook?x=1 HTTP/1.1`.
    pub request_line: String,
    /// Names as they were written, and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body; a chunked one put together.
    pub body: Bytes,
    /// When its last byte had come.
    pub arrived: Instant,
}

impl Received {
    /// The request target, such as `/hook?x=1`.
    #[must_use]
    pub fn target(&self) -> &str {
        self.request_line.split(' ').nth(1).unwrap_or_default()
    }

    /// The target without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// The first value of a header, in whatever case it was written.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(written, _)| written.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a header.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(written, _)| written.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The names of all headers in order, in lower case.
    #[must_use]
    pub fn header_names(&self) -> Vec<String> {
        self.headers
            .iter()
            .map(|(name, _)| name.to_ascii_lowercase())
            .collect()
    }
}

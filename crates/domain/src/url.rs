//! The URL of an endpoint: `http` or `https`, one spelling of the host, path and query exactly as given.
//!
//! The host is made canonical once (lower case, IDNA by UTS 46, no trailing dot, IPv4 in any spelling to
//! dotted decimal), so that the check, DNS, SNI and the `Host` header all see the same one. Path and query
//! reach the wire byte for byte; a URL that the client would rewrite (dot segments, characters that need
//! percent-encoding) is refused instead, as are user and password, fragments, zone ids, port 0, and the
//! spellings that browsers forgive.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits;

/// Why a text is not the URL of an endpoint. The text is not kept: a URL may be a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Over 2048 bytes.
    #[error("a URL has at most 2048 bytes")]
    TooLong,
    /// It does not begin with `http://` or `https://`.
    #[error("a URL begins with http:// or https://")]
    Scheme,
    /// White space, a control character or a backslash anywhere.
    #[error("a URL has no white space, control character or backslash")]
    Character,
    /// User or password before the host.
    #[error("a URL has no user or password; use a custom header")]
    Userinfo,
    /// A `#`.
    #[error("a URL has no fragment: it would never be sent")]
    Fragment,
    /// No host, or one that is neither a name nor an address.
    #[error("the host of the URL is neither a name nor an address")]
    Host,
    /// An IPv6 zone id.
    #[error("an IPv6 address in a URL has no zone id")]
    ZoneId,
    /// Port 0, or none of 1 to 65535.
    #[error("the port of a URL is 1 to 65535")]
    Port,
    /// A path or query that would not be sent as it is written.
    #[error(
        "path and query are sent as written: percent-encode what needs it, and use no . or .. segments"
    )]
    Rewritten,
}

/// A URL that attempts are sent to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EndpointUrl {
    text: Box<str>,
    host: Host,
    scheme: Scheme,
    port: u16,
}

/// How it is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// A canonical host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name in ASCII, lower case, without a trailing dot.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

impl EndpointUrl {
    /// Takes a URL, or says why not.
    ///
    /// # Errors
    ///
    /// [`UrlError`] names the first rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > limits::URL_BYTES {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) = split_scheme(text)?;
        if rest.bytes().any(|b| b <= b' ' || b == 0x7f || b == b'\\') {
            return Err(UrlError::Character);
        }
        if rest.contains('#') {
            return Err(UrlError::Fragment);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        check_authority(authority)?;
        let parsed = url::Url::parse(text).map_err(|error| match error {
            url::ParseError::InvalidPort => UrlError::Port,
            _ => UrlError::Host,
        })?;
        check_target(&parsed, target)?;
        let host = canonical_host(&parsed)?;
        let port = parsed
            .port_or_known_default()
            .filter(|&port| port != 0)
            .ok_or(UrlError::Port)?;
        let url = Self {
            text: spell(scheme, &host, parsed.port(), target),
            host,
            scheme,
            port,
        };
        if url.text.len() > limits::URL_BYTES {
            Err(UrlError::TooLong)
        } else {
            Ok(url)
        }
    }

    /// The canonical text: what is stored, shown and sent to.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `http` or `https`.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The canonical host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The port, given or by scheme.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Scheme {
    /// `http` or `https`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
        }
    }
}

impl FromStr for EndpointUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        Self::parse(text)
    }
}

impl Serialize for EndpointUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for EndpointUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Brings the name of a host into the one spelling that everything uses: lower case, ASCII, no trailing dot.
///
/// `None` when it is no name: empty, over 253 characters, with a label that is empty or over 63, or with a
/// character that no resolver takes (beside letters, digits and hyphens only `_`, which people use at home).
#[must_use]
pub fn canonical_name(name: &str) -> Option<String> {
    let ascii = idna::domain_to_ascii_cow(name.as_bytes(), idna::AsciiDenyList::URL).ok()?;
    let ascii = ascii.strip_suffix('.').unwrap_or(&ascii);
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(known);
    (ascii.len() <= 253 && ascii.split('.').all(is_label)).then(|| ascii.to_owned())
}

/// Whether a canonical name is loopback by definition (RFC 6761, 6.3).
#[must_use]
pub fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Splits after `://`. The URL parser would also take `http:/host` and `http:host`.
fn split_scheme(text: &str) -> Result<(Scheme, &str), UrlError> {
    let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
    if scheme.eq_ignore_ascii_case("https") {
        Ok((Scheme::Https, rest))
    } else if scheme.eq_ignore_ascii_case("http") {
        Ok((Scheme::Http, rest))
    } else {
        Err(UrlError::Scheme)
    }
}

/// Refuses what the URL parser would forgive or decode.
fn check_authority(authority: &str) -> Result<(), UrlError> {
    if authority.contains('@') {
        return Err(UrlError::Userinfo);
    }
    if authority.contains('%') {
        return Err(if authority.starts_with('[') {
            UrlError::ZoneId
        } else {
            UrlError::Host
        });
    }
    if authority.is_empty() || authority.starts_with(':') {
        Err(UrlError::Host)
    } else {
        Ok(())
    }
}

/// Path and query must come out of the parser as they went in; only an empty path becomes `/`.
fn check_target(parsed: &url::Url, target: &str) -> Result<(), UrlError> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let path = if path.is_empty() { "/" } else { path };
    if parsed.path() == path && parsed.query() == query {
        Ok(())
    } else {
        Err(UrlError::Rewritten)
    }
}

fn canonical_host(parsed: &url::Url) -> Result<Host, UrlError> {
    match parsed.host().ok_or(UrlError::Host)? {
        url::Host::Ipv4(ip) => Ok(Host::Ip(ip.into())),
        url::Host::Ipv6(ip) => Ok(Host::Ip(ip.into())),
        url::Host::Domain(name) => canonical_name(name).map(Host::Name).ok_or(UrlError::Host),
    }
}

fn spell(scheme: Scheme, host: &Host, port: Option<u16>, target: &str) -> Box<str> {
    let slash = if target.starts_with('/') { "" } else { "/" };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{slash}{target}", scheme.as_str()).into()
}

#[cfg(test)]
mod tests;

//! What an operator allows beyond the closed policy: `POSTHORN_EGRESS_ALLOW`.
//!
//! A comma list of `10.0.0.0/8`, `10.0.0.0/8:8080`, `10.1.2.3`, `10.1.2.3:8080`, `fd00::/8`,
//! `[fd00::/8]:8080`, `[::1]:8080`, `name` and `name:port`. A name allows whatever it resolves to, an
//! address or range what is in it. Metadata services, link-local, unspecified, multicast and broadcast
//! addresses are allowed by their own address alone, never by a range or a name. The server's own places
//! ([`OwnPlaces`]) are never allowed.

use core::net::IpAddr;

use ipnet::IpNet;

use super::{Forbidden, NotHttps, OwnPlaces, RefusedTarget, judge};
use crate::url::{EndpointUrl, Host, Scheme, canonical_name};

/// Entries of a list; more are a mistake.
const ENTRIES: usize = 256;

/// Which entry of the list is wrong, counted from 1, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EgressAllowError {
    /// Over 256 entries.
    #[error("the list of allowed targets has over 256 entries")]
    TooMany,
    /// Neither an address, a range nor a name.
    #[error("entry {0} of the allowed targets is neither an address, a range nor a name")]
    Target(usize),
    /// A port that is not 1 to 65535.
    #[error("entry {0} of the allowed targets has a port that is not 1 to 65535")]
    Port(usize),
    /// A range with bits set below its prefix.
    #[error("entry {0} of the allowed targets has bits set below its prefix: did you mean {1}?")]
    HostBits(usize, IpNet),
    /// A range of IPv4-mapped addresses.
    #[error("entry {0} of the allowed targets is an IPv4-mapped range: write the IPv4 range")]
    Mapped(usize),
}

/// Which targets attempts may go to. The default is the closed policy.
#[derive(Debug, Clone, Default)]
pub struct EgressPolicy {
    allowed: Vec<Entry>,
    own: OwnPlaces,
    https_only: bool,
}

#[derive(Debug, Clone)]
struct Entry {
    target: Target,
    port: Option<u16>,
}

#[derive(Debug, Clone)]
enum Target {
    Net(IpNet),
    Name(String),
}

impl EgressPolicy {
    /// Reads the list; an empty one is the closed policy.
    ///
    /// # Errors
    ///
    /// [`EgressAllowError`] names the entry and what is wrong with it.
    pub fn parse(allow: &str) -> Result<Self, EgressAllowError> {
        let mut allowed = Vec::new();
        if !allow.trim().is_empty() {
            for (place, entry) in allow.split(',').enumerate() {
                if place == ENTRIES {
                    return Err(EgressAllowError::TooMany);
                }
                allowed.push(Entry::parse(place + 1, entry.trim())?);
            }
        }
        Ok(Self {
            allowed,
            ..Self::default()
        })
    }

    /// Refuses these places of the server itself, whatever the list allows.
    #[must_use]
    pub fn with_own(mut self, own: OwnPlaces) -> Self {
        self.own = own;
        self
    }

    /// Refuses URLs without TLS, if so.
    #[must_use]
    pub fn https_only(mut self, wanted: bool) -> Self {
        self.https_only = wanted;
        self
    }

    /// Judges the scheme of a URL, when it is set and again when it is sent to.
    ///
    /// # Errors
    ///
    /// [`NotHttps`] where the operator wants https alone.
    pub fn allows_scheme(&self, scheme: Scheme) -> Result<(), NotHttps> {
        if self.https_only && scheme == Scheme::Http {
            Err(NotHttps)
        } else {
            Ok(())
        }
    }

    /// The places of the server itself.
    #[must_use]
    pub const fn own(&self) -> &OwnPlaces {
        &self.own
    }

    /// Judges the target of a connection: the canonical name that led to it, if any, its address and port.
    ///
    /// # Errors
    ///
    /// [`RefusedTarget`], in the same words whatever refuses it.
    pub fn allows(&self, host: Option<&str>, ip: IpAddr, port: u16) -> Result<(), RefusedTarget> {
        self.judge(host, ip, port).map_err(RefusedTarget)
    }

    /// Judges a URL when it is set, as far as that goes without asking for its name.
    ///
    /// # Errors
    ///
    /// As [`EgressPolicy::allows`].
    pub fn allows_url(&self, url: &EndpointUrl) -> Result<(), RefusedTarget> {
        match url.host() {
            Host::Ip(ip) => self.allows(None, *ip, url.port()),
            Host::Name(name) => {
                let forbidden = self.own.refuses_name(name, url.port());
                forbidden.map_or(Ok(()), |why| Err(RefusedTarget(why)))
            }
        }
    }

    fn judge(&self, host: Option<&str>, ip: IpAddr, port: u16) -> Result<(), Forbidden> {
        let ip = ip.to_canonical();
        let by_name = host.and_then(|name| self.own.refuses_name(name, port));
        if let Some(forbidden) = by_name.or_else(|| self.own.refuses(ip, port)) {
            return Err(forbidden);
        }
        let Err(forbidden) = judge(ip) else {
            return Ok(());
        };
        if self
            .allowed
            .iter()
            .any(|entry| entry.allows(forbidden, host, ip, port))
        {
            Ok(())
        } else {
            Err(forbidden)
        }
    }
}

impl Entry {
    fn parse(place: usize, text: &str) -> Result<Self, EgressAllowError> {
        let (target, port) = split_port(text);
        let port = port.map(|port| parse_port(place, port)).transpose()?;
        Ok(Self {
            target: Target::parse(place, target)?,
            port,
        })
    }

    fn allows(&self, forbidden: Forbidden, host: Option<&str>, ip: IpAddr, port: u16) -> bool {
        if self.port.is_some_and(|own| own != port) {
            return false;
        }
        match &self.target {
            Target::Net(net) if forbidden.needs_exact_name() => {
                net.prefix_len() == net.max_prefix_len() && net.addr() == ip
            }
            Target::Net(net) => net.contains(&ip),
            Target::Name(name) => !forbidden.needs_exact_name() && host == Some(name),
        }
    }
}

impl Target {
    fn parse(place: usize, text: &str) -> Result<Self, EgressAllowError> {
        let net = match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
            (Ok(net), _) => net,
            (_, Ok(ip)) => IpNet::from(ip.to_canonical()),
            _ => return Self::name(text).ok_or(EgressAllowError::Target(place)),
        };
        match net {
            IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
                Err(EgressAllowError::Mapped(place))
            }
            net if net.addr() != net.network() => {
                Err(EgressAllowError::HostBits(place, net.trunc()))
            }
            net => Ok(Self::Net(net)),
        }
    }

    fn name(text: &str) -> Option<Self> {
        // What ends in a number is a mistyped address, not a name.
        let name = canonical_name(text)?;
        let last = name.rsplit('.').next()?;
        (!last.bytes().all(|b| b.is_ascii_digit())).then_some(Self::Name(name))
    }
}

/// Cuts a port off: after a bracket, or after the only colon.
fn split_port(text: &str) -> (&str, Option<&str>) {
    if let Some((inside, after)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match after.strip_prefix(':') {
            Some(port) => (inside, Some(port)),
            None if after.is_empty() => (inside, None),
            None => (text, None),
        };
    }
    match text.split_once(':') {
        Some((target, port)) if !port.contains(':') => (target, Some(port)),
        _ => (text, None),
    }
}

fn parse_port(place: usize, text: &str) -> Result<u16, EgressAllowError> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse()
        .ok()
        .filter(|&port: &u16| digits && port != 0)
        .ok_or(EgressAllowError::Port(place))
}

#[cfg(test)]
mod tests;

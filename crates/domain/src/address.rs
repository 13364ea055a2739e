//! Which addresses an attempt may go to (INV-8).
//!
//! [`judge`] is the closed policy: only addresses that are globally reachable, by the special-purpose
//! registries of IANA, and no metadata service of a cloud. An IPv6 address that carries an IPv4 address is
//! judged by what it carries, or refused. [`EgressPolicy`] adds what an operator allows by name.
//! <https://www.iana.org/assignments/iana-ipv4-special-registry> and `…/iana-ipv6-special-registry`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod own;
mod policy;

pub use own::{OwnPlaces, Place};
pub use policy::{EgressAllowError, EgressPolicy};

/// A target that may not be sent to.
///
/// It says the same whatever the reason: whoever may set a URL would learn from more what this server's network
/// resolves and where it lies. The reason is for the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error(
    "this server may not send to this host: its addresses must be public, or allowed by the server's operator"
)]
pub struct RefusedTarget(Forbidden);

/// A URL in the clear, where the operator wants TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this server sends to https URLs alone, as its operator has set")]
pub struct NotHttps;

impl From<Forbidden> for RefusedTarget {
    fn from(why: Forbidden) -> Self {
        Self(why)
    }
}

impl RefusedTarget {
    /// Why, for the operator's log and for nobody else.
    #[must_use]
    pub const fn why(self) -> Forbidden {
        self.0
    }
}

/// Why an address is refused: the range that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Forbidden {
    /// `0.0.0.0/8` and `::`: on many systems the host itself.
    #[error("the unspecified address and this network")]
    Unspecified,
    /// `127.0.0.0/8` and `::1`.
    #[error("a loopback address")]
    Loopback,
    /// `10/8`, `172.16/12`, `192.168/16`, `fc00::/7`, `fec0::/10`.
    #[error("a private address")]
    Private,
    /// `100.64.0.0/10`.
    #[error("an address shared by the customers of a carrier")]
    Shared,
    /// `169.254.0.0/16` and `fe80::/10`.
    #[error("a link-local address")]
    LinkLocal,
    /// The metadata service of a cloud, whatever range it is in.
    #[error("the metadata service of a cloud")]
    Metadata,
    /// `192.0.2/24`, `198.51.100/24`, `203.0.113/24`, `2001:db8::/32`, `3fff::/20`.
    #[error("an address for documentation")]
    Documentation,
    /// `198.18.0.0/15`.
    #[error("an address for benchmarks")]
    Benchmarking,
    /// `224.0.0.0/4` and `ff00::/8`.
    #[error("a multicast address")]
    Multicast,
    /// `255.255.255.255`.
    #[error("the broadcast address")]
    Broadcast,
    /// `192.0.0.0/24`, `240.0.0.0/4`, `2001::/23`, and all of IPv6 that is not given out.
    #[error("a reserved address")]
    Reserved,
    /// 6to4, Teredo, ISATAP, IPv4-compatible, SIIT, local NAT64: it leads to an IPv4 address that is not judged.
    #[error("an address that carries another")]
    Transition,
    /// One of this server's own listeners.
    #[error("a listener of this server")]
    OwnListener,
    /// The database of this server.
    #[error("the database of this server")]
    OwnDatabase,
    /// The address that people and programs reach this server by.
    #[error("the public address of this server")]
    OwnAddress,
}

impl Forbidden {
    /// True for what no wider range can allow: it has to be named exactly.
    const fn needs_exact_name(self) -> bool {
        matches!(
            self,
            Self::Metadata
                | Self::LinkLocal
                | Self::Unspecified
                | Self::Multicast
                | Self::Broadcast
        )
    }
}

/// Judges one address by the closed policy.
///
/// # Errors
///
/// [`Forbidden`] names the range that refuses it.
pub fn judge(ip: IpAddr) -> Result<(), Forbidden> {
    let verdict = match ip {
        IpAddr::V4(ip) => forbidden_v4(ip),
        IpAddr::V6(ip) => forbidden_v6(ip),
    };
    verdict.map_or(Ok(()), Err)
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

/// Metadata services outside link-local, or of link-local but worth their own name.
const METADATA_V4: &[Ipv4Addr] = &[
    v4(169, 254, 169, 254), // AWS, Azure, Google and most others
    v4(169, 254, 170, 2),   // AWS: credentials of containers
    v4(169, 254, 170, 23),  // AWS: credentials of pods
    v4(169, 254, 0, 23),    // Tencent
    v4(169, 254, 42, 42),   // Scaleway
    v4(100, 100, 100, 200), // Alibaba
    v4(192, 0, 0, 192),     // Oracle
    v4(168, 63, 129, 16),   // Azure: the platform's own channel, on a public address
];

const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // AWS
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // AWS: credentials of pods
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // Google
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),   // Scaleway
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe), // OpenStack
];

fn forbidden_v4(ip: Ipv4Addr) -> Option<Forbidden> {
    if METADATA_V4.contains(&ip) {
        return Some(Forbidden::Metadata);
    }
    match ip.octets() {
        [0, ..] => Some(Forbidden::Unspecified),
        [127, ..] => Some(Forbidden::Loopback),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(Forbidden::Private),
        [100, 64..=127, ..] => Some(Forbidden::Shared),
        [169, 254, ..] => Some(Forbidden::LinkLocal),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(Forbidden::Documentation),
        [198, 18 | 19, ..] => Some(Forbidden::Benchmarking),
        [192, 88, 99, _] => Some(Forbidden::Transition),
        [224..=239, ..] => Some(Forbidden::Multicast),
        [255, 255, 255, 255] => Some(Forbidden::Broadcast),
        [192, 0, 0, _] | [240..=255, ..] => Some(Forbidden::Reserved),
        _ => None,
    }
}

fn forbidden_v6(ip: Ipv6Addr) -> Option<Forbidden> {
    if METADATA_V6.contains(&ip) {
        return Some(Forbidden::Metadata);
    }
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Forbidden::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Forbidden::Loopback),
        // IPv4-mapped, and NAT64 by its well-known prefix: the system connects to what they carry.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            forbidden_v4(carried(high, low))
        }
        // IPv4-compatible, SIIT, local NAT64, Teredo, 6to4.
        [0, 0, 0, 0, 0 | 0xffff, 0, ..]
        | [0x64, 0xff9b, 1, ..]
        | [0x2001, 0, ..]
        | [0x2002, ..] => Some(Forbidden::Transition),
        // ISATAP below any prefix, where what it carries is not public.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
            if forbidden_v4(carried(high, low)).is_some() =>
        {
            Some(Forbidden::Transition)
        }
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => Some(Forbidden::Private),
        [0xfe80..=0xfebf, ..] => Some(Forbidden::LinkLocal),
        [0xff00..=0xffff, ..] => Some(Forbidden::Multicast),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(Forbidden::Documentation),
        // Protocol assignments: 2001::/23.
        [0x2001, 0..=0x1ff, ..] => Some(Forbidden::Reserved),
        [0x2000..=0x3fff, ..] => None,
        _ => Some(Forbidden::Reserved),
    }
}

const fn carried(high: u16, low: u16) -> Ipv4Addr {
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests;

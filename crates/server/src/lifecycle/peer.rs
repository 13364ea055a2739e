//! Who is calling: the peer of the connection, or whom a trusted proxy says it speaks for.
//!
//! `X-Forwarded-For` is read from its end, the part that the nearest proxy wrote: as long as an address is
//! one of `POSTHORN_TRUSTED_PROXIES`, the one before it counts. What anybody else writes into the header is
//! never believed.

use posthorn_domain::limits;
use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

/// The list of addresses that proxies append to.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The caller's address. The port is the connection's: of a caller behind a proxy none is known.
pub(super) fn caller(peer: SocketAddr, headers: &HeaderMap, trusted: &[IpNet]) -> SocketAddr {
    let mut address = peer.ip().to_canonical();
    for before in hops(headers).take(limits::FORWARDED_HOPS) {
        if !trusted.iter().any(|network| network.contains(&address)) {
            break;
        }
        // What is not an address ends the chain: nothing before it can be told.
        let Some(before) = before else { break };
        address = before;
    }
    SocketAddr::new(address, peer.port())
}

/// The addresses of the header, the last first.
fn hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let lines: Vec<&str> = headers
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .collect();
    let items = lines.into_iter().rev().flat_map(|line| line.rsplit(','));
    items.map(|item| {
        item.trim()
            .parse::<IpAddr>()
            .ok()
            .map(|address| address.to_canonical())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller_of(peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let trusted = [
            "10.0.0.0/8".parse().unwrap(),
            "127.0.0.1/32".parse().unwrap(),
        ];
        caller(peer.parse().unwrap(), &headers, &trusted)
            .ip()
            .to_string()
    }

    #[test]
    fn a_stranger_is_not_believed() {
        assert_eq!(caller_of("192.0.2.1:9", &["203.0.113.7"]), "192.0.2.1");
    }

    #[test]
    fn a_trusted_proxy_names_its_caller() {
        assert_eq!(caller_of("10.0.0.1:9", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(
            caller_of("[::ffff:10.0.0.1]:9", &["2001:db8::1"]),
            "2001:db8::1"
        );
        assert_eq!(caller_of("10.0.0.1:9", &[]), "10.0.0.1");
    }

    #[test]
    fn what_the_caller_wrote_itself_does_not_count() {
        assert_eq!(
            caller_of("10.0.0.1:9", &["127.0.0.1, 203.0.113.7"]),
            "203.0.113.7"
        );
        assert_eq!(
            caller_of("10.0.0.1:9", &["127.0.0.1", "203.0.113.7, 10.0.0.2"]),
            "203.0.113.7"
        );
    }

    #[test]
    fn what_is_no_address_ends_the_chain() {
        assert_eq!(
            caller_of("10.0.0.1:9", &["203.0.113.7, unknown"]),
            "10.0.0.1"
        );
    }
}

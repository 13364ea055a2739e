//! The places of this server that no endpoint may have as its target: listeners, database, public address (INV-8).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use posthorn_domain::address::{OwnPlaces, Place};
use posthorn_domain::url::{Host, canonical_name};

use crate::database::Reach;
use crate::settings::PublicUrl;

/// All of them.
pub(crate) fn places(listeners: Vec<SocketAddr>, reach: &Reach, public: &PublicUrl) -> OwnPlaces {
    OwnPlaces {
        listeners,
        databases: reach.over_tcp().into_iter().map(database).collect(),
        public: public.place(),
        is_this_machine: posthorn_egress::is_this_machine,
    }
}

/// A database as its URL has it.
fn database((host, port): (&str, u16)) -> Place {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let host = match bare.parse() {
        Ok(ip) => Host::Ip(ip),
        Err(_) if bare.eq_ignore_ascii_case("localhost") => {
            Host::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST))
        }
        Err(_) => Host::Name(canonical_name(bare).unwrap_or_else(|| bare.to_owned())),
    };
    Place { host, port }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_address_or_its_canonical_name() {
        let loopback = Host::Ip(Ipv4Addr::LOCALHOST.into());
        for (given, host) in [
            ("localhost", loopback.clone()),
            ("127.0.0.1", loopback),
            ("[::1]", Host::Ip("::1".parse().unwrap())),
            ("::1", Host::Ip("::1".parse().unwrap())),
            ("DB.Example.", Host::Name("db.example".to_owned())),
        ] {
            assert_eq!(
                database((given, 5432)),
                Place { host, port: 5432 },
                "{given}"
            );
        }
    }
}

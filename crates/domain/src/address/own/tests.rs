//! Tests of what nobody can allow (INV-8).

use super::*;
use crate::address::{EgressPolicy, RefusedTarget};

/// What every list of this module allows.
const ALL: &str = "0.0.0.0/0,::/0,127.0.0.1,0.0.0.0,::1,::,posthorn.example,db.example";

fn ip(text: &str) -> IpAddr {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn place(host: &str, port: u16) -> Place {
    let host = host
        .parse()
        .map_or_else(|_| Host::Name(host.to_owned()), Host::Ip);
    Place { host, port }
}

/// A machine with the addresses of the loopback, 10.0.0.5 and `fd00::5`.
fn own() -> OwnPlaces {
    OwnPlaces {
        is_this_machine: |ip| {
            ip.is_loopback()
                || ip.is_unspecified()
                || [[10, 0, 0, 5].into(), "fd00::5".parse().unwrap()].contains(&ip)
        },
        ..OwnPlaces::default()
    }
}

fn why(own: &OwnPlaces, host: Option<&str>, target: &str, port: u16) -> Option<Forbidden> {
    let policy = EgressPolicy::parse(ALL).unwrap().with_own(own.clone());
    policy
        .allows(host, ip(target), port)
        .err()
        .map(RefusedTarget::why)
}

fn listening(on: &str) -> OwnPlaces {
    OwnPlaces {
        listeners: vec![on.parse().unwrap()],
        ..own()
    }
}

#[test]
fn the_servers_own_listeners_are_never_allowed() {
    let own = listening("127.0.0.1:8400");
    for target in [
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "0.0.0.0",
        "::",
    ] {
        assert_eq!(
            why(&own, None, target, 8400),
            Some(Forbidden::OwnListener),
            "{target}"
        );
        assert_eq!(why(&own, None, target, 8410), None, "{target}");
    }
    assert_eq!(why(&own, None, "127.0.0.2", 8400), None);
    let own = listening("203.0.113.5:8400");
    assert_eq!(
        why(&own, None, "203.0.113.5", 8400),
        Some(Forbidden::OwnListener)
    );
}

#[test]
fn a_listener_on_every_address_is_refused_at_every_address_of_the_machine() {
    for listener in ["0.0.0.0:8400", "[::]:8400"] {
        let own = listening(listener);
        for target in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "0.0.0.0",
            "10.0.0.5",
            "::ffff:10.0.0.5",
            "fd00::5",
        ] {
            assert_eq!(
                why(&own, None, target, 8400),
                Some(Forbidden::OwnListener),
                "{target} of {listener}"
            );
        }
        assert_eq!(why(&own, None, "10.0.0.5", 8410), None);
        assert_eq!(why(&own, None, "10.0.0.6", 8400), None);
    }
}

#[test]
fn the_database_is_never_allowed_by_its_name_its_address_or_another_of_its_machine() {
    let refused = Some(Forbidden::OwnDatabase);
    let at = |host: &str| OwnPlaces {
        databases: vec![place(host, 5432)],
        ..own()
    };
    for target in ["127.0.0.1", "0.0.0.0", "10.0.0.5", "fd00::5"] {
        assert_eq!(
            why(&at("127.0.0.1"), None, target, 5432),
            refused,
            "{target}"
        );
    }
    assert_eq!(why(&at("127.0.0.1"), None, "10.0.0.6", 5432), None);
    assert_eq!(why(&at("127.0.0.1"), None, "127.0.0.1", 5433), None);
    assert_eq!(why(&at("10.0.0.7"), None, "10.0.0.7", 5432), refused);
    assert_eq!(why(&at("10.0.0.7"), None, "127.0.0.1", 5432), None);
    assert_eq!(
        why(&at("db.example"), Some("db.example"), "10.0.0.7", 5432),
        refused
    );
    assert_eq!(
        why(
            &at("db.example"),
            Some("posthorn.example"),
            "10.0.0.7",
            5432
        ),
        None
    );
    assert_eq!(
        at("db.example").database_names(5432).collect::<Vec<_>>(),
        ["db.example"]
    );
    assert_eq!(at("db.example").database_names(5433).count(), 0);
}

#[test]
fn the_public_address_is_never_allowed() {
    let refused = Some(Forbidden::OwnAddress);
    let at = |host: &str| OwnPlaces {
        public: Some(place(host, 443)),
        ..own()
    };
    let name = Some("posthorn.example");
    for port in [443, 80, 8400] {
        assert_eq!(
            why(&at("posthorn.example"), name, "1.1.1.1", port),
            refused,
            "{port}"
        );
        for target in ["1.1.1.1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"] {
            let why = why(&at("1.1.1.1"), None, target, port);
            assert_eq!(why, refused, "{target} {port}");
        }
    }
    assert_eq!(
        why(&at("posthorn.example"), Some("db.example"), "1.1.1.1", 443),
        None
    );
    // The loopback is everybody's.
    for (own, name) in [("127.0.0.1", None), ("localhost", Some("localhost"))] {
        assert_eq!(why(&at(own), name, "127.0.0.1", 443), refused, "{own}");
        assert_eq!(why(&at(own), name, "127.0.0.1", 9000), None, "{own}");
    }
}

#[test]
fn a_url_with_a_name_of_ours_is_refused_before_anybody_asks_what_it_resolves_to() {
    let own = OwnPlaces {
        public: Some(place("posthorn.example", 443)),
        databases: vec![place("db.example", 5432)],
        ..own()
    };
    let policy = EgressPolicy::parse(ALL).unwrap().with_own(own);
    let why = |url: &str| {
        let url = crate::url::EndpointUrl::parse(url).unwrap();
        policy.allows_url(&url).err().map(RefusedTarget::why)
    };
    for url in [
        "https://Posthorn.Example./v1/events",
        "http://posthorn.example:8400/",
    ] {
        assert_eq!(why(url), Some(Forbidden::OwnAddress), "{url}");
    }
    assert_eq!(why("http://db.example:5432/"), Some(Forbidden::OwnDatabase));
    assert_eq!(why("http://db.example/"), None);
    assert_eq!(why("https://www.posthorn.example/"), None);
}

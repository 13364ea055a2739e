//! Tests of what an operator may allow (INV-8).

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn policy(allow: &str) -> EgressPolicy {
    EgressPolicy::parse(allow).unwrap_or_else(|error| panic!("{allow}: {error}"))
}

fn allows(allow: &str, host: Option<&str>, target: &str, port: u16) -> bool {
    policy(allow).allows(host, ip(target), port).is_ok()
}

#[test]
fn a_range_allows_what_is_in_it_at_any_port() {
    assert!(allows("10.0.0.0/8", None, "10.1.2.3", 80));
    assert!(allows("fd00::/8", None, "fd12::1", 80));
    assert!(allows("[fd00::/8]", None, "fd12::1", 80));
    assert!(allows("127.0.0.1", None, "127.0.0.1", 80));
    assert!(allows("::1", None, "::1", 80));
    assert!(!allows("10.0.0.0/8", None, "192.168.0.1", 80));
    assert!(!allows("127.0.0.1", None, "127.0.0.2", 80));
}

#[test]
fn a_port_narrows_an_entry() {
    for (allow, target) in [
        ("10.0.0.0/8:8080", "10.1.2.3"),
        ("10.1.2.3:8080", "10.1.2.3"),
        ("[fd00::/8]:8080", "fd12::1"),
        ("[::1]:8080", "::1"),
    ] {
        assert!(allows(allow, None, target, 8080), "{allow}");
        assert!(!allows(allow, None, target, 8081), "{allow}");
    }
}

#[test]
fn a_name_allows_what_it_resolves_to_and_no_other_name() {
    assert!(allows(
        "receiver.internal:8080",
        Some("receiver.internal"),
        "10.1.2.3",
        8080
    ));
    assert!(allows(
        "Receiver.Internal.",
        Some("receiver.internal"),
        "127.0.0.1",
        80
    ));
    assert!(!allows(
        "receiver.internal:8080",
        Some("receiver.internal"),
        "10.1.2.3",
        80
    ));
    assert!(!allows(
        "receiver.internal",
        Some("other.internal"),
        "10.1.2.3",
        80
    ));
    assert!(!allows(
        "receiver.internal",
        Some("x.receiver.internal"),
        "10.1.2.3",
        80
    ));
    assert!(!allows("receiver.internal", None, "10.1.2.3", 80));
}

#[test]
fn a_mapped_address_is_its_ipv4_address() {
    assert!(allows("127.0.0.1", None, "::ffff:127.0.0.1", 80));
    assert!(allows("::ffff:127.0.0.1", None, "127.0.0.1", 80));
    assert!(!allows("10.0.0.0/8", None, "::ffff:127.0.0.1", 80));
}

#[test]
fn metadata_and_link_local_are_allowed_by_their_own_address_alone() {
    for target in [
        "169.254.169.254",
        "169.254.1.1",
        "100.100.100.200",
        "fd00:ec2::254",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
    ] {
        for allow in [
            "0.0.0.0/0,::/0",
            "169.254.0.0/16",
            "169.254.169.254/31",
            "fd00::/8",
            "metadata",
        ] {
            assert!(
                !allows(allow, Some("metadata"), target, 80),
                "{target} by {allow}"
            );
        }
        assert!(allows(target, None, target, 80), "{target}");
        let prefix = if target.contains(':') { 128 } else { 32 };
        assert!(
            allows(&format!("{target}/{prefix}"), None, target, 80),
            "{target}"
        );
    }
    assert!(!allows("169.254.169.254:80", None, "169.254.169.254", 81));
    assert!(!allows(
        "::ffff:169.254.169.253",
        None,
        "169.254.169.254",
        80
    ));
}

#[test]
fn a_public_address_is_allowed_whatever_the_list_says() {
    assert!(allows("10.0.0.0/8:8080", None, "1.1.1.1", 443));
}

#[test]
fn an_empty_list_is_the_closed_policy() {
    for allow in ["", "  "] {
        assert!(!allows(allow, None, "10.0.0.1", 80));
    }
}

#[test]
fn an_entry_that_means_nothing_is_refused_and_counted() {
    let refusal = |allow: &str| EgressPolicy::parse(allow).err();
    let cases = [
        ("10.0.0.0/8,", EgressAllowError::Target(2)),
        (",10.0.0.0/8", EgressAllowError::Target(1)),
        ("10.0.0.0/33", EgressAllowError::Target(1)),
        ("10.0.0.256", EgressAllowError::Target(1)),
        ("10.0.0", EgressAllowError::Target(1)),
        ("[::1", EgressAllowError::Target(1)),
        ("[::1]8080", EgressAllowError::Target(1)),
        ("http://example.com", EgressAllowError::Port(1)),
        ("*.example.com", EgressAllowError::Target(1)),
        ("a b", EgressAllowError::Target(1)),
        ("10.0.0.0/8:0", EgressAllowError::Port(1)),
        ("10.0.0.0/8:65536", EgressAllowError::Port(1)),
        ("example.com:", EgressAllowError::Port(1)),
        ("example.com:+80", EgressAllowError::Port(1)),
        (
            "10.1.2.3/8",
            EgressAllowError::HostBits(1, "10.0.0.0/8".parse().unwrap()),
        ),
        ("::ffff:10.0.0.0/104", EgressAllowError::Mapped(1)),
    ];
    for (allow, error) in cases {
        assert_eq!(refusal(allow), Some(error), "{allow:?}");
    }
    assert_eq!(
        refusal(&vec!["a"; 257].join(",")),
        Some(EgressAllowError::TooMany)
    );
}

proptest! {
    #[test]
    fn no_list_makes_the_parser_panic(text in "\\PC{0,80}", near in "[0-9a-f.:/\\[\\], *-]{0,60}") {
        let _ = (EgressPolicy::parse(&text), EgressPolicy::parse(&near));
    }
}

//! Tests of the closed address policy (INV-8): every range by name, and what must stay allowed.

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Every address that a webhook sender was once led to, and the range that it is in.
const REFUSED: &[(&str, Forbidden)] = &[
    ("0.0.0.0", Forbidden::Unspecified),
    ("0.1.2.3", Forbidden::Unspecified),
    ("10.0.0.1", Forbidden::Private),
    ("100.64.0.1", Forbidden::Shared),
    ("100.127.255.255", Forbidden::Shared),
    ("100.100.100.200", Forbidden::Metadata),
    ("127.0.0.1", Forbidden::Loopback),
    ("127.255.255.254", Forbidden::Loopback),
    ("168.63.129.16", Forbidden::Metadata),
    ("169.254.0.1", Forbidden::LinkLocal),
    ("169.254.169.254", Forbidden::Metadata),
    ("169.254.170.2", Forbidden::Metadata),
    ("172.16.0.1", Forbidden::Private),
    ("172.31.255.255", Forbidden::Private),
    ("192.0.0.1", Forbidden::Reserved),
    ("192.0.0.192", Forbidden::Metadata),
    ("192.0.2.1", Forbidden::Documentation),
    ("192.88.99.1", Forbidden::Transition),
    ("192.168.0.1", Forbidden::Private),
    ("198.18.0.1", Forbidden::Benchmarking),
    ("198.19.255.255", Forbidden::Benchmarking),
    ("198.51.100.1", Forbidden::Documentation),
    ("203.0.113.1", Forbidden::Documentation),
    ("224.0.0.1", Forbidden::Multicast),
    ("239.255.255.250", Forbidden::Multicast),
    ("240.0.0.1", Forbidden::Reserved),
    ("255.255.255.255", Forbidden::Broadcast),
    ("::", Forbidden::Unspecified),
    ("::1", Forbidden::Loopback),
    ("::7f00:1", Forbidden::Transition),
    ("::ffff:127.0.0.1", Forbidden::Loopback),
    ("::ffff:a9fe:a9fe", Forbidden::Metadata),
    ("::ffff:10.0.0.1", Forbidden::Private),
    ("::ffff:0:7f00:1", Forbidden::Transition),
    ("::5efe:7f00:1", Forbidden::Transition),
    ("2606:4700::5efe:7f00:1", Forbidden::Transition),
    ("2606:4700::200:5efe:a00:1", Forbidden::Transition),
    ("fe80::5efe:7f00:1", Forbidden::Transition),
    ("64:ff9b::7f00:1", Forbidden::Loopback),
    ("64:ff9b::a9fe:a9fe", Forbidden::Metadata),
    ("64:ff9b::a00:1", Forbidden::Private),
    ("64:ff9b:1::1", Forbidden::Transition),
    ("64:ff9b:0:0:1::5db8:d822", Forbidden::Reserved),
    ("100::1", Forbidden::Reserved),
    ("2001::1", Forbidden::Transition),
    ("2001:2::1", Forbidden::Reserved),
    ("2001:10::1", Forbidden::Reserved),
    ("2001:1ff:ffff::1", Forbidden::Reserved),
    ("2001:db8::1", Forbidden::Documentation),
    ("2002:7f00:1::1", Forbidden::Transition),
    ("2002:5db8:d822::1", Forbidden::Transition),
    ("3fff::1", Forbidden::Documentation),
    ("4000::1", Forbidden::Reserved),
    ("5f00::1", Forbidden::Reserved),
    ("fc00::1", Forbidden::Private),
    ("fd00:ec2::254", Forbidden::Metadata),
    ("fd20:ce::254", Forbidden::Metadata),
    ("fe80::1", Forbidden::LinkLocal),
    ("febf:ffff::1", Forbidden::LinkLocal),
    ("fec0::1", Forbidden::Private),
    ("ff02::1", Forbidden::Multicast),
    ("ff0e::1", Forbidden::Multicast),
];

const ALLOWED: &[&str] = &[
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "192.88.98.1",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "93.184.216.34",
    "2606:4700::1111",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2a00::1",
    "3ffe::1",
    "3fff:1000::1",
    "64:ff9b::5db8:d822",
    "::ffff:1.1.1.1",
    "2606:4700::5efe:101:101",
];

#[test]
fn every_address_of_the_table_is_refused_by_its_range() {
    for (text, range) in REFUSED {
        assert_eq!(judge(ip(text)), Err(*range), "{text}");
    }
}

#[test]
fn public_addresses_beside_the_ranges_stay_allowed() {
    for text in ALLOWED {
        assert_eq!(judge(ip(text)), Ok(()), "{text}");
    }
}

#[test]
fn the_default_policy_is_the_closed_one() {
    let closed = EgressPolicy::default();
    for (text, _) in REFUSED {
        assert!(
            closed.allows(Some("example.com"), ip(text), 443).is_err(),
            "{text}"
        );
    }
    for text in ALLOWED {
        assert_eq!(closed.allows(None, ip(text), 443), Ok(()), "{text}");
    }
}

proptest! {
    #[test]
    fn a_carried_address_is_never_judged_more_kindly_than_itself(bits in any::<u32>()) {
        let plain = Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = plain.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let carriers = [
            plain.to_ipv6_mapped(),
            Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
            Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0x200, 0x5efe, high, low),
        ];
        if judge(plain.into()).is_err() {
            for carrier in carriers {
                prop_assert!(judge(carrier.into()).is_err(), "{carrier}");
            }
        }
    }

    #[test]
    fn outside_what_is_given_out_no_ipv6_address_is_allowed(bits in any::<u128>()) {
        let ip = Ipv6Addr::from_bits(bits);
        let given_out = bits >> 125 == 1;
        let carried = matches!(ip.segments(), [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..]);
        prop_assert!(judge(ip.into()).is_err() || given_out || carried);
    }
}

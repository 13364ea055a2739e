//! Tests of the spelling and hashing of API keys (INV-10).

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;

fn key(environment: Environment, random: [u8; 32]) -> String {
    mint(environment, random).expose_secret().to_owned()
}

#[test]
fn a_key_has_this_text() {
    let text = key(Environment::Test, [0xa5; 32]);
    assert_eq!(
        text,
        "ph_test_55mpjtb9d5mpjtb9d5mpjtb9d555mpjtb9d5mpjtb9d5mpjtb9d50kef53a"
    );
    assert_eq!(text.len(), 8 + 52 + 7);
}

#[test]
fn the_checksum_is_the_common_crc_32() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32(b""), 0);
}

#[test]
fn the_hash_is_sha_256_of_the_whole_text() {
    let abc = [
        0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22,
        0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00,
        0x15, 0xad,
    ];
    assert_eq!(hash("abc"), abc);
    let text = key(Environment::Live, [1; 32]);
    assert_eq!(check(&text).unwrap().as_bytes(), &hash(&text));
}

#[test]
fn the_environment_is_in_the_key() {
    for environment in Environment::ALL {
        let text = key(*environment, [1; 32]);
        assert!(text.starts_with(&format!("ph_{environment}_")));
        assert_eq!(super::environment(&text), Some(*environment));
    }
}

#[test]
fn what_is_shown_of_a_key_is_its_beginning_alone() {
    let text = key(Environment::Live, [0xa5; 32]);
    assert_eq!(display_prefix(&text), "ph_live_55mp");
    assert_eq!(display_prefix("secret"), "");
    assert_eq!(display_prefix("ph_live_"), "ph_live_");
}

#[test]
fn what_is_no_key_is_refused() {
    let good = key(Environment::Live, [1; 32]);
    let cut = good.get(..good.len() - 1).unwrap();
    let longer = format!("{good}0");
    let upper = good.to_ascii_uppercase();
    let other = good.replacen("live", "test", 1);
    let cases = [
        ("", KeyError::Prefix),
        ("Bearer x", KeyError::Prefix),
        (&upper, KeyError::Prefix),
        ("ph_live_", KeyError::Checksum),
        ("ph_live_\u{e9}", KeyError::Checksum),
        (cut, KeyError::Checksum),
        (&longer, KeyError::Checksum),
        (&other, KeyError::Checksum),
    ];
    for (text, error) in cases {
        assert_eq!(check(text), Err(error), "{text}");
    }
}

#[test]
fn a_hash_is_not_shown_by_debug() {
    assert_eq!(
        format!("{:?}", check(&key(Environment::Live, [1; 32])).unwrap()),
        "KeyHash(…)"
    );
}

proptest! {
    #[test]
    fn a_minted_key_is_accepted_and_each_change_of_one_character_is_not(random in any::<[u8; 32]>(), place in 8_usize..67, by in 1_u8..32) {
        let text = key(Environment::Live, random);
        prop_assert!(check(&text).is_ok());
        let mut bytes = text.into_bytes();
        let digit = crockford::digit(bytes[place]).unwrap();
        bytes[place] = (b'0'..=b'z').find(|&b| crockford::digit(b) == Some((digit + by) % 32)).unwrap();
        prop_assert!(check(core::str::from_utf8(&bytes).unwrap()).is_err());
    }

    #[test]
    fn no_text_makes_the_check_panic(text in "\\PC{0,100}", body in "[0-9a-z\u{e9}]{0,70}") {
        for text in [text, format!("ph_live_{body}")] {
            let _ = (check(&text), display_prefix(&text));
        }
    }
}

//! Tests of the module that this file stands beside.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn whsec(bytes: usize) -> String {
    format!("whsec_{}", STANDARD.encode(vec![7; bytes]))
}

fn refusal(text: &str) -> Option<SecretError> {
    SigningSecret::parse(text).err()
}

const WHSK: &str =
    "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==";
const WHPK: &str = "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

#[test]
fn a_shared_secret_holds_24_to_64_bytes() {
    for bytes in [24, 32, 64] {
        assert_eq!(refusal(&whsec(bytes)), None, "{bytes}");
    }
    for bytes in [0, 1, 23, 65, 100] {
        assert_eq!(
            refusal(&whsec(bytes)),
            Some(SecretError::V1Length),
            "{bytes}"
        );
    }
    assert_eq!(refusal(&whsec(100_000)), Some(SecretError::Base64));
}

#[test]
fn only_the_canonical_form_is_taken() {
    let good = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    assert_eq!(refusal(good), None);
    let url_safe = good.replace('+', "-");
    let cases = [
        ("C2FVsBQIhrscChlQIMV+b5sSYspob7oD", SecretError::Prefix),
        (
            "v1,whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            SecretError::Prefix,
        ),
        (
            "WHSEC_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            SecretError::Prefix,
        ),
        (
            " whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
            SecretError::Prefix,
        ),
        ("", SecretError::Prefix),
        (&url_safe, SecretError::Base64),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n",
            SecretError::Base64,
        ),
        (
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD ",
            SecretError::Base64,
        ),
        ("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7o", SecretError::Base64),
        // 32 bytes want one `=`: left out, doubled, or with bits set that no byte holds.
        (
            "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc",
            SecretError::Base64,
        ),
        (
            "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc==",
            SecretError::Base64,
        ),
        (
            "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd=",
            SecretError::Base64,
        ),
        (WHPK, SecretError::PublicKey),
        ("whsk_AAEC", SecretError::V1aLength),
    ];
    for (text, error) in cases {
        assert_eq!(refusal(text), Some(error), "{text:?}");
    }
}

#[test]
fn the_halves_of_a_key_pair_must_belong_together() {
    let changed = WHSK.replace("uA==", "uQ==");
    assert_eq!(refusal(&changed), Some(SecretError::V1aMismatch));
}

#[test]
fn a_secret_is_exposed_as_it_was_given() {
    for text in [whsec(24).as_str(), whsec(64).as_str(), WHSK] {
        assert_eq!(
            SigningSecret::parse(text).unwrap().expose().expose_secret(),
            text
        );
    }
}

#[test]
fn a_key_pair_tells_its_public_key_and_a_shared_secret_has_none() {
    assert_eq!(
        SigningSecret::parse(WHSK).unwrap().public_key().as_deref(),
        Some(WHPK)
    );
    assert_eq!(SigningSecret::parse(&whsec(32)).unwrap().public_key(), None);
}

#[test]
fn a_generated_key_pair_is_that_of_its_seed() {
    let seed: [u8; 32] = core::array::from_fn(|i| u8::try_from(i).unwrap());
    let secret = SigningSecret::generate_v1a(seed).unwrap();
    assert_eq!(
        (secret.expose().expose_secret(), secret.kind()),
        (WHSK, "v1a")
    );
}

#[test]
fn generated_secrets_hold_32_bytes_and_differ() {
    let mut seen = BTreeSet::new();
    for i in 0..10_000_u64 {
        let mut random = [0; 32];
        random[..8].copy_from_slice(&i.to_be_bytes());
        let secret = SigningSecret::generate_v1(random);
        let text = secret.expose().expose_secret().to_owned();
        assert_eq!((text.len(), secret.kind()), ("whsec_".len() + 44, "v1"));
        assert!(seen.insert(text));
    }
}

proptest! {
    #[test]
    fn what_is_accepted_is_exposed_unchanged(bytes in proptest::collection::vec(any::<u8>(), 24..=64)) {
        let text = format!("whsec_{}", STANDARD.encode(&bytes));
        let exposed = SigningSecret::parse(&text).unwrap().expose();
        prop_assert_eq!(exposed.expose_secret(), text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(whsec_|whsk_|whpk_)?[A-Za-z0-9+/=é_-]{0,120}", any in "\\PC{0,80}") {
        let _ = (SigningSecret::parse(&text), SigningSecret::parse(&any), parse_public(&text));
    }
}

//! Tests of sealing (INV-10): what was sealed opens with its key, for its purpose, and not otherwise.

use proptest::prelude::*;
use secrecy::ExposeSecret;

use super::*;

fn entry(id: &str, byte: u8) -> String {
    format!("{id}:{}", STANDARD.encode([byte; 32]))
}

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).unwrap()
}

fn refusal(text: &str) -> Option<KeyRingError> {
    KeyRing::parse(text).err()
}

fn opened(ring: &KeyRing, sealed: &Sealed, aad: &[u8]) -> Result<Vec<u8>, SealError> {
    ring.open(&sealed.key_id, &sealed.bytes, aad)
        .map(|plain| plain.expose_secret().to_vec())
}

#[test]
fn the_first_key_seals_and_every_key_opens() {
    let old = ring(&entry("k1", 1))
        .seal(b"secret", b"aad", [0; 12])
        .unwrap();
    let both = ring(&format!("{},{}", entry("k2", 2), entry("k1", 1)));
    let new = both.seal(b"secret", b"aad", [1; 12]).unwrap();
    assert_eq!(
        (old.key_id.as_str(), new.key_id.as_str(), both.current_id()),
        ("k1", "k2", "k2")
    );
    assert_eq!(both.ids().collect::<Vec<_>>(), ["k2", "k1"]);
    assert_eq!(opened(&both, &old, b"aad").unwrap(), b"secret");
    assert_eq!(opened(&both, &new, b"aad").unwrap(), b"secret");
}

#[test]
fn a_key_that_left_the_ring_is_named() {
    let sealed = ring(&entry("k1", 1))
        .seal(b"secret", b"aad", [0; 12])
        .unwrap();
    assert_eq!(
        opened(&ring(&entry("k2", 1)), &sealed, b"aad"),
        Err(SealError::UnknownKey("k1".into()))
    );
}

#[test]
fn another_key_of_the_same_id_does_not_open() {
    let sealed = ring(&entry("k1", 1))
        .seal(b"secret", b"aad", [0; 12])
        .unwrap();
    assert_eq!(
        opened(&ring(&entry("k1", 9)), &sealed, b"aad"),
        Err(SealError::Broken)
    );
}

#[test]
fn what_was_sealed_for_one_thing_does_not_open_for_another() {
    let ring = ring(&entry("k1", 1));
    let sealed = ring.seal(b"secret", b"tenant a", [0; 12]).unwrap();
    assert_eq!(opened(&ring, &sealed, b"tenant b"), Err(SealError::Broken));
}

#[test]
fn sealed_bytes_are_nonce_ciphertext_and_tag() {
    let sealed = ring(&entry("k1", 1))
        .seal(b"secret", b"aad", [5; 12])
        .unwrap();
    assert_eq!(sealed.bytes.len(), 12 + 6 + 16);
    assert!(sealed.bytes.starts_with(&[5; 12]));
}

#[test]
fn what_is_no_ring_is_refused_and_the_entry_named() {
    let good = entry("k1", 1);
    let short = format!("k2:{}", STANDARD.encode([1; 31]));
    let long_id = entry(&"k".repeat(33), 1);
    let many = (0..17)
        .map(|i| entry(&format!("k{i}"), 1))
        .collect::<Vec<_>>()
        .join(",");
    let cases = [
        (String::new(), KeyRingError::Empty),
        (" \n".to_owned(), KeyRingError::Empty),
        (",".to_owned(), KeyRingError::Entry(1)),
        (format!("{good},"), KeyRingError::Entry(2)),
        ("k1".to_owned(), KeyRingError::Entry(1)),
        (
            format!("{good},:{}", STANDARD.encode([1; 32])),
            KeyRingError::Id(2),
        ),
        (entry("k 1", 1), KeyRingError::Id(1)),
        (long_id, KeyRingError::Id(1)),
        (format!("{good},{short}"), KeyRingError::Key("k2".into())),
        (
            good.trim_end_matches('=').to_owned(),
            KeyRingError::Key("k1".into()),
        ),
        ("k1:".to_owned(), KeyRingError::Key("k1".into())),
        (
            format!("{good},{}", entry("k1", 2)),
            KeyRingError::Twice("k1".into()),
        ),
        (many, KeyRingError::TooMany),
    ];
    for (text, error) in cases {
        assert_eq!(refusal(&text), Some(error), "{text:?}");
    }
}

#[test]
fn a_generated_key_is_an_entry_of_a_ring() {
    let text = KeyRing::generate("2027-01", [4; 32]).unwrap();
    assert_eq!(
        ring(&format!("{}\n", text.expose_secret())).current_id(),
        "2027-01"
    );
    assert_eq!(
        KeyRing::generate("a:b", [4; 32]).err(),
        Some(KeyRingError::Id(1))
    );
}

#[test]
fn no_error_text_holds_a_key() {
    let key = STANDARD.encode([7; 31]);
    let shown = refusal(&format!("k1:{key}")).unwrap().to_string();
    assert!(!shown.contains(&key), "{shown}");
}

proptest! {
    #[test]
    fn what_was_sealed_opens(plain in proptest::collection::vec(any::<u8>(), 0..200), aad in proptest::collection::vec(any::<u8>(), 0..40), nonce in any::<[u8; 12]>()) {
        let ring = ring(&entry("k1", 1));
        let sealed = ring.seal(&plain, &aad, nonce).unwrap();
        prop_assert_eq!(opened(&ring, &sealed, &aad), Ok(plain));
    }

    #[test]
    fn a_changed_byte_anywhere_does_not_open(place in any::<prop::sample::Index>()) {
        let ring = ring(&entry("k1", 1));
        let mut sealed = ring.seal(b"secret", b"aad", [0; 12]).unwrap();
        let at = place.index(sealed.bytes.len());
        sealed.bytes[at] ^= 1;
        prop_assert_eq!(opened(&ring, &sealed, b"aad"), Err(SealError::Broken));
    }

    #[test]
    fn no_bytes_make_the_ring_panic(text in "\\PC{0,120}", bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = KeyRing::parse(&text);
        prop_assert!(ring(&entry("k1", 1)).open("k1", &bytes, b"").is_err());
    }
}

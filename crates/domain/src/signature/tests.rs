//! Tests of signatures (INV-4): the vectors, and that nothing else verifies.

use proptest::prelude::*;
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::*;

/// The vectors of `tests/data/vectors.json`. Each names its origin: the test suites of the Standard
/// Webhooks libraries and of the Svix server, or, for "computed", the reference libraries in Python.
#[derive(Deserialize)]
struct Vector {
    name: String,
    secret: String,
    id: String,
    timestamp: i64,
    body_base64: String,
    body_len: usize,
    signature: String,
    public: Option<String>,
}

impl Vector {
    fn body(&self) -> Vec<u8> {
        let body = STANDARD.decode(&self.body_base64).unwrap();
        assert_eq!(body.len(), self.body_len, "{}", self.name);
        body
    }
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../tests/data/vectors.json")).unwrap()
}

fn secret(byte: u8) -> SigningSecret {
    SigningSecret::generate_v1([byte; 32])
}

fn pair(byte: u8) -> SigningSecret {
    SigningSecret::generate_v1a([byte; 32]).unwrap()
}

fn keys(secrets: &[&SigningSecret]) -> Vec<VerifyingKey> {
    secrets.iter().map(|&secret| secret.into()).collect()
}

#[test]
fn all_sixteen_vectors_are_signed_so() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 16);
    for vector in vectors {
        let secret = SigningSecret::parse(&vector.secret).unwrap();
        let signature = sign(&secret, &vector.id, vector.timestamp, &vector.body());
        assert_eq!(signature, vector.signature, "{}", vector.name);
        assert_eq!(secret.public_key(), vector.public, "{}", vector.name);
    }
}

#[test]
fn all_sixteen_vectors_verify() {
    for vector in vectors() {
        let key = vector.public.as_deref().unwrap_or(&vector.secret);
        let key = VerifyingKey::parse(key).unwrap();
        assert!(
            verify(
                &vector.signature,
                &[key],
                &vector.id,
                vector.timestamp,
                &vector.body()
            ),
            "{}",
            vector.name
        );
    }
}

/// B05, over the input of B01.
#[test]
fn the_key_is_the_decoded_secret_and_not_its_text() {
    let text = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let (id, at) = ("msg_27UH4WbU6Z5A5EzD8u03UvzRbpk", 1_649_367_553);
    let body = br#"{"email":"test@example.com","username":"test_user"}"#;
    assert_eq!(
        sign(&SigningSecret::parse(text).unwrap(), id, at, body),
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw="
    );
    for wrong in [text, text.trim_start_matches("whsec_")] {
        let by_text = hmac::Key::new(hmac::HMAC_SHA256, wrong.as_bytes());
        let wrong = STANDARD.encode(mac(&by_text, id, at, body));
        assert_ne!(wrong, "tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }
}

#[test]
fn two_secrets_give_two_signatures_with_one_space_between() {
    let (new, old) = (secret(1), secret(2));
    let header = signature_header(&[&new, &old], "evt_1", 1, b"{}");
    assert_eq!(
        header,
        format!(
            "{} {}",
            sign(&new, "evt_1", 1, b"{}"),
            sign(&old, "evt_1", 1, b"{}")
        )
    );
    for key in [&new, &old] {
        assert!(verify(&header, &keys(&[key]), "evt_1", 1, b"{}"));
    }
    assert!(!verify(&header, &keys(&[&secret(3)]), "evt_1", 1, b"{}"));
}

#[test]
fn what_is_not_a_whole_signature_does_not_verify() {
    let secret = secret(1);
    let valid = sign(&secret, "evt_1", 1, b"{}");
    let (_, base64) = valid.split_once(',').unwrap();
    let unpadded = valid.trim_end_matches('=').to_owned();
    let cases = [
        String::new(),
        "v1,".to_owned(),
        "v1".to_owned(),
        ",".to_owned(),
        " ".to_owned(),
        base64.to_owned(),
        format!(",{base64}"),
        format!("v1,{}", base64.get(..8).unwrap()),
        format!("{valid}x"),
        format!("{valid}="),
        format!("v2,{base64}"),
        format!("v1a,{base64}"),
        format!("V1,{base64}"),
        format!("v1, {base64}"),
        format!("v1,{}", base64.to_lowercase()),
        unpadded,
    ];
    for header in cases {
        assert!(
            !verify(&header, &keys(&[&secret]), "evt_1", 1, b"{}"),
            "{header:?}"
        );
    }
}

#[test]
fn a_header_with_too_many_signatures_is_refused_unread() {
    let secret = secret(1);
    let valid = sign(&secret, "evt_1", 1, b"{}");
    let allowed = format!("{}{valid}", "v1,x ".repeat(limits::SIGNATURES - 1));
    assert!(verify(&allowed, &keys(&[&secret]), "evt_1", 1, b"{}"));
    for entries in [limits::SIGNATURES, 10_000] {
        let header = format!("{}{valid}", "v1,x ".repeat(entries));
        assert!(
            !verify(&header, &keys(&[&secret]), "evt_1", 1, b"{}"),
            "{entries}"
        );
    }
}

#[test]
fn no_key_verifies_nothing() {
    assert!(!verify(
        &sign(&secret(1), "evt_1", 1, b"{}"),
        &[],
        "evt_1",
        1,
        b"{}"
    ));
}

#[test]
fn a_verifying_key_is_read_from_each_of_its_texts() {
    let pair = pair(3);
    let signature = sign(&pair, "evt_1", 1, b"{}");
    let texts = [
        pair.public_key().unwrap(),
        pair.expose().expose_secret().to_owned(),
    ];
    for text in texts {
        assert!(verify(
            &signature,
            &[VerifyingKey::parse(&text).unwrap()],
            "evt_1",
            1,
            b"{}"
        ));
    }
    assert!(VerifyingKey::parse("whpk_AAEC").is_err());
    assert!(VerifyingKey::parse("secret").is_err());
}

proptest! {
    #[test]
    fn what_was_signed_verifies_with_each_secret_and_with_no_other(
        bytes in proptest::collection::vec(1_u8..100, 1..5), id in "[a-z_0-9]{1,40}",
        timestamp in 0..10_000_000_000_i64, body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let secrets: Vec<_> = bytes.iter().map(|&byte| if byte % 2 == 0 { secret(byte) } else { pair(byte) }).collect();
        let header = signature_header(&secrets.iter().collect::<Vec<_>>(), &id, timestamp, &body);
        for secret in &secrets {
            prop_assert!(verify(&header, &keys(&[secret]), &id, timestamp, &body));
        }
        for other in [secret(200), pair(201)] {
            prop_assert!(!verify(&header, &keys(&[&other]), &id, timestamp, &body));
        }
    }

    #[test]
    fn nothing_else_than_what_was_signed_verifies(v1a in any::<bool>(), body in proptest::collection::vec(any::<u8>(), 1..50), place in any::<prop::sample::Index>()) {
        let secret = if v1a { pair(1) } else { secret(1) };
        let header = sign(&secret, "evt_1", 1000, &body);
        let key = keys(&[&secret]);
        let mut other = body.clone();
        let at = place.index(other.len());
        other[at] ^= 1;
        prop_assert!(!verify(&header, &key, "evt_1", 1000, &other));
        prop_assert!(!verify(&header, &key, "evt_2", 1000, &body));
        prop_assert!(!verify(&header, &key, "evt_1", 1001, &body));
    }

    #[test]
    fn no_header_makes_the_verifier_panic(header in "\\PC{0,200}", body in proptest::collection::vec(any::<u8>(), 0..50)) {
        prop_assert!(!verify(&header, &keys(&[&secret(1), &pair(2)]), "evt_1", 1, &body));
    }
}

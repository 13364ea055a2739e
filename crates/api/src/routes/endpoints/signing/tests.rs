//! Tests of the module that this file stands beside.

use super::*;
use crate::problem::Failure;

fn problem(faults: Faults) -> Problem {
    Failure::from(faults).problem
}

/// What is asked for, or nothing where it has a fault.
fn asked(text: &str) -> Option<SigningChanges> {
    let mut faults = Faults::default();
    let changes = signing(serde_json::from_str(text).unwrap(), &mut faults);
    faults.is_empty().then_some(changes)
}

#[test]
fn a_secret_suits_the_schemes() {
    let text = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert!(secret(text, &[SigningScheme::V1], &mut Faults::default()).is_some());
    assert!(secret(text, &[SigningScheme::V1a], &mut Faults::default()).is_none());
    let mut faults = Faults::default();
    assert!(
        secret(
            "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            &[SigningScheme::V1],
            &mut faults
        )
        .is_none()
    );
    assert_eq!(problem(faults), Problem::SecretInvalid);
}

#[test]
fn schemes_are_one_or_both_each_once() {
    let schemes = |text| asked(text).and_then(|changes| changes.schemes);
    assert_eq!(
        schemes(r#"{"schemes":["v1a","v1"]}"#),
        Some(vec![SigningScheme::V1, SigningScheme::V1a])
    );
    assert_eq!(schemes(r#"{"schemes":[]}"#), None);
    assert_eq!(schemes(r#"{"schemes":["v1","v1"]}"#), None);
}

#[test]
fn a_prefix_that_is_none_is_refused_and_null_is_the_standard_one() {
    let prefix = |text| asked(text).and_then(|changes| changes.header_prefix);
    assert_eq!(
        prefix(r#"{"header_prefix":"Svix"}"#).map(|prefix| prefix.as_str().to_owned()),
        Some("svix".to_owned())
    );
    assert_eq!(
        prefix(r#"{"header_prefix":null}"#),
        Some(HeaderPrefix::default())
    );
    assert_eq!(prefix("{}"), None);
    for text in [r#"{"header_prefix":""}"#, r#"{"header_prefix":"a_b"}"#] {
        assert!(asked(text).is_none(), "{text}");
    }
}

#[test]
fn a_form_of_others_has_no_fields_that_are_not_known_and_shows_no_secret() {
    let read = |text| serde_json::from_str::<SigningRequest>(text);
    assert!(read(r#"{"compat":{"kind":"svix"}}"#).is_err());
    assert!(read(r#"{"compat":{"prefix":"sha1="}}"#).is_err());
    assert!(read(r#"{"compat":null}"#).is_ok());
    let request = read(r#"{"compat":{"kind":"github","secret":"canary-0123456789"}}"#).unwrap();
    assert!(!format!("{request:?}").contains("canary"));
}

use super::*;
use crate::problem::Failure;

fn closed() -> EgressPolicy {
    EgressPolicy::parse("").unwrap()
}

fn problem(faults: Faults) -> Problem {
    Failure::from(faults).problem
}

#[test]
fn a_literal_address_that_the_policy_forbids_is_refused() {
    for text in [
        "http://127.0.0.1/",
        "http://[::1]:8080/",
        "http://10.1.2.3/",
        "http://169.254.169.254/",
        "http://2130706433/",
    ] {
        let mut faults = Faults::default();
        assert!(url(text, &closed(), &mut faults).is_none(), "{text}");
        assert_eq!(problem(faults), Problem::TargetForbidden, "{text}");
    }
}

#[test]
fn a_literal_address_that_the_operator_allows_is_taken() {
    let mut faults = Faults::default();
    let egress = EgressPolicy::parse("127.0.0.0/8").unwrap();
    assert!(url("http://127.0.0.1:8410/ok", &egress, &mut faults).is_some());
}

#[test]
fn a_url_that_is_too_long_has_its_own_code() {
    let mut faults = Faults::default();
    assert!(
        url(
            &format!("https://example.com/{}", "a".repeat(2048)),
            &closed(),
            &mut faults
        )
        .is_none()
    );
    assert_eq!(problem(faults), Problem::UrlTooLong);
}

#[test]
fn a_uid_does_not_look_like_an_id_of_ours() {
    for text in [
        "",
        "evt_1",
        "ep_x",
        "a b",
        "caf\u{e9}",
        "a\0",
        &"x".repeat(129),
    ] {
        let mut faults = Faults::default();
        assert!(uid(text, &mut faults).is_none(), "{text:?}");
        assert_eq!(problem(faults), Problem::UidInvalid);
    }
    assert!(uid("shop-1:orders.v2_x", &mut Faults::default()).is_some());
}

#[test]
fn a_description_has_500_characters_and_no_nul() {
    assert!(words("/description", "\u{e9}".repeat(500), &mut Faults::default()).is_some());
    let mut faults = Faults::default();
    assert!(words("/description", "x".repeat(501), &mut faults).is_none());
    assert_eq!(problem(faults), Problem::DescriptionTooLong);
    assert!(words("/description", "a\0b".to_owned(), &mut Faults::default()).is_none());
}

#[test]
fn each_pattern_that_is_wrong_is_named() {
    let texts: Vec<String> = ["a.*", "a.**.b", "", "b"].map(str::to_owned).into();
    let mut faults = Faults::default();
    assert!(event_types(&texts, &mut faults).is_none());
    let pointers: Vec<_> = Failure::from(faults)
        .faults
        .into_iter()
        .map(|fault| fault.pointer)
        .collect();
    assert_eq!(pointers, ["/event_types/1", "/event_types/2"]);
}

#[test]
fn there_are_1_to_100_patterns() {
    let mut faults = Faults::default();
    assert!(event_types(&vec!["a".to_owned(); 101], &mut faults).is_none());
    assert_eq!(problem(faults), Problem::TooManyEventTypes);
    assert!(event_types(&[], &mut Faults::default()).is_none());
}

#[test]
fn statuses_with_a_meaning_of_their_own_are_not_fatal() {
    assert_eq!(
        fatal_statuses(vec![422, 400, 422], &mut Faults::default()),
        Some(vec![400, 422])
    );
    for status in [200, 399, 408, 410, 429, 600] {
        assert!(
            fatal_statuses(vec![status], &mut Faults::default()).is_none(),
            "{status}"
        );
    }
}

#[test]
fn each_status_that_cannot_be_fatal_is_told_in_a_sentence() {
    let mut faults = Faults::default();
    assert!(fatal_statuses(vec![410, 422, 200], &mut faults).is_none());
    let told: Vec<_> = Failure::from(faults).faults;
    assert_eq!(told.len(), 2);
    for (fault, pointer) in told.iter().zip(["/fatal_statuses/0", "/fatal_statuses/2"]) {
        assert_eq!(fault.pointer, pointer);
        let sentence = format!("{pointer} must be a whole number from 400 to 599, and not 408");
        assert!(fault.detail.starts_with(&sentence), "{}", fault.detail);
    }
}

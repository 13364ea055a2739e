//! Tests of the module that this file stands beside.

use super::*;
use crate::openapi::document;
use crate::problem::{Failure, Fault};

/// The faults of a body that a component describes.
fn faults(component: &str, text: &str) -> Vec<Fault> {
    let schema = &document()["components"]["schemas"][component];
    assert!(schema.is_object(), "{component}");
    let mut faults = Faults::default();
    let raw = serde_json::from_str(text).unwrap();
    check(document(), schema, raw, &mut faults).unwrap();
    Failure::from(faults).faults
}

fn told(component: &str, text: &str) -> Vec<(Problem, String)> {
    let faults = faults(component, text).into_iter();
    faults.map(|fault| (fault.problem, fault.detail)).collect()
}

#[test]
fn all_faults_are_told_at_once_each_at_its_place_and_in_words_of_json() {
    let text = r#"{
        "urll": "x",
        "description": 7,
        "event_types": ["a", 1, null],
        "timeout_ms": 1.5,
        "max_age_s": "60",
        "state": "on",
        "headers": {"a/b": true},
        "retry_policy": {"kind": "fixed", "delay_ms": -1, "jitter": "none"},
        "signing": {"compat": {"kind": "svix", "secret": ["x"], "form": 1}},
        "state": "enabled"
    }"#;
    let words: Vec<_> = told("CreateEndpoint", text)
        .into_iter()
        .map(|(_, words)| words)
        .collect();
    assert_eq!(
        words,
        [
            "/urll is not a field that is known here",
            "/description must be a string, not a number",
            "/event_types/1 must be a string, not a number",
            "/event_types/2 must be a string, not null",
            "/timeout_ms must be a whole number from 1000 to 30000",
            "/max_age_s must be a whole number from 60 to 2592000 or null, not a string",
            "/state must be one of `enabled`, `paused`, `disabled`",
            "/headers/a~1b must be a string, not a boolean",
            "/retry_policy/delay_ms must be a whole number from 10 to 604800000",
            "/retry_policy/jitter is not a field that is known here",
            "/retry_policy/max_attempts is missing: it must be a whole number from 1 to 1000",
            "/signing/compat/kind must be one of `github`, `stripe`, `hmac_sha256`",
            "/signing/compat/secret must be a string, not an array",
            "/signing/compat/form is not a field that is known here",
            "/state stands twice",
            "/url is missing: it must be a string",
        ]
    );
    for fault in faults("CreateEndpoint", text) {
        assert!(
            fault.detail.starts_with(&format!("{} ", fault.pointer)),
            "{fault:?}"
        );
    }
}

#[test]
fn members_of_a_union_are_told_apart() {
    let policy = |policy: &str| {
        told(
            "CreateEndpoint",
            &format!(r#"{{"url":"x","retry_policy":{policy}}}"#),
        )
    };
    let words = |policy_text: &str| policy(policy_text).remove(0).1;
    let kinds = "one of `exponential`, `fixed`, `preset`, `schedule`";
    assert_eq!(
        words("{}"),
        format!("/retry_policy/kind is missing: it must be {kinds}")
    );
    assert_eq!(
        words(r#"{"kind":"x"}"#),
        format!("/retry_policy/kind must be {kinds}")
    );
    assert_eq!(
        words(r#"{"kind":1}"#),
        format!("/retry_policy/kind must be {kinds}")
    );
    assert_eq!(words("[]"), "/retry_policy must be an object, not an array");
    let jitter = |jitter: &str| {
        policy(&format!(
            r#"{{"kind":"schedule","delays_ms":[1000],"jitter":{jitter}}}"#
        ))
    };
    assert_eq!(jitter(r#""full""#), []);
    assert_eq!(jitter(r#"{"spread":0.5}"#), []);
    assert_eq!(
        jitter(r#"{"spread":2}"#)[0].1,
        "/retry_policy/jitter/spread must be a number from 0 to 1"
    );
    assert_eq!(
        jitter(r#""some""#)[0].1,
        "/retry_policy/jitter must be one of `none`, `full`, `equal`"
    );
    assert_eq!(
        jitter("7")[0].1,
        "/retry_policy/jitter must be one of `none`, `full`, `equal` or an object, not a number"
    );
}

#[test]
fn what_may_be_null_may_be_and_what_may_be_anything_is_not_looked_at() {
    let text = r#"{"url":"x","uid":null,"rate_limit":null,"max_in_flight":null}"#;
    assert_eq!(told("CreateEndpoint", text), []);
    assert_eq!(
        told("UpdateEndpoint", r#"{"signing":null,"headers":{"x":null}}"#),
        []
    );
    for payload in ["null", "1e999", r#"{"\ud800":1}"#, "[[[[]]]]"] {
        let text = format!(r#"{{"type":"a","payload":{payload}}}"#);
        assert_eq!(told("EventSubmission", &text), [], "{payload}");
    }
}

/// INV-11.
#[test]
fn of_faults_without_end_the_first_are_told() {
    let fields: Vec<_> = (0..10_000).map(|at| format!("\"f{at}\":1")).collect();
    let text = format!("{{{}}}", fields.join(","));
    assert_eq!(
        faults("UpdateEndpoint", &text).len(),
        posthorn_domain::limits::FAULTS_TOLD
    );
}

/// INV-10: whatever stands where it should not, the answer does not repeat it.
#[test]
fn no_value_is_repeated_and_no_word_of_the_program_told() {
    let canary = "whsec_canary";
    let shapes = [
        format!("\"{canary}\""),
        format!("[\"{canary}\"]"),
        format!("[[\"{canary}\"]]"),
        format!("{{\"x\":\"{canary}\"}}"),
        format!("{{\"kind\":\"{canary}\"}}"),
    ];
    let mut refused = 0;
    for component in [
        "EventSubmission",
        "CreateEndpoint",
        "UpdateEndpoint",
        "TestEndpoint",
        "RotateSecret",
    ] {
        let fields = document()["components"]["schemas"][component]["properties"].clone();
        for (field, shape) in fields
            .as_object()
            .unwrap()
            .keys()
            .flat_map(|field| shapes.iter().map(move |shape| (field.as_str(), shape)))
        {
            for fault in faults(component, &format!("{{\"{field}\":{shape}}}")) {
                let told = format!("{} {}", fault.pointer, fault.detail);
                assert!(!told.contains("canary"), "{told}");
                for word in [
                    "u16", "u32", "u64", "f64", "struct", "variant", "sequence", "map",
                ] {
                    assert!(!told.split(' ').any(|told| told == word), "{told}");
                }
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

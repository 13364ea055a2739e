//! Tests of the module that this file stands beside.

use http::HeaderValue;

use super::*;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Outer {
    #[schema(inline)]
    #[expect(dead_code, reason = "read by serde alone")]
    inner: Inner,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Inner {
    #[expect(dead_code, reason = "read by serde alone")]
    numbers: Vec<u8>,
}

fn refusal(text: &str) -> (Problem, String) {
    let failure = match parse::<Outer>(text.as_bytes()) {
        Ok((_, faults)) => faults.finish().unwrap_err(),
        Err(failure) => failure,
    };
    let pointer = failure
        .faults
        .first()
        .map(|fault| fault.pointer.clone())
        .unwrap_or_default();
    (failure.problem, pointer)
}

#[test]
fn a_fault_is_named_by_its_pointer() {
    for (text, problem, pointer) in [
        (
            r#"{"inner":{"numbers":[],"a/b":1}}"#,
            Problem::FieldUnknown,
            "/inner/a~1b",
        ),
        (r#"{"inner":{}}"#, Problem::FieldMissing, "/inner/numbers"),
        (
            r#"{"inner":{"numbers":[],"numbers":[]}}"#,
            Problem::FieldDuplicate,
            "/inner/numbers",
        ),
        (
            r#"{"inner":{"numbers":[1,"2"]}}"#,
            Problem::FieldInvalid,
            "/inner/numbers/1",
        ),
        ("[]", Problem::FieldInvalid, ""),
    ] {
        assert_eq!(refusal(text), (problem, pointer.into()), "{text}");
    }
}

/// What the schema does not say, here that a number has a byte, is told without the reader's words.
#[test]
fn a_body_of_the_right_shape_that_is_not_taken_is_told_in_words_of_ours() {
    let failure = parse::<Outer>(br#"{"inner":{"numbers":[1,999]}}"#).unwrap_err();
    let [fault] = failure.faults.as_slice() else {
        panic!("{failure:?}")
    };
    assert_eq!(fault.pointer, "/inner/numbers/1");
    assert!(!fault.detail.contains("999") && !fault.detail.contains("u8"));
}

#[test]
fn a_transfer_coding_is_chunked_once_or_refused() {
    let refused = |codings: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for coding in codings {
            headers.append(TRANSFER_ENCODING, HeaderValue::from_static(coding));
        }
        refuse_framing(&headers).is_err()
    };
    assert!(!refused(&[]) && !refused(&["chunked"]) && !refused(&["Chunked"]));
    for codings in [
        &["gzip, chunked"][..],
        &["gzip", "chunked"],
        &["chunked", "chunked"],
        &["chunked, chunked"],
        &["chunked;q=1"],
        &["identity"],
        &[""],
    ] {
        assert!(refused(codings), "{codings:?}");
    }
}

#[test]
fn what_is_not_json_is_malformed() {
    for text in [
        "",
        "{",
        "{,}",
        r#"{"inner":{"numbers":[1,]}}"#,
        "\u{feff}{}",
        "{\"inner\":{\"numbers\":[]}} {}",
    ] {
        assert_eq!(refusal(text).0, Problem::MalformedJson, "{text}");
    }
}

#[test]
fn latin_1_is_malformed() {
    let failure = parse::<Outer>(b"\"caf\xe9\"").unwrap_err();
    assert_eq!(failure.problem, Problem::MalformedJson);
}

#[test]
fn only_json_in_utf_8_is_json() {
    let told = |value: &'static str, method| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
        is_json(&headers, &method)
    };
    assert!(told("application/json", Method::POST));
    assert!(told("Application/JSON; Charset=\"UTF-8\"", Method::POST));
    assert!(told("application/merge-patch+json", Method::PATCH));
    assert!(!told("application/merge-patch+json", Method::POST));
    assert!(!told("application/json; charset=latin1", Method::POST));
    assert!(!told("text/plain", Method::POST));
    assert!(!is_json(&HeaderMap::new(), &Method::POST));
}

#[test]
fn two_types_are_none() {
    let mut headers = HeaderMap::new();
    for _ in 0..2 {
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    assert!(!is_json(&headers, &Method::POST));
}

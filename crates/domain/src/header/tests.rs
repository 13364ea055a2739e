//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

fn one(name: &str, value: &str) -> Result<CustomHeaders, HeaderError> {
    CustomHeaders::parse([(name, value)]).map_err(|error| only(&error))
}

/// The one fault that there is.
fn only(error: &HeadersError) -> HeaderError {
    let [fault] = error.faults() else {
        panic!("{error}");
    };
    fault.error.clone()
}

#[test]
fn names_are_kept_in_lower_case_and_values_as_given() {
    let headers = CustomHeaders::parse([
        ("X-Api-Key", "a b\tc"),
        ("Authorization", "Bearer x"),
        ("x-empty", ""),
    ])
    .unwrap();
    assert_eq!(
        headers.names().collect::<Vec<_>>(),
        ["x-api-key", "authorization", "x-empty"]
    );
    assert_eq!(headers.get("x-api-key"), Some("a b\tc"));
    assert_eq!(headers.len(), 3);
}

#[test]
fn a_name_is_alike_in_any_case_and_with_either_dash() {
    let headers = CustomHeaders::parse([("X-Api-Key", "1"), ("a_b", "1")]).unwrap();
    for name in ["x-api-key", "X_Api_Key", "x_api-KEY", "a-b", "A_B"] {
        assert!(headers.have_alike(name), "{name}");
    }
    for name in ["x-api-keys", "xapikey", "ab", ""] {
        assert!(!headers.have_alike(name), "{name}");
    }
}

#[test]
fn what_posthorn_sends_itself_and_what_is_the_connections_is_refused_in_any_case() {
    for name in [
        "Webhook-Signature",
        "WEBHOOK-ID",
        "webhook-timestamp",
        "webhook-anything",
        "Content-Length",
        "content-type",
        "Host",
        "Transfer-Encoding",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Proxy-Authorization",
        "Expect",
        "User-Agent",
        "Accept",
        "Content-Encoding",
        "Posthorn-Tenant",
        "webhook_signature",
        "Content_Length",
    ] {
        assert_eq!(
            one(name, "x"),
            Err(HeaderError::Reserved(name.to_ascii_lowercase())),
            "{name}"
        );
    }
}

#[test]
fn the_same_name_in_two_cases_is_refused() {
    let twice = CustomHeaders::parse([("X-Key", "1"), ("x-key", "2")]);
    assert_eq!(
        twice.map_err(|error| only(&error)),
        Err(HeaderError::Twice("x-key".into()))
    );
}

#[test]
fn every_header_that_is_refused_is_named_as_it_was_given() {
    let refused = CustomHeaders::parse([
        ("Host", "x"),
        ("X-Good", "1"),
        ("a/b", "x"),
        ("X-Bad", "a\nb"),
        ("x-good", "2"),
    ]);
    let refused = refused.unwrap_err();
    let named: Vec<_> = refused
        .faults()
        .iter()
        .map(|fault| (fault.name.as_deref().unwrap(), fault.error.clone()))
        .collect();
    assert_eq!(
        named,
        [
            ("Host", HeaderError::Reserved("host".into())),
            ("a/b", HeaderError::Name),
            ("X-Bad", HeaderError::Value("x-bad".into())),
            ("x-good", HeaderError::Twice("x-good".into())),
        ]
    );
    assert_eq!(refused.to_string().matches("; ").count(), 3);
}

#[test]
fn what_is_no_token_is_no_name() {
    for name in [
        "",
        " ",
        "x y",
        "x:",
        ":path",
        "x\r\n",
        "x\0",
        "caf\u{e9}",
        "x(",
        "x\"",
        "x/y",
        "x,y",
        "x@y",
        "{x}",
    ] {
        assert_eq!(one(name, "v"), Err(HeaderError::Name), "{name:?}");
    }
    assert!(one("!#$%&'*+-.^_`|~09azAZ", "v").is_ok());
}

#[test]
fn a_value_cannot_break_out_of_its_line() {
    for value in [
        "a\nb",
        "a\r\nX-Evil: 1",
        "a\0b",
        "\u{7f}",
        "caf\u{e9}",
        "\u{1f600}",
        " a",
        "a ",
        "\ta",
        "a\u{1b}",
    ] {
        assert_eq!(
            one("x-key", value),
            Err(HeaderError::Value("x-key".into())),
            "{value:?}"
        );
    }
}

#[test]
fn there_are_at_most_20_headers_of_4_kib() {
    let many = |n: usize| {
        (0..n)
            .map(|i| (format!("x-{i}"), "v".to_owned()))
            .collect::<Vec<_>>()
    };
    assert!(CustomHeaders::parse(many(20)).is_ok());
    assert_eq!(
        CustomHeaders::parse(many(21)).map_err(|error| only(&error)),
        Err(HeaderError::TooMany(20))
    );
    assert!(CustomHeaders::parse_for_event(many(10)).is_ok());
    assert_eq!(
        CustomHeaders::parse_for_event(many(11)).map_err(|error| only(&error)),
        Err(HeaderError::TooMany(10))
    );
    assert!(one("x", &"v".repeat(4095)).is_ok());
    assert_eq!(
        one("x", &"v".repeat(4096)),
        Err(HeaderError::TooLong("x".into()))
    );
    assert_eq!(one(&"x".repeat(4097), ""), Err(HeaderError::Name));
}

#[test]
fn json_is_an_object_of_strings_checked_again() {
    let headers = CustomHeaders::parse([("x-b", "2"), ("x-a", "1")]).unwrap();
    let json = serde_json::to_string(&headers).unwrap();
    assert_eq!(json, r#"{"x-b":"2","x-a":"1"}"#);
    assert_eq!(
        serde_json::from_str::<CustomHeaders>(&json).unwrap(),
        headers
    );
    for json in [
        r#"{"x":1}"#,
        r#"{"x":null}"#,
        r#"["x"]"#,
        r#"{"Host":"x"}"#,
        r#"{"x":"1","X":"2"}"#,
        r#"{"x":"1","x":"2"}"#,
        "null",
    ] {
        assert!(
            serde_json::from_str::<CustomHeaders>(json).is_err(),
            "{json}"
        );
    }
    let many = (0..100)
        .map(|i| format!("\"x{i}\":\"\""))
        .collect::<Vec<_>>()
        .join(",");
    let refusal = serde_json::from_str::<CustomHeaders>(&format!("{{{many}}}")).unwrap_err();
    assert!(refusal.to_string().starts_with("at most 20 headers"));
}

#[test]
fn values_are_in_no_debug_text_and_no_error() {
    let headers = one("x-key", "canary").unwrap();
    assert_eq!(format!("{headers:?}"), r#"{"x-key"}"#);
    let refusal = one("x-key", "canary\n").unwrap_err();
    assert!(!format!("{refusal} {refusal:?}").contains("canary"));
}

proptest! {
    #[test]
    fn whatever_is_accepted_is_one_line_of_a_request(name in "\\PC{0,20}", value in "[\\x00-\\x7f\u{80}-\u{ff}]{0,20}") {
        if let Ok(headers) = one(&name, &value) {
            let (name, value) = headers.iter().next().unwrap();
            prop_assert!(name.bytes().all(|b| b.is_ascii_graphic() && b != b':' && !b.is_ascii_uppercase()));
            prop_assert!(value.bytes().all(|b| (b' '..=b'~').contains(&b) || b == b'\t'));
        }
    }
}

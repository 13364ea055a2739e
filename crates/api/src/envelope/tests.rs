use proptest::prelude::*;

use super::*;

fn submit(body: impl Into<Bytes>) -> Result<NewEvent, Failure> {
    read(TenantId::from_uuid(uuid::Uuid::nil()), None, &body.into())
}

fn with_payload(payload: &str) -> Result<NewEvent, Failure> {
    submit(format!(r#"{{"type":"a.b","payload": {payload} }}"#))
}

fn refused(body: &'static str) -> (Problem, String) {
    let failure = submit(body).unwrap_err();
    (
        failure.problem,
        failure
            .faults
            .first()
            .map(|fault| fault.pointer.clone())
            .unwrap_or_default(),
    )
}

/// INV-3.
#[test]
fn the_payload_is_kept_byte_for_byte() {
    for payload in [
        r#"{"a":9007199254740993,"b":50755254975729665,"c":8202522731445525542,"d":18446744073709551616}"#,
        r#"{"a":1.0,"b":1e3,"c":-0,"d":1E400,"e":-1.7976931348623157e+308,"f":1.10,"g":1E-7}"#,
        r#"{"b":1,"a":2,"cc":0,"c":{},"b":3}"#,
        r#"{"a" : 1}"#,
        "{\"t\":\"\u{1f600}\u{e9}\"}",
        r#"{"t":"\ud83d\ude00\u00e9"}"#,
        r#"{"t":"\ud800"}"#,
        r#"{"t":"a\u0000b"}"#,
        r#""hi""#,
        "5",
        "null",
        "[]",
        "true",
        "{\r\n\t\"a\": [ ]\n}",
    ] {
        assert_eq!(with_payload(payload).unwrap().payload, payload, "{payload}");
    }
}

#[test]
fn the_payload_shares_the_memory_of_the_body() {
    let body = Bytes::from_static(br#"{"type":"a","payload":{"id":1}}"#);
    let payload = submit(body.clone()).unwrap().payload;
    assert!(body.as_ptr_range().contains(&payload.as_ptr()));
}

#[test]
fn exactly_128_levels_pass() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(with_payload(&nested(128)).is_ok());
    assert_eq!(
        with_payload(&nested(129)).unwrap_err().problem,
        Problem::PayloadTooDeep
    );
}

#[test]
fn nesting_without_end_is_refused_and_harms_nothing() {
    let levels = 500_000;
    let nested = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(
        with_payload(&nested).unwrap_err().problem,
        Problem::PayloadTooDeep
    );
    for open in ["[", "{\"a\":", "[{\"a\":"] {
        let unclosed = format!(
            r#"{{"type":"a","payload":{}"#,
            open.repeat(levels / open.len())
        );
        assert_eq!(
            submit(unclosed).unwrap_err().problem,
            Problem::MalformedJson
        );
    }
}

#[test]
fn nesting_in_other_fields_is_refused() {
    let nested = "[".repeat(100_000);
    for field in ["metadata", "headers", "type", "occurred_at"] {
        let body = format!(r#"{{"{field}":{nested}"#);
        let status = submit(body).unwrap_err().problem.status().as_u16();
        assert!(matches!(status, 400 | 422), "{field}: {status}");
    }
}

#[test]
fn a_payload_of_exactly_1_mib_passes_and_one_byte_more_does_not() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    assert!(with_payload(&text(limits::PAYLOAD_BYTES)).is_ok());
    let failure = with_payload(&text(limits::PAYLOAD_BYTES + 1)).unwrap_err();
    assert_eq!(failure.problem, Problem::PayloadTooLarge);
}

#[test]
fn a_field_that_is_not_known_is_refused_and_named() {
    assert_eq!(
        refused(r#"{"type":"a","payload":1,"application":"x"}"#),
        (Problem::FieldUnknown, "/application".into())
    );
    assert_eq!(
        refused(r#"{"type":"a","payload":1,"urll":{"a":1}}"#),
        (Problem::FieldUnknown, "/urll".into())
    );
}

#[test]
fn a_field_that_stands_twice_is_refused() {
    let body = r#"{"type":"a","payload":1,"payload":2}"#;
    assert_eq!(refused(body), (Problem::FieldDuplicate, "/payload".into()));
    let body = r#"{"type":"a","type":"b","payload":2}"#;
    assert_eq!(refused(body), (Problem::FieldDuplicate, "/type".into()));
}

#[test]
fn type_and_payload_are_needed() {
    assert_eq!(
        refused(r#"{"payload":1}"#),
        (Problem::FieldMissing, "/type".into())
    );
    assert_eq!(
        refused(r#"{"type":"a"}"#),
        (Problem::FieldMissing, "/payload".into())
    );
}

#[test]
fn metadata_may_be_absent_empty_or_null() {
    for metadata in ["", r#","metadata":{}"#, r#","metadata":null"#] {
        assert!(
            submit(format!(r#"{{"type":"a","payload":1{metadata}}}"#)).is_ok(),
            "{metadata}"
        );
    }
}

#[test]
fn a_time_that_could_not_be_given_back_is_refused_at_its_field() {
    let with = |at: &str| {
        submit(format!(
            r#"{{"type":"a","payload":1,"occurred_at":"{at}"}}"#
        ))
    };
    for at in [
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T23:59:60Z",
        "0000-01-01T00:00:00+00:01",
        "10000-01-01T00:00:00Z",
        "+010000-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "-infinity",
        "infinity",
        "0000-00-00T00:00:00Z",
    ] {
        let failure = with(at).unwrap_err();
        assert_eq!(failure.problem, Problem::FieldInvalid, "{at}");
        assert_eq!(failure.faults[0].pointer, "/occurred_at", "{at}");
    }
    for (at, kept) in [
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00.000000Z"),
    ] {
        let read = with(at).unwrap().occurred_at.unwrap();
        let text = read.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        assert_eq!(text, kept);
    }
}

#[test]
fn all_faults_of_an_event_are_told_at_once() {
    let failure =
        submit(r#"{"type":"a b","payload":1,"occurred_at":"now","headers":{"host":"x"}}"#)
            .unwrap_err();
    let pointers: Vec<_> = failure
        .faults
        .iter()
        .map(|fault| fault.pointer.as_str())
        .collect();
    assert_eq!(pointers, ["/type", "/occurred_at", "/headers/host"]);
}

#[test]
fn a_nul_outside_the_payload_is_refused() {
    for body in [
        r#"{"type":"a\u0000b","payload":1}"#,
        r#"{"type":"a","payload":1,"metadata":{"k":"a\u0000b"}}"#,
        r#"{"type":"a","payload":1,"metadata":{"a\u0000b":"v"}}"#,
        r#"{"type":"a","payload":1,"headers":{"x-a":"a\u0000b"}}"#,
    ] {
        assert_eq!(
            submit(body).unwrap_err().problem.status().as_u16(),
            422,
            "{body}"
        );
    }
}

#[test]
fn what_is_not_json_is_malformed() {
    for body in [
        "",
        "{",
        "\u{feff}{\"type\":\"a\",\"payload\":1}",
        r#"{"type":"a","payload":1,}"#,
        r#"{"type":"a","payload":01}"#,
    ] {
        assert_eq!(
            submit(body).unwrap_err().problem,
            Problem::MalformedJson,
            "{body}"
        );
    }
    let latin = Bytes::from_static(b"{\"type\":\"a\",\"payload\":\"caf\xe9\"}");
    assert_eq!(submit(latin).unwrap_err().problem, Problem::MalformedJson);
}

#[test]
fn two_values_are_malformed() {
    assert_eq!(
        refused(r#"{"type":"a","payload":1} {}"#).0,
        Problem::MalformedJson
    );
}

const PAYLOADS: [&str; 10] = [
    "{}",
    "[ ]",
    "-0.0e-0",
    r#""\ud800""#,
    r#"{"b":1,"a":2,"b":3}"#,
    r#"{"type":"x","payload":{"payload":1}}"#,
    r#""\"payload\":1""#,
    "18446744073709551616",
    "\"\u{2028}}\"",
    "[[[1,\r\n2]],{\"\":null}]",
];

/// Fields of an envelope in any order and with any space, and which payload it is.
fn envelopes() -> impl Strategy<Value = (String, &'static str)> {
    let fields = |payload: &'static str| {
        let fields = [
            r#""type" : "a.b""#.to_owned(),
            format!(r#""payload":{payload}"#),
            r#""metadata":{"k":"v"}"#.to_owned(),
            r#""uid":null"#.to_owned(),
        ];
        Just(fields.to_vec()).prop_shuffle()
    };
    (proptest::sample::select(&PAYLOADS), "[ \t\r\n]{0,3}")
        .prop_flat_map(move |(payload, space)| (fields(payload), Just(payload), Just(space)))
        .prop_map(|(fields, payload, space)| {
            let comma = format!("{space},{space}");
            (
                format!("{space}{{{space}{}{space}}}{space}", fields.join(&comma)),
                payload,
            )
        })
}

proptest! {
    /// INV-3.
    #[test]
    fn in_any_order_and_with_any_space_the_payload_is_what_stands_there((body, payload) in envelopes()) {
        let event = submit(body).unwrap();
        prop_assert_eq!(event.payload, payload);
    }

    /// INV-3: whatever becomes of a body on its way, what is taken from it is a payload, and what is not is told as 4xx.
    #[test]
    fn a_bent_body_is_refused_or_its_payload_is_whole(
        (body, _) in envelopes(),
        bends in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 0..4),
    ) {
        let mut bytes = body.into_bytes();
        for (at, byte, how) in bends {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => {}
            }
        }
        match submit(bytes) {
            Ok(event) => prop_assert_eq!(payload::check_json(&event.payload), Ok(())),
            Err(failure) => prop_assert!(failure.problem.status().is_client_error()),
        }
    }
}

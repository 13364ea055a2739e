//! Tests of the check of payloads (INV-3): what is JSON is taken as it is, by another parser's judgement too.

use proptest::prelude::*;

use super::*;

fn nested(depth: usize, open: &str, close: &str) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

#[test]
fn every_kind_of_value_is_json_with_white_space_around() {
    for text in [
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-0",
        "\"hi\"",
        "5",
        " \t\r\n{ } \n",
        r#"{"a":[1,{"b":null}],"a":2}"#,
        "[[],{}]",
        r#"{"":""}"#,
    ] {
        assert_eq!(check_json(text.as_bytes()), Ok(()), "{text}");
    }
}

#[test]
fn numbers_have_no_bounds_and_no_spelling_of_ours() {
    let text = r#"{"a":9007199254740993,"b":18446744073709551616,"c":1.0,"d":1e3,"e":-0,"f":1E400,"g":-1.7976931348623157e+308,"h":1.10,"i":1E-7}"#;
    assert_eq!(check_json(text.as_bytes()), Ok(()));
    assert_eq!(check_json("1".repeat(100_000).as_bytes()), Ok(()));
}

#[test]
fn escapes_of_lone_surrogates_and_of_nul_are_json() {
    for text in [
        r#"{"t":"\ud800"}"#,
        r#"{"t":"a\u0000b"}"#,
        r#""\uDFFF\uD800""#,
        r#""\"\\\/\b\f\n\r\t""#,
        "\"😀é\u{7f}\u{2028}\"",
    ] {
        assert_eq!(check_json(text.as_bytes()), Ok(()), "{text}");
    }
}

#[test]
fn what_is_special_in_a_string_is_found_wherever_it_stands() {
    for length in 0..70 {
        for at in 0..length {
            let string = |special: &str| {
                format!("\"{}{special}{}\"", "x".repeat(at), "y".repeat(length - at))
            };
            assert_eq!(check_json(string("\\n").as_bytes()), Ok(()));
            for special in ["\n", "\u{0}", "\u{1f}"] {
                let refused = check_json(string(special).as_bytes());
                assert_eq!(refused, Err(PayloadError::Syntax(at + 1)));
            }
            let refused = check_json(string("\"").as_bytes());
            assert_eq!(refused, Err(PayloadError::Syntax(at + 2)));
        }
    }
}

#[test]
fn what_is_not_json_is_refused_where_it_stops_being_so() {
    use PayloadError::{End, Syntax};
    let cases = [
        ("", End),
        (" ", End),
        ("{", End),
        ("[1", End),
        ("\"a", End),
        ("\"\\", End),
        ("\"\\u12", End),
        ("tru", End),
        ("-", End),
        ("1e", End),
        ("1.", End),
        ("{\"a\"", End),
        ("{\"a\":", End),
        ("{\"a\":1", End),
        ("[1,", End),
        ("[1,]", Syntax(3)),
        ("{\"a\":1,}", Syntax(7)),
        ("{,}", Syntax(1)),
        ("[,1]", Syntax(1)),
        ("{a:1}", Syntax(1)),
        ("{'a':1}", Syntax(1)),
        ("{\"a\" 1}", Syntax(5)),
        ("{\"a\":1 \"b\":2}", Syntax(7)),
        ("[1 2]", Syntax(3)),
        ("[1}", Syntax(2)),
        ("{\"a\":1]", Syntax(6)),
        ("01", Syntax(1)),
        ("-01", Syntax(2)),
        ("+1", Syntax(0)),
        (".5", Syntax(0)),
        ("1.e3", Syntax(2)),
        ("1e+", End),
        ("0x10", Syntax(1)),
        ("NaN", Syntax(0)),
        ("Infinity", Syntax(0)),
        ("-Infinity", Syntax(1)),
        ("True", Syntax(0)),
        ("nul1", Syntax(3)),
        ("nulll", Syntax(4)),
        ("{} {}", Syntax(3)),
        ("1 2", Syntax(2)),
        ("// x\n1", Syntax(0)),
        ("[1]//", Syntax(3)),
        ("\"\\x41\"", Syntax(2)),
        ("\"\\u12g4\"", Syntax(5)),
        ("\"a\nb\"", Syntax(2)),
        ("\"a\0b\"", Syntax(2)),
        ("\"\t\"", Syntax(1)),
        ("\0", Syntax(0)),
        ("1\0", Syntax(1)),
        ("\u{a0}1", Syntax(0)),
        ("]", Syntax(0)),
        ("}", Syntax(0)),
        (":", Syntax(0)),
        ("\"a\":1", Syntax(3)),
    ];
    for (text, error) in cases {
        assert_eq!(check_json(text.as_bytes()), Err(error), "{text:?}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused() {
    assert_eq!(check_json(b"\xff\xfe\x00"), Err(PayloadError::Utf8(0)));
    assert_eq!(check_json(b"\"caf\xe9\""), Err(PayloadError::Utf8(4)));
    assert_eq!(check_json(b"\"\xed\xa0\x80\""), Err(PayloadError::Utf8(1)));
}

#[test]
fn a_byte_order_mark_is_refused() {
    assert_eq!(
        check_json(b"\xef\xbb\xbf{}"),
        Err(PayloadError::ByteOrderMark)
    );
}

#[test]
fn there_are_at_most_128_levels() {
    for (open, close) in [("[", "]"), ("{\"a\":[", "]}")] {
        let per_turn = open.matches(['[', '{']).count();
        let text = nested(128 / per_turn, open, close);
        assert_eq!(check_json(text.as_bytes()), Ok(()));
    }
    assert_eq!(
        check_json(nested(129, "[", "]").as_bytes()),
        Err(PayloadError::TooDeep(128))
    );
    assert_eq!(
        check_json(nested(500_000, "[", "]").as_bytes()),
        Err(PayloadError::TooDeep(128))
    );
    let wide = format!("[{}1]", "[],".repeat(10_000));
    assert_eq!(check_json(wide.as_bytes()), Ok(()));
}

fn values() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "\\PC{0,8}".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Into::into),
            proptest::collection::vec(("\\PC{0,5}", inner), 0..5)
                .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Texts near JSON, so that both answers are common.
fn near_json() -> impl Strategy<Value = String> {
    "[\\[\\]{}:,\"\\\\ntrufalse0-9eE.+ -]{0,24}"
}

/// What another parser says; it looks at surrogates and sizes, which are left out of the texts above.
fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(text).is_ok()
}

proptest! {
    #[test]
    fn what_is_written_as_json_is_json(value in values()) {
        prop_assert_eq!(check_json(&serde_json::to_vec(&value).unwrap()), Ok(()));
        prop_assert_eq!(check_json(&serde_json::to_vec_pretty(&value).unwrap()), Ok(()));
    }

    #[test]
    fn a_text_near_json_is_judged_as_by_another_parser(text in near_json()) {
        prop_assert_eq!(check_json(text.as_bytes()).is_ok(), is_json(text.as_bytes()), "{}", text);
    }

    #[test]
    fn a_json_text_with_one_byte_changed_is_judged_as_by_another_parser(value in values(), place in any::<prop::sample::Index>(), byte in 0_u8..128) {
        let mut text = serde_json::to_vec(&value).unwrap();
        let at = place.index(text.len());
        text[at] = byte;
        prop_assert_eq!(check_json(&text).is_ok(), is_json(&text));
    }

    #[test]
    fn no_bytes_make_the_check_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = check_json(&bytes);
    }
}

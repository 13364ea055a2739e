//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

fn event_type(text: &str) -> EventType {
    EventType::parse(text).unwrap()
}

fn takes(pattern: &str, text: &str) -> bool {
    EventTypePattern::parse(pattern)
        .unwrap()
        .matches(&event_type(text))
}

#[test]
fn names_of_one_to_eight_parts_are_types() {
    let long = "x".repeat(128);
    for text in ["a", "invoice.paid", "A-b_c.9", "a.b.c.d.e.f.g.h", &long] {
        assert_eq!(event_type(text).as_str(), text);
    }
}

#[test]
fn what_could_be_mistaken_or_break_a_header_is_no_type() {
    let cases = [
        ("", EventTypeError::Empty),
        (".", EventTypeError::EmptyPart),
        ("a.", EventTypeError::EmptyPart),
        (".a", EventTypeError::EmptyPart),
        ("a..b", EventTypeError::EmptyPart),
        ("a\r\nX-Evil: 1", EventTypeError::Character),
        ("a\0b", EventTypeError::Character),
        ("user.créé", EventTypeError::Character),
        ("a b", EventTypeError::Character),
        ("a/b", EventTypeError::Character),
        ("a.*", EventTypeError::Star),
        ("**", EventTypeError::Star),
        ("a.b.c.d.e.f.g.h.i", EventTypeError::TooManyParts),
    ];
    for (text, error) in cases {
        assert_eq!(EventType::parse(text), Err(error), "{text:?}");
    }
    assert_eq!(
        EventType::parse(&"x".repeat(129)),
        Err(EventTypeError::TooLong)
    );
    assert_eq!(
        EventType::parse(&"x".repeat(300)),
        Err(EventTypeError::TooLong)
    );
}

#[test]
fn a_star_is_a_whole_part_and_two_stars_come_last() {
    for text in ["*", "**", "a.*", "*.b", "a.**", "*.*", "*.**", "a.*.c"] {
        assert!(EventTypePattern::parse(text).is_ok(), "{text}");
    }
    for text in [
        "inv*", "*paid", "**.a", "a.**.b", "**.**", "***", "a.b*", "a.*b.c",
    ] {
        assert_eq!(
            EventTypePattern::parse(text),
            Err(EventTypeError::Star),
            "{text}"
        );
    }
}

#[test]
fn a_pattern_takes_exactly_the_types_that_it_says() {
    let taken = [
        ("a.b", "a.b"),
        ("a.*", "a.b"),
        ("*.b", "a.b"),
        ("**", "a"),
        ("**", "a.b.c"),
        ("invoice.**", "invoice.paid"),
        ("invoice.**", "invoice.payment.failed"),
        ("*.**", "a.b"),
    ];
    for (pattern, text) in taken {
        assert!(takes(pattern, text), "{pattern} takes {text}");
    }
    let left = [
        ("a.b", "A.b"),
        ("A.B", "a.b"),
        ("a.bc", "a.b"),
        ("a.b", "a.bc"),
        ("a.*", "a"),
        ("a.*", "a.b.c"),
        ("*", "a.b"),
        ("invoice.**", "invoice"),
        ("*.**", "a"),
        ("a", "a.b"),
        ("a.b", "a"),
    ];
    for (pattern, text) in left {
        assert!(!takes(pattern, text), "{pattern} leaves {text}");
    }
}

#[test]
fn only_a_pattern_without_a_star_is_exact() {
    assert_eq!(
        EventTypePattern::parse("a.b").unwrap().is_exact(),
        Some("a.b")
    );
    assert_eq!(EventTypePattern::parse("a.*").unwrap().is_exact(), None);
    assert_eq!(EventTypePattern::parse("**").unwrap().is_exact(), None);
}

#[test]
fn types_and_patterns_in_json_are_their_text_and_checked() {
    assert_eq!(
        serde_json::to_string(&event_type("a.b")).unwrap(),
        "\"a.b\""
    );
    assert!(serde_json::from_str::<EventType>("\"a.*\"").is_err());
    assert!(serde_json::from_str::<EventTypePattern>("\"a.*\"").is_ok());
    assert!(serde_json::from_str::<EventTypePattern>("\"a.\\u0000\"").is_err());
}

proptest! {
    #[test]
    fn every_type_is_a_pattern_that_takes_itself_alone(one in "[a-zA-Z0-9_-]{1,6}(\\.[a-zA-Z0-9_-]{1,6}){0,4}", two in "[ab](\\.[ab]){0,3}") {
        let pattern = EventTypePattern::parse(&one).unwrap();
        prop_assert!(pattern.matches(&event_type(&one)));
        prop_assert_eq!(pattern.matches(&event_type(&two)), one == two);
        prop_assert!(takes("**", &one));
    }

    #[test]
    fn stars_count_parts(text in "[ab](\\.[ab]){0,5}", stars in 1_usize..6) {
        let parts = text.split('.').count();
        let single = vec!["*"; stars].join(".");
        prop_assert_eq!(takes(&single, &text), parts == stars);
        let open = format!("{single}.**");
        prop_assert_eq!(takes(&open, &text), parts > stars);
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,200}") {
        let _ = (EventType::parse(&text), EventTypePattern::parse(&text));
    }
}

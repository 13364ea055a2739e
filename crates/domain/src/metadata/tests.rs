//! Tests of the module that this file stands beside.

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn refusal(key: &str, value: &str) -> Option<MetadataError> {
    Metadata::parse(pairs(&[(key, value)])).err()
}

#[test]
fn metadata_has_at_most_20_pairs() {
    let many = |n: usize| {
        (0..n)
            .map(|i| (i.to_string(), String::new()))
            .collect::<BTreeMap<_, _>>()
    };
    assert!(Metadata::parse(many(20)).is_ok());
    assert_eq!(Metadata::parse(many(21)), Err(MetadataError::TooMany));
}

#[test]
fn keys_and_values_are_counted_in_characters() {
    assert_eq!(
        refusal(&"\u{e9}".repeat(64), &"\u{1f600}".repeat(500)),
        None
    );
    assert_eq!(refusal(&"k".repeat(65), ""), Some(MetadataError::Key));
    assert_eq!(refusal("", ""), Some(MetadataError::Key));
    assert_eq!(refusal("k", &"v".repeat(501)), Some(MetadataError::Value));
}

#[test]
fn a_nul_is_refused_wherever_it_stands() {
    assert_eq!(refusal("a\0b", ""), Some(MetadataError::Nul));
    assert_eq!(refusal("k", "a\0b"), Some(MetadataError::Nul));
    assert!(serde_json::from_str::<Metadata>(r#"{"k":"a\u0000b"}"#).is_err());
}

#[test]
fn json_is_an_object_of_strings() {
    let metadata = Metadata::parse(pairs(&[("b", "2"), ("a", "1")])).unwrap();
    let json = serde_json::to_string(&metadata).unwrap();
    assert_eq!(json, r#"{"a":"1","b":"2"}"#);
    assert_eq!(serde_json::from_str::<Metadata>(&json).unwrap(), metadata);
    for json in [r#"{"a":1}"#, r#"{"a":null}"#, r#"["a"]"#, "null"] {
        assert!(serde_json::from_str::<Metadata>(json).is_err(), "{json}");
    }
}

use super::*;

fn refusal(text: &str) -> ContentTypeError {
    match ContentType::parse(text) {
        Ok(taken) => panic!("{taken:?} was taken"),
        Err(error) => error,
    }
}

#[test]
fn a_type_is_kept_byte_for_byte() {
    for text in [
        "application/json",
        "application/JSON",
        "Application/Json ; charset=\"UTF-8\"",
        "application/cloudevents+json; charset=utf-8",
        "application/vnd.acme.v2+json;profile=\"a;b=\\\"c\\\"\"",
        "image/svg+xml",
        "TEXT/plain;Charset=ISO-8859-1; format=flowed",
        "text/csv;header=present;",
        "text/csv;;header=present",
        "application/x-ndjson",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "application/xml;charset=utf-16",
        "text/xml\t;\tcharset=us-ascii",
    ] {
        assert_eq!(ContentType::parse(text).unwrap().as_str(), text);
    }
    for text in TYPES {
        assert_eq!(ContentType::parse(text).unwrap().as_str(), text);
    }
}

#[test]
fn what_is_no_media_type_is_refused() {
    for text in [
        "",
        " ",
        "json",
        "/json",
        "text/",
        "text/plain text",
        "text/plain,text/csv",
        "text/plain; charset",
        "text/plain; charset=",
        "text/plain; =utf-8",
        "text/plain; charset =utf-8",
        "text/plain; charset= utf-8",
        "text/plain; a=\"b",
        "text/plain; a=\"b\\\"",
        "text/plain; a=\"b\"c",
        "text/plain; charset=utf-8; charset=latin1",
        "text/plain\r\nX-Evil: 1",
        "text/plain; a=\"\r\nX-Evil: 1\"",
        "text/plain; a=\"\0\"",
        "text/plain; a=é",
        "text/plain; a=\"é\"",
        "text/pl\u{e4}in",
    ] {
        assert_eq!(refusal(text), ContentTypeError::Syntax, "{text:?}");
    }
}

#[test]
fn other_types_are_refused() {
    for text in [
        "text/html",
        "image/png",
        "multipart/form-data; boundary=x",
        "application/+json",
        "application/json+",
        "application/jsonx",
        "application/xjson",
        "json/application",
        "*/*",
    ] {
        assert_eq!(refusal(text), ContentTypeError::Unknown, "{text}");
    }
}

#[test]
fn json_is_in_utf_8() {
    for text in [
        "application/json; charset=latin1",
        "application/json;charset=utf-16",
        "application/a+json;charset=\"iso-8859-1\"",
    ] {
        assert_eq!(refusal(text), ContentTypeError::Charset, "{text}");
    }
}

#[test]
fn a_type_has_255_bytes() {
    let of = |bytes: usize| format!("text/plain; a={}", "b".repeat(bytes - 14));
    assert!(ContentType::parse(&of(255)).is_ok());
    assert_eq!(refusal(&of(256)), ContentTypeError::TooLong);
}

#[test]
fn a_type_says_whether_it_is_json() {
    let is_json = |text: &str| {
        let read = ContentType::parse(text).unwrap();
        assert_eq!(read, ContentType::kept(text.to_owned()));
        read.is_json()
    };
    for text in [
        "application/json",
        "APPLICATION/json ; a=b",
        "application/problem+JSON;a=b",
        "image/a+json",
    ] {
        assert!(is_json(text), "{text}");
    }
    for text in TYPES.into_iter().skip(1) {
        assert!(!is_json(text), "{text}");
    }
    assert!(!is_json("application/soap+xml; action=\"a+json\""));
}

#[test]
fn only_plain_json_takes_no_room() {
    assert_eq!(
        ContentType::parse("application/json").unwrap().unusual(),
        None
    );
    for text in ["application/json;charset=utf-8", "Application/json"] {
        assert_eq!(ContentType::parse(text).unwrap().unusual(), Some(text));
    }
}

#[test]
fn a_type_that_a_later_version_took_is_still_sent() {
    assert_eq!(
        ContentType::kept("text/html".to_owned()).as_str(),
        "text/html"
    );
}

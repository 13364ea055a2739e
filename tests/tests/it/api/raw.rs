//! POST /v1/events/raw: the body is the payload, of whatever type, and the query says the rest.

use axum::body::Body;
use http::Method;
use http::header::{
    CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    EXPECT, X_CONTENT_TYPE_OPTIONS,
};
use posthorn_domain::limits;
use serde_json::{Value, json};

use super::bodies::{CHUNK, endless, unreadable};
use super::{Answer, Api, Program, text};

const RAW: &str = "/v1/events/raw";
const PAID: &str = "/v1/events/raw?type=order.paid";

impl Program<'_> {
    /// POST of these bytes as this type.
    async fn raw(&self, path: &str, content_type: &str, body: &[u8]) -> Answer {
        self.raw_with(path, &[("content-type", content_type)], body)
            .await
    }

    async fn raw_with(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let request = headers.iter().fold(
            self.request(Method::POST, path),
            |request, (name, value)| request.header(*name, *value),
        );
        let request = request.body(Body::from(body.to_vec())).unwrap();
        self.api.send(request).await
    }

    /// The same under the key `k`.
    async fn raw_k(&self, path: &str, content_type: &str, body: &[u8]) -> Answer {
        let headers = [("content-type", content_type), ("idempotency-key", "k")];
        self.raw_with(path, &headers, body).await
    }
}

fn is_replayed(answer: &Answer) -> bool {
    answer.headers.contains_key("idempotency-replayed")
}

/// INV-3; A14, A18.
#[tokio::test]
async fn a_raw_payload_is_read_back_as_it_was_with_its_type() {
    let api = Api::start().await;
    let program = api.program().await;
    let large = vec![b'<'; 100_000];
    for (content_type, body) in [
        ("text/plain", b"hello".as_slice()),
        ("text/plain; charset=ISO-8859-1", b"caf\xe9\r\n"),
        ("text/plain", b""),
        ("application/octet-stream", b"\xff\xfe\x00"),
        ("application/octet-stream", b""),
        ("application/xml", b"<a/>"),
        ("text/xml;charset=utf-16", b"\xfe\xff\0<\0a\0/\0>"),
        ("image/svg+xml", &large),
        ("text/csv; header=present", b"a,b\r\n1,2\r\n"),
        ("application/x-ndjson", b"{\"a\":1}\n{\"a\":2}\n"),
        ("application/x-www-form-urlencoded", b"a=%00&a=+&b"),
        (
            "application/json",
            b" {\"a\" : 1.0, \"a\":\"\\ud800\\u0000\"}\n",
        ),
        ("Application/JSON;charset=\"utf-8\"", b"null"),
        (
            "application/cloudevents+json",
            br#"{"specversion":"1.0","id":"1"}"#,
        ),
    ] {
        let accepted = program.raw(PAID, content_type, body).await.expect(202);
        assert_eq!(accepted["type"], "order.paid");
        let path = format!("/v1/events/{}", text(&accepted, "id"));
        let event = program.get(&path).await.expect(200);
        assert_eq!(event["content_type"], content_type);
        assert_eq!(event["size"], json!(body.len()));
        let read = program.get(&format!("{path}/payload")).await;
        assert_eq!(
            (read.status.as_u16(), read.bytes.as_slice()),
            (200, body),
            "{content_type}"
        );
    }
}

/// What is stored is served as a file, whatever it says that it is: a page of a tenant's must not run where the console does.
#[tokio::test]
async fn a_raw_payload_that_is_a_page_is_served_as_a_file_that_no_browser_runs() {
    let api = Api::start().await;
    let program = api.program().await;
    let page = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>";
    let accepted = program.raw(PAID, "image/svg+xml", page).await.expect(202);
    let path = format!("/v1/events/{}/payload", text(&accepted, "id"));
    let headers = program.get(&path).await.headers;
    assert_eq!(headers[CONTENT_TYPE], "application/octet-stream");
    assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    let text = |name| headers[name].to_str().unwrap().to_owned();
    assert!(text(CONTENT_DISPOSITION).starts_with("attachment"));
    assert!(text(CONTENT_SECURITY_POLICY).contains("sandbox"));
}

#[tokio::test]
async fn a_raw_event_takes_no_room_in_the_log_for_the_type_that_nearly_all_have() {
    let api = Api::start().await;
    let program = api.program().await;
    for content_type in ["application/json", "application/json; charset=utf-8"] {
        program.raw(PAID, content_type, b"{}").await.expect(202);
    }
    let kept = "SELECT count(content_type) FROM events";
    assert_eq!(api.rows.number(kept).await, 1);
}

/// A07, A14, E16: what says that it is JSON is.
#[tokio::test]
async fn a_raw_payload_whose_type_is_json_must_be_json() {
    let api = Api::start().await;
    let program = api.program().await;
    let deep = format!("{}{}", "[".repeat(129), "]".repeat(129));
    for content_type in [
        "application/json",
        "application/json;charset=utf-8",
        "application/cloudevents+json",
    ] {
        for body in [
            b"".as_slice(),
            b"hello",
            b"{} {}",
            b"{\"a\":1,}",
            b"\xef\xbb\xbf{}",
            b"\"caf\xe9\"",
        ] {
            let refused = program.raw(PAID, content_type, body).await;
            refused.refuses(400, "malformed_json");
        }
        let refused = program.raw(PAID, content_type, deep.as_bytes()).await;
        let refused = refused.refuses(422, "payload_too_deep");
        assert_eq!(refused["errors"][0]["pointer"], "");
    }
    let as_text = program.raw(PAID, "text/plain", deep.as_bytes()).await;
    as_text.expect(202);
    assert_eq!(api.rows.number("SELECT count(*) FROM events").await, 1);
}

/// A18, A23, E16.
#[tokio::test]
async fn a_raw_payload_has_one_type_of_those_that_are_listed() {
    let api = Api::start().await;
    let program = api.program().await;
    let long = format!("text/plain; a={}", "b".repeat(242));
    let json = ("content-type", "application/json");
    for headers in [
        [].as_slice(),
        &[json, json],
        &[("content-type", "text/plain"), json],
        &[("content-type", "")],
        &[("content-type", "text/html")],
        &[("content-type", "multipart/form-data; boundary=x")],
        &[("content-type", "application/json; charset=latin1")],
        &[("content-type", "text/plain; a=\u{e9}")],
        &[("content-type", "text/plain, text/csv")],
        &[("content-type", &long)],
    ] {
        let refused = program.raw_with(PAID, headers, b"{}").await;
        let refused = refused.refuses(415, "content_type_unsupported");
        let detail = text(&refused, "detail");
        assert!(detail.contains("application/x-ndjson"), "{detail}");
    }
    let longest = long.trim_end_matches('b');
    let longest = format!("{longest}{}", "b".repeat(241));
    program.raw(PAID, &longest, b"").await.expect(202);
}

/// A16.
#[tokio::test]
async fn a_raw_payload_that_is_encoded_is_refused_unread() {
    let api = Api::start().await;
    let program = api.program().await;
    let request = program
        .request(Method::POST, PAID)
        .header(CONTENT_TYPE, "text/plain")
        .header(CONTENT_ENCODING, "gzip");
    let refused = api.send(request.body(unreadable()).unwrap()).await;
    refused.refuses(415, "content_encoding_unsupported");
    let anonymous = http::Request::post(PAID).header(CONTENT_TYPE, "text/plain");
    let refused = api.send(anonymous.body(unreadable()).unwrap()).await;
    refused.refuses(401, "unauthenticated");
}

/// A15.
#[tokio::test]
async fn a_raw_payload_of_1_mib_is_taken_and_one_byte_more_is_not() {
    let api = Api::start().await;
    let program = api.program().await;
    let bytes = |count: usize| vec![0xff; count];
    let of = "application/octet-stream";
    for count in [limits::PAYLOAD_BYTES - 1, limits::PAYLOAD_BYTES] {
        program.raw(PAID, of, &bytes(count)).await.expect(202);
    }
    let over = bytes(limits::PAYLOAD_BYTES + 1);
    let refused = program.raw(PAID, of, &over).await;
    let refused = refused.refuses(413, "payload_too_large");
    assert_eq!(refused["detail"], "a payload has at most 1048576 bytes");
}

/// A15: in chunks, without a length.
#[tokio::test]
async fn a_raw_payload_without_end_is_read_on_for_a_while_and_cut() {
    let api = Api::start().await;
    let program = api.program().await;
    let asked = || {
        program
            .request(Method::POST, PAID)
            .header(CONTENT_TYPE, "text/plain")
    };
    let (given, counted) = endless();
    let refused = api.send(asked().body(given).unwrap()).await;
    refused.refuses(413, "payload_too_large");
    let read = counted.load(std::sync::atomic::Ordering::Relaxed);
    let most = limits::PAYLOAD_BYTES + limits::DISCARDED_BODY_BYTES + 2 * CHUNK;
    assert!(read <= most, "{read} bytes were read");
    let asked = asked()
        .header(CONTENT_LENGTH, "50000000")
        .header(EXPECT, "100-continue");
    let refused = api.send(asked.body(unreadable()).unwrap()).await;
    refused.refuses(413, "payload_too_large");
}

/// A11, A23, E15.
#[tokio::test]
async fn the_query_of_a_raw_event_is_read_strictly() {
    let api = Api::start().await;
    let program = api.program().await;
    let long = "a".repeat(129);
    for (query, code, pointers) in [
        ("", "parameter_missing", &["?type"][..]),
        ("?uid=a", "parameter_missing", &["?type"]),
        ("?type=", "event_type_invalid", &["?type"]),
        ("?type", "event_type_invalid", &["?type"]),
        ("?type=a%00b", "event_type_invalid", &["?type"]),
        ("?type=a%0D%0AX-Evil:%201", "event_type_invalid", &["?type"]),
        (
            "?type=user.cr%C3%A9%C3%A9",
            "event_type_invalid",
            &["?type"],
        ),
        ("?type=%FF", "event_type_invalid", &["?type"]),
        ("?type=a+b", "event_type_invalid", &["?type"]),
        ("?type=a..b", "event_type_invalid", &["?type"]),
        (&format!("?type={long}"), "event_type_invalid", &["?type"]),
        ("?type=a&type=a", "parameter_invalid", &["?type"]),
        ("?type=a&%74ype=b", "parameter_invalid", &["?type"]),
        ("?type=a&uid=b&uid=b", "parameter_invalid", &["?uid"]),
        ("?type=a&uid=", "uid_invalid", &["?uid"]),
        ("?type=a&uid=%00", "uid_invalid", &["?uid"]),
        ("?type=a&uid=evt_1", "uid_invalid", &["?uid"]),
        ("?type=a&Type=b", "parameter_unknown", &["?Type"]),
        (
            "?type=a&application=b",
            "parameter_unknown",
            &["?application"],
        ),
        ("?type=a&%00=b", "parameter_unknown", &["?\0"]),
        ("?type=a&&=", "parameter_unknown", &["?"]),
        ("?type=a;uid=b", "event_type_invalid", &["?type"]),
        (
            "?type=.&uid=/&x=1",
            "invalid_request",
            &["?type", "?uid", "?x"],
        ),
    ] {
        let path = format!("{RAW}{query}");
        let refused = program.raw(&path, "text/plain", b"x").await;
        let refused = refused.refuses(422, code);
        let named: Vec<_> = refused["errors"].as_array().unwrap().iter().collect();
        let named: Vec<_> = named.iter().map(|error| text(error, "pointer")).collect();
        assert_eq!(named, pointers, "{query}");
    }
    assert_eq!(api.rows.number("SELECT count(*) FROM events").await, 0);
    let path = format!("{RAW}?type=a%2Eb");
    let escaped = program.raw(&path, "text/plain", b"x").await;
    assert_eq!(escaped.expect(202)["type"], "a.b");
}

/// E01: type, uid, content type and body are what a submission is told apart by.
#[tokio::test]
async fn a_raw_event_under_the_same_key_is_the_same_or_refused() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = program.raw_k(PAID, "text/plain", b"x").await;
    let again = program
        .raw_k(&PAID.replace('.', "%2e"), "text/plain", b"x")
        .await;
    first.expect(202);
    assert_eq!(first.bytes, again.bytes);
    assert_eq!((is_replayed(&first), is_replayed(&again)), (false, true));
    for (path, content_type, body) in [
        (PAID, "text/plain", b"y".as_slice()),
        (PAID, "text/plain", b""),
        (PAID, "text/csv", b"x"),
        (PAID, "text/plain; charset=utf-8", b"x"),
        ("/v1/events/raw?type=order.paid2", "text/plain", b"x"),
        ("/v1/events/raw?type=order.paid&uid=u", "text/plain", b"x"),
        // Whatever is wrong with it, the key comes first.
        ("/v1/events/raw?type=..", "text/plain", b"x"),
        (RAW, "text/plain", b"x"),
        (PAID, "application/json", b"x"),
    ] {
        let refused = program.raw_k(path, content_type, body).await;
        refused.refuses(422, "idempotency_key_reused");
    }
    assert_eq!(api.rows.number("SELECT count(*) FROM events").await, 1);
}

/// E04, E07: a key is of its route; a uid is of the event, whichever way it came.
#[tokio::test]
async fn a_raw_event_shares_uids_with_other_events_and_keys_with_none() {
    let api = Api::start().await;
    let program = api.program().await;
    let event = json!({ "type": "order.paid", "payload": "x", "uid": "u" }).to_string();
    let of_raw = program.raw_k(PAID, "text/plain", b"x").await.expect(202);
    let headers = [
        ("content-type", "application/json"),
        ("idempotency-key", "k"),
    ];
    let first = program.raw_with("/v1/events", &headers, event.as_bytes());
    let first = first.await.expect(202);
    assert_ne!(of_raw["id"], first["id"]);

    // The very bytes that made that event, as a payload, are another event.
    let path = format!("{PAID}&uid=u");
    for body in [b"\"x\"".as_slice(), event.as_bytes()] {
        let refused = program.raw(&path, "application/json", body).await;
        let refused = refused.refuses(422, "uid_reused");
        assert_eq!(refused["errors"][0]["pointer"], "?uid");
    }
    let path = format!("{PAID}&uid=v");
    let made = program.raw(&path, "text/plain", b"x").await;
    let again = program.raw(&path, "text/plain", b"x").await;
    assert_eq!(made.expect(202)["uid"], "v");
    assert_eq!(
        (made.bytes, true),
        (again.bytes.clone(), is_replayed(&again))
    );
    let other = program.raw(&path, "text/plain", b"y").await;
    other.refuses(422, "uid_reused");
    assert_eq!(api.rows.number("SELECT count(*) FROM events").await, 3);
}

#[tokio::test]
async fn the_document_lists_the_types_that_a_raw_payload_may_have() {
    use posthorn_domain::content_type::{ContentType, TYPES};

    let document: Value = serde_json::from_str(&posthorn_api::openapi_json()).unwrap();
    let content = &document["paths"][RAW]["post"]["requestBody"]["content"];
    let listed: Vec<_> = content.as_object().unwrap().keys().collect();
    for content_type in &listed {
        assert!(ContentType::parse(content_type).is_ok(), "{content_type}");
    }
    for content_type in TYPES {
        assert!(
            listed.iter().any(|one| *one == content_type),
            "{content_type}"
        );
    }
}

/// The envelope of `body: standard` carries JSON.
#[tokio::test]
async fn an_event_that_is_not_json_is_not_for_an_endpoint_whose_body_is_standard() {
    let api = Api::start().await;
    let program = api.program().await;
    let standard = json!({ "body": "standard" });
    let exact = json!({ "body": "standard", "event_types": ["order.paid", "order.*"] });
    let made = program.endpoint(standard).await;
    program.endpoint(exact).await;
    program.endpoint(json!({})).await;
    let counted = async |content_type: &str| {
        let accepted = program.raw(PAID, content_type, b"1").await.expect(202);
        accepted["deliveries_count"].as_u64().unwrap()
    };
    for (content_type, count) in [
        ("text/plain", 1),
        ("application/octet-stream", 1),
        ("application/x-ndjson", 1),
        ("application/json", 3),
        ("application/cloudevents+json", 3),
    ] {
        assert_eq!(counted(content_type).await, count, "{content_type}");
    }
    let path = format!("/v1/endpoints/{}", text(&made, "id"));
    let plain = json!({ "body": null });
    program.patch(&path, &plain).await.expect(200);
    assert_eq!(counted("text/plain").await, 2);
}

//! Request bodies: bounded before they are buffered, read whole, and understood strictly.
//!
//! A body is refused by its headers where it can be (encoding, type, announced length), and cut at the limit
//! where it cannot. Faults are told by JSON pointers: the tree is never built only to find them.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use posthorn_domain::content_type::{ContentType, ContentTypeError};
use posthorn_domain::limits;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::{Path, Segment};

use crate::idempotent::IDEMPOTENCY_KEY;
use crate::problem::{Failure, Problem};
use crate::state::ApiState;

/// A JSON body of an operation that configures something.
#[derive(Debug)]
pub(crate) struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<ApiState> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Failure> {
        let bytes = read_json(
            request,
            state,
            limits::REQUEST_BODY_BYTES,
            Problem::BodyTooLarge,
        )
        .await?;
        parse(&bytes).map(Self)
    }
}

/// The body of an operation that takes none, or an empty object.
#[derive(Debug)]
pub(crate) struct NoBody;

/// An object without fields.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequest<ApiState> for NoBody {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Failure> {
        let JsonOrNothing(Nothing {}) = JsonOrNothing::from_request(request, state).await?;
        Ok(Self)
    }
}

/// A JSON body that may be left out: then everything has its default.
#[derive(Debug)]
pub(crate) struct JsonOrNothing<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<ApiState> for JsonOrNothing<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Failure> {
        refuse_headers(request.method(), request.headers())?;
        let typed = request.headers().contains_key(CONTENT_TYPE);
        let (parts, body) = request.into_parts();
        let bytes = collect(
            &parts.headers,
            body,
            state,
            limits::REQUEST_BODY_BYTES,
            Problem::BodyTooLarge,
        )
        .await?;
        if bytes.is_empty() {
            return Ok(Self(T::default()));
        }
        if !typed || !is_json(&parts.headers, &parts.method) {
            return Err(Failure::content_type_unsupported(&parts.method));
        }
        parse(&bytes).map(Self)
    }
}

/// Reads the body of a request that must be JSON, at most `limit` bytes of it; `too_large` says what a longer
/// one is.
///
/// # Errors
/// 415 for an encoding or another type, 413 over the limit, 408 after [`limits::BODY_WAIT`], 400 when it breaks off.
pub(crate) async fn read_json(
    request: Request,
    state: &ApiState,
    limit: usize,
    too_large: Problem,
) -> Result<Bytes, Failure> {
    refuse_headers(request.method(), request.headers())?;
    if !is_json(request.headers(), request.method()) {
        return Err(Failure::content_type_unsupported(request.method()));
    }
    let (parts, body) = request.into_parts();
    collect(&parts.headers, body, state, limit, too_large).await
}

/// Reads the body of a request that is a payload itself, and what it says that it is.
///
/// # Errors
/// 415 for an encoding, or a type that payloads do not have, 413 over 1 MiB, 408 after [`limits::BODY_WAIT`], 400 when it
/// breaks off.
pub(crate) async fn read_payload(
    request: Request,
    state: &ApiState,
) -> Result<(ContentType, Bytes), Failure> {
    refuse_headers(request.method(), request.headers())?;
    let content_type = payload_type(request.headers())?;
    let (parts, body) = request.into_parts();
    let bytes = collect(
        &parts.headers,
        body,
        state,
        limits::PAYLOAD_BYTES,
        Problem::PayloadTooLarge,
    )
    .await?;
    Ok((content_type, bytes))
}

/// Understands a JSON text.
///
/// # Errors
/// 400 where it is not JSON; 422 with a pointer where it is, but not what is wanted.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    // An array would be taken for an object's fields in their order, which nobody may rely on.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let object = first == Some(&b'{');
    // The plain pass is the fast one; only a text that fails is read again for the place of its fault.
    if object && let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    well_formed(bytes)?;
    if !object {
        let error = <serde_json::Error as serde::de::Error>::custom("expected an object");
        return Err(fault(String::new(), &error));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize(&mut deserializer) {
        Ok(value) => Ok(value),
        Err(error) => {
            let pointer = pointer(error.path());
            let error = error.into_inner();
            Err(if error.is_data() {
                fault(pointer, &error)
            } else {
                malformed(&error)
            })
        }
    }
}

/// Whether the bytes are one JSON value at all: that is said first, whatever else is wrong.
fn well_formed(bytes: &[u8]) -> Result<(), Failure> {
    if let Err(error) = std::str::from_utf8(bytes) {
        let detail = format!("not UTF-8 at byte {}", error.valid_up_to());
        return Err(Failure::with_detail(Problem::MalformedJson, detail));
    }
    serde_json::from_slice::<IgnoredAny>(bytes)
        .map(drop)
        .map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> Failure {
    Failure::with_detail(Problem::MalformedJson, error.to_string())
}

/// Tells the kinds of faults apart by serde's own words, which are part of its trait's contract.
fn fault(pointer: String, error: &serde_json::Error) -> Failure {
    let text = error.to_string();
    let detail = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(words, _)| words);
    let named = detail.split('`').nth(1).unwrap_or_default();
    if detail.starts_with("missing field") {
        return Failure::field(
            format!("{pointer}/{}", escape(named)),
            Problem::FieldMissing,
            detail,
        );
    }
    if detail.starts_with("unknown field") {
        let detail = detail
            .split_once(", expected")
            .map_or(detail, |(words, _)| words);
        return Failure::field(ending_with(pointer, named), Problem::FieldUnknown, detail);
    }
    if detail.starts_with("duplicate field") {
        return Failure::field(ending_with(pointer, named), Problem::FieldDuplicate, detail);
    }
    Failure::field(pointer, Problem::FieldInvalid, detail)
}

/// A fault of a key may be told with the key's path or with its object's.
fn ending_with(pointer: String, name: &str) -> String {
    let last = format!("/{}", escape(name));
    if pointer.ends_with(&last) {
        pointer
    } else {
        pointer + &last
    }
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.extend(["/", index.to_string().as_str()]),
            Segment::Map { key } => pointer.extend(["/", escape(key).as_str()]),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

/// A name as part of a JSON pointer (RFC 6901, section 3).
pub(crate) fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Refuses what a header asks for and we do not do, rather than ignore it.
fn refuse_headers(method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    if method != Method::POST && headers.contains_key(&IDEMPOTENCY_KEY) {
        return Err(Failure::with_detail(
            Problem::IdempotencyKeyUnsupported,
            "leave the header Idempotency-Key out: only POST takes one",
        ));
    }
    let plain = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if plain {
        Ok(())
    } else {
        Err(Failure::with_detail(
            Problem::ContentEncodingUnsupported,
            "send the body as it is, without Content-Encoding",
        ))
    }
}

/// The one content type of a payload.
fn payload_type(headers: &HeaderMap) -> Result<ContentType, Failure> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    // Of two nobody knows which receivers are to be told.
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(Failure::payload_type_unsupported(None));
    };
    value
        .to_str()
        .map_err(|_| ContentTypeError::Syntax)
        .and_then(ContentType::parse)
        .map_err(|error| Failure::payload_type_unsupported(Some(error)))
}

/// `application/json` in UTF-8; for PATCH also the merge patch's own type (RFC 7396).
fn is_json(headers: &HeaderMap, method: &Method) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    // Two would let the reader choose.
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let Ok(value) = value.to_str() else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    let json = essence.eq_ignore_ascii_case("application/json")
        || (*method == Method::PATCH
            && essence.eq_ignore_ascii_case("application/merge-patch+json"));
    json && parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        }
        _ => true,
    })
}

/// Reads a body whole, at most `limit` bytes of it.
///
/// # Errors
/// `too_large` over the limit, 408 after [`BODY_WAIT`], 400 when it breaks off.
pub(crate) async fn collect(
    headers: &HeaderMap,
    body: Body,
    state: &ApiState,
    limit: usize,
    too_large: Problem,
) -> Result<Bytes, Failure> {
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    // Who asks first is told before a byte of the body is sent.
    if announced.is_some_and(|length| length > limit as u64) && headers.contains_key(EXPECT) {
        return Err(Failure::new(too_large));
    }
    let room = announced.and_then(|length| usize::try_from(length).ok());
    tokio::select! {
        biased;
        read = take(body, room.unwrap_or_default(), limit, too_large) => read,
        () = state.clock().sleep(limits::BODY_WAIT) => Err(Failure::new(Problem::RequestTimeout)),
    }
}

/// The whole body, of at most `limit` bytes. What is over it is read on for a while and thrown away: a caller that
/// is still sending when the connection closes never sees the answer.
async fn take(
    mut body: Body,
    room: usize,
    limit: usize,
    too_large: Problem,
) -> Result<Bytes, Failure> {
    let mut taken = BytesMut::with_capacity(room.min(limit));
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failure::new(Problem::BodyUnreadable))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen = seen.saturating_add(data.len());
        if seen <= limit {
            taken.extend_from_slice(&data);
        } else if seen > limit.saturating_add(limits::DISCARDED_BODY_BYTES) {
            break;
        } else {
            taken = BytesMut::new();
        }
    }
    if seen > limit {
        return Err(Failure::new(too_large));
    }
    Ok(taken.freeze())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[expect(dead_code, reason = "read by serde alone")]
        inner: Inner,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "read by serde alone")]
        numbers: Vec<u8>,
    }

    fn refusal(text: &str) -> (Problem, String) {
        let failure = parse::<Outer>(text.as_bytes()).unwrap_err();
        let pointer = failure
            .faults
            .first()
            .map(|fault| fault.pointer.clone())
            .unwrap_or_default();
        (failure.problem, pointer)
    }

    #[test]
    fn an_unknown_field_is_named_by_its_pointer() {
        assert_eq!(
            refusal(r#"{"inner":{"numbers":[],"a/b":1}}"#),
            (Problem::FieldUnknown, "/inner/a~1b".into())
        );
    }

    #[test]
    fn a_missing_field_is_named_by_its_pointer() {
        assert_eq!(
            refusal(r#"{"inner":{}}"#),
            (Problem::FieldMissing, "/inner/numbers".into())
        );
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        let text = r#"{"inner":{"numbers":[],"numbers":[]}}"#;
        assert_eq!(
            refusal(text),
            (Problem::FieldDuplicate, "/inner/numbers".into())
        );
    }

    #[test]
    fn a_wrong_type_is_named_down_to_the_element() {
        assert_eq!(
            refusal(r#"{"inner":{"numbers":[1,"2"]}}"#),
            (Problem::FieldInvalid, "/inner/numbers/1".into())
        );
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
        let failure = parse::<String>(b"\"caf\xe9\"").unwrap_err();
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
}

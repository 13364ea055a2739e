//! Request bodies: bounded before they are buffered, read whole, and understood strictly.
//!
//! A body is refused by its headers where it can be (encoding, type, announced length), and cut at the limit
//! where it cannot. Faults are told by JSON pointers, all at once and without the values (see [`crate::shape`]): the tree is
//! never built only to find them.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, TRANSFER_ENCODING};
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use posthorn_domain::content_type::{ContentType, ContentTypeError};
use posthorn_domain::limits;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};
use utoipa::ToSchema;

use crate::faults::Faults;
use crate::idempotent::IDEMPOTENCY_KEY;
use crate::openapi::document;
use crate::problem::{Failure, Problem};
use crate::shape;
use crate::state::ApiState;

/// A JSON body of an operation that configures something, and what is wrong with it so far: the handler adds what it finds.
#[derive(Debug)]
pub(crate) struct Json<T>(pub T, pub Faults);

impl<T: DeserializeOwned + ToSchema> FromRequest<ApiState> for Json<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Failure> {
        let bytes = read_json(
            request,
            state,
            limits::REQUEST_BODY_BYTES,
            Problem::BodyTooLarge,
        )
        .await?;
        parse(&bytes).map(|(value, faults)| Self(value, faults))
    }
}

/// The body of an operation that takes none, or an empty object.
#[derive(Debug)]
pub(crate) struct NoBody;

/// An object without fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl FromRequest<ApiState> for NoBody {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, Failure> {
        let JsonOrNothing(Nothing {}, faults) = JsonOrNothing::from_request(request, state).await?;
        faults.finish()?;
        Ok(Self)
    }
}

/// As [`Json`], of a body that may be left out: then everything has its default.
#[derive(Debug)]
pub(crate) struct JsonOrNothing<T>(pub T, pub Faults);

impl<T: DeserializeOwned + Default + ToSchema> FromRequest<ApiState> for JsonOrNothing<T> {
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
            return Ok(Self(T::default(), Faults::default()));
        }
        if !typed || !is_json(&parts.headers, &parts.method) {
            return Err(Failure::content_type_unsupported(&parts.method));
        }
        parse(&bytes).map(|(value, faults)| Self(value, faults))
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

/// Understands a JSON text. Where fields of it are not what is wanted, their faults come with what can be understood without
/// them, so that the handler can tell its own faults beside these. Whoever goes on in spite of them is wrong.
///
/// # Errors
/// 400 where it is not JSON; 422 with a pointer where it is, and there is nothing to go on with.
pub(crate) fn parse<'a, T: Deserialize<'a> + ToSchema>(
    bytes: &'a [u8],
) -> Result<(T, Faults), Failure> {
    // An array would be taken for an object's fields in their order, which nobody may rely on.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    // The plain pass is the fast one; only a text that fails is read again for its faults.
    if first == Some(&b'{')
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Ok((value, Faults::default()));
    }
    well_formed(bytes)?;
    let raw: &RawValue = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
    let schema = serde_json::to_value(T::schema()).map_err(Failure::internal)?;
    let mut faults = Faults::default();
    if shape::check(document(), &schema, raw, &mut faults).is_err() || faults.is_empty() {
        return Err(not_taken::<T>(bytes));
    }
    match without_faulty(raw, &schema, &mut faults) {
        Some(value) => Ok((value, faults)),
        None => Err(faults.into()),
    }
}

/// What an object says beside its faulty fields. Where one of them is needed something stands in for it, of which no fault
/// is told.
fn without_faulty<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    schema: &Value,
    faults: &mut Faults,
) -> Option<T> {
    let members = shape::members(raw).ok()?;
    faults.leave_out();
    let kept = members
        .into_iter()
        .filter(|(name, _)| !faults.is_left_out(&escape(name)));
    let needed = schema.get("required").and_then(Value::as_array);
    let stand_ins = needed
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|name| faults.is_left_out(&escape(name)))
        .filter_map(|name| {
            // What is needed is a text, or any value.
            let text = serde_json::from_str::<&RawValue>("\"\"").ok()?;
            Some((Cow::Owned(name.to_owned()), text))
        });
    T::deserialize(MapDeserializer::new(kept.chain(stand_ins))).ok()
}

/// A body that is not taken though it has the shape that is described. The reader's own words are not told: they may repeat
/// the value.
fn not_taken<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Failure {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) if !error.inner().is_data() => malformed(error.inner()),
        read => {
            let pointer = read.err().map(|error| pointer(error.path()));
            let detail = "this cannot be taken here; the reference says what can";
            Failure::field(pointer.unwrap_or_default(), Problem::FieldInvalid, detail)
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

/// Refuses a body whose coding of transfer is not `chunked`, once and alone (RFC 9112, section 6.1): the server beneath would
/// take off the last one and pass on what the others have made of the body.
pub(crate) fn refuse_framing(headers: &HeaderMap) -> Result<(), Failure> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let plain = match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(one), None) => one.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    };
    if plain {
        Ok(())
    } else {
        Err(Failure::with_detail(
            Problem::TransferEncodingUnsupported,
            "send the body with Content-Length, or with `Transfer-Encoding: chunked` and no other coding",
        ))
    }
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
        return Err(Failure::too_large(too_large, limit));
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
        return Err(Failure::too_large(too_large, limit));
    }
    Ok(taken.freeze())
}

#[cfg(test)]
mod tests;

//! The envelope of a submitted event: read without building anything of the payload.
//!
//! The payload is a slice of the body, from the first byte of its JSON value to the last (INV-3). Skipping over
//! it and checking it are loops, not recursions, so nesting without end costs a bit a level and is refused at
//! 128. Every other field has a fixed type; an unknown one is refused before its value is looked at.

use std::borrow::Cow;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::TenantId;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::payload::{self, PayloadError};
use posthorn_domain::uid::Uid;
use posthorn_store::accept::{EventKeys, NewEvent};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::body::parse;
use crate::failure::header_faults;
use crate::faults::Faults;
use crate::problem::{Failure, Problem};
use crate::wire::{Pairs, moment};

/// What an `Idempotency-Key` of a submission is for.
pub(crate) const ROUTE: &str = "POST /v1/events";

/// An event to be submitted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventSubmission, example = json!({"type": "invoice.paid", "payload": {"id": 1, "amount": "99.90"}}))]
pub(crate) struct Envelope<'a> {
    /// Its type: 1 to 8 parts of `A-Z a-z 0-9 _ -` joined by dots.
    #[serde(rename = "type", borrow)]
    #[schema(value_type = String, max_length = 128, example = "invoice.paid")]
    type_: Cow<'a, str>,
    /// Any JSON value. Its bytes are kept, signed and sent as they stand here: at most 1 MiB and 128 levels.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value)]
    payload: &'a RawValue,
    /// Your own name for it: 1 to 128 of `A-Z a-z 0-9 . _ : -`. Within 24 hours a uid is taken once: the same body again
    /// gets the first answer, another body is refused.
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>, max_length = 128, example = "invoice-1017-paid")]
    uid: Option<Cow<'a, str>>,
    /// When it happened. Shown, never sent in the default form.
    #[serde(default, borrow)]
    #[schema(value_type = Option<String>, format = DateTime)]
    occurred_at: Option<Cow<'a, str>>,
    /// At most 20 pairs that are shown with the event and never sent.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    metadata: Option<Pairs<String>>,
    /// At most 10 headers that are sent with every attempt. One is left out where the endpoint has one of that name, in
    /// whatever case and with `_` for `-`.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    headers: Option<Pairs<String>>,
}

/// Reads a submitted event, whose `Idempotency-Key` is `key`. The payload shares the body's memory.
///
/// # Errors
/// 400 when the body is not JSON, 413 for a payload over 1 MiB, 422 for fields that are wrong, all at once.
pub(crate) fn read(
    tenant: TenantId,
    key: Option<IdempotencyKey>,
    body: &Bytes,
) -> Result<NewEvent, Failure> {
    let (envelope, mut faults): (Envelope<'_>, Faults) = parse(body)?;
    let payload = envelope.payload.get().as_bytes();
    if payload.len() > limits::PAYLOAD_BYTES {
        return Err(Failure::payload_too_large());
    }
    check_json(payload, "/payload", &mut faults)?;
    let event_type = faults.keep(
        "/type",
        Problem::EventTypeInvalid,
        EventType::parse(&envelope.type_),
    );
    let uid = envelope
        .uid
        .and_then(|uid| faults.keep("/uid", Problem::UidInvalid, Uid::parse(&uid)));
    let occurred_at = envelope
        .occurred_at
        .and_then(|text| take_time(&text, &mut faults));
    let metadata = Metadata::parse(envelope.metadata.unwrap_or_default().0);
    let metadata = faults.keep("/metadata", Problem::MetadataInvalid, metadata);
    let headers = CustomHeaders::parse_for_event(envelope.headers.unwrap_or_default().0);
    let headers =
        headers.map_err(|error| header_faults(&error).for_each(|fault| faults.note(fault)));
    match (event_type, metadata, headers) {
        (Some(event_type), Some(metadata), Ok(headers)) if faults.is_empty() => Ok(NewEvent {
            tenant,
            event_type,
            content_type: ContentType::JSON,
            payload: body.slice_ref(payload),
            occurred_at,
            metadata,
            headers,
            keys: EventKeys::of(ROUTE, key, uid, || BodyHash::of(body)),
        }),
        _ => Err(faults.into()),
    }
}

/// Whether a payload, which stands at `pointer` of its body, is JSON that is taken.
///
/// # Errors
/// 400 where it is not JSON. That it is too deep is a fault.
pub(crate) fn check_json(
    payload: &[u8],
    pointer: &str,
    faults: &mut Faults,
) -> Result<(), Failure> {
    match payload::check_json(payload) {
        Ok(()) => Ok(()),
        Err(error @ PayloadError::TooDeep(_)) => {
            faults.add(pointer, Problem::PayloadTooDeep, error.to_string());
            Ok(())
        }
        Err(error) => Err(Failure::with_detail(
            Problem::MalformedJson,
            error.to_string(),
        )),
    }
}

fn take_time(text: &str, faults: &mut Faults) -> Option<DateTime<Utc>> {
    let time = moment(text);
    if time.is_none() {
        faults.add(
            "/occurred_at",
            Problem::FieldInvalid,
            "occurred_at must be a time as in 2026-01-31T09:30:00Z, in the years 0 to 9999 of UTC",
        );
    }
    time
}

#[cfg(test)]
mod tests;

//! POST /v1/events/raw: an event is accepted whose payload is the body itself, of whatever type.

use axum::extract::{Request, State};
use bytes::Bytes;
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::metadata::Metadata;
use posthorn_domain::uid::Uid;
use posthorn_store::accept::{AcceptError, EventKeys, NewEvent};
use posthorn_store::idempotent::KeyedRequest;
use utoipa::IntoParams;

use super::create::{EventAccepted, Submission, Submitted, key_first};
use crate::authenticate::Caller;
use crate::body::read_payload;
use crate::envelope::check_json;
use crate::faults::Faults;
use crate::idempotent::key_of;
use crate::problem::{Failure, Problem};
use crate::query::Parameters;
use crate::state::ApiState;
use crate::wire::Binary;

/// What an `Idempotency-Key` of such a submission is for.
const ROUTE: &str = "POST /v1/events/raw";

/// What there is to say of an event beside its payload.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query; Parameters reads it")]
struct RawEventParameters {
    /// The event's type: 1 to 8 parts of `A-Z a-z 0-9 _ -` joined by dots.
    #[param(rename = "type", max_length = 128, example = "invoice.paid")]
    type_: String,
    /// Your own name for the event, as in `POST /v1/events`.
    #[param(max_length = 128, example = "invoice-1017-paid")]
    uid: Option<String>,
}

/// Submit an event whose payload is the body itself.
///
/// The body is kept, signed and sent byte for byte, and its `Content-Type` with it: 0 bytes to 1 MiB of any of the types
/// listed here, or of another type that ends in `+json` or `+xml`. Bytes of any other kind are sent as
/// `application/octet-stream`. A body whose type is JSON must be JSON, of at most 128 levels, so it is not empty.
///
/// Everything else is as in `POST /v1/events`. A submission is the same again when type, `uid`, `Content-Type` and body
/// are.
#[utoipa::path(
    post,
    path = "/v1/events/raw",
    operation_id = "create_raw_event",
    tag = "events",
    params(RawEventParameters),
    request_body(description = "The payload: 0 bytes to 1 MiB (1,048,576 bytes), of one of these types or of another that ends in `+json` or `+xml`.", content(
        (serde_json::Value = "application/json"),
        (serde_json::Value = "application/cloudevents+json"),
        (inline(Binary) = "application/octet-stream"),
        (String = "application/x-ndjson"),
        (String = "application/x-www-form-urlencoded"),
        (String = "application/xml"),
        (String = "text/csv"),
        (String = "text/plain"),
        (String = "text/xml"),
    )),
    responses((status = 202, description = "The event is accepted, now or by an earlier request with the same key.",
        body = EventAccepted))
)]
pub(super) async fn create_raw_event(
    State(state): State<ApiState>,
    caller: Caller,
    mut query: Parameters,
    request: Request,
) -> Result<Submitted, Failure> {
    let key = key_of(request.headers())?;
    let (content_type, body) = read_payload(request, &state).await?;
    let said = Said {
        type_: query.text("type"),
        uid: query.text("uid"),
        content_type,
        body,
    };
    let event = match said.checked(&caller, key.clone(), query) {
        Ok(event) => event,
        Err(failure) => {
            let keyed = key.map(|key| KeyedRequest {
                scope: caller.tenant(),
                route: ROUTE.to_owned(),
                key,
                body_hash: said.hash(),
            });
            return Err(key_first(&state, keyed, failure).await);
        }
    };
    let submission = Submission::of(&event);
    match state.acceptor().accept(event).await {
        Ok(accepted) => submission.answered(accepted),
        // The uid stands in the query here.
        Err(error @ AcceptError::UidReused) => Err(Failure::field(
            "?uid",
            Problem::UidReused,
            error.to_string(),
        )),
        Err(error) => Err(error.into()),
    }
}

/// An event as the request says it.
struct Said {
    type_: Option<String>,
    uid: Option<String>,
    content_type: ContentType,
    body: Bytes,
}

impl Said {
    /// The event, or what is wrong with the request: with `rest` of the query, too.
    fn checked(
        &self,
        caller: &Caller,
        key: Option<IdempotencyKey>,
        mut rest: Parameters,
    ) -> Result<NewEvent, Failure> {
        let mut faults = Faults::default();
        if self.content_type.is_json() {
            check_json(&self.body, "", &mut faults)?;
        }
        let event_type = if let Some(text) = &self.type_ {
            rest.keep("type", Problem::EventTypeInvalid, EventType::parse(text))
        } else {
            rest.missing("type", "the type of the event");
            None
        };
        let uid = self.uid.as_deref();
        let uid = uid.and_then(|text| rest.keep("uid", Problem::UidInvalid, Uid::parse(text)));
        rest.finish()?;
        match event_type {
            Some(event_type) if faults.is_empty() => Ok(NewEvent {
                tenant: caller.tenant().tenant(),
                event_type,
                content_type: self.content_type.clone(),
                payload: self.body.clone(),
                occurred_at: None,
                metadata: Metadata::default(),
                headers: CustomHeaders::default(),
                keys: EventKeys::of(ROUTE, key, uid, || self.hash()),
            }),
            _ => Err(faults.into()),
        }
    }

    /// What tells the request from others: the body is not all that it says. It begins as no body of `POST /v1/events` does,
    /// with which it shares its uids.
    fn hash(&self) -> BodyHash {
        let [type_, uid] = [&self.type_, &self.uid].map(|text| text.as_deref().unwrap_or_default());
        BodyHash::of_parts(&[
            type_.as_bytes(),
            uid.as_bytes(),
            self.content_type.as_str().as_bytes(),
            &self.body,
        ])
    }
}

//! POST /v1/events: an event is accepted.

use axum::extract::{Request, State};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use posthorn_domain::idempotency::BodyHash;
use posthorn_domain::limits;
use posthorn_domain::uid::Uid;
use posthorn_store::accept::{Accepted, EventKeys, NewEvent};
use posthorn_store::idempotent::{KeyedRequest, event_key_is_reused};
use serde::Serialize;
use utoipa::ToSchema;

use crate::authenticate::Caller;
use crate::body::read_json;
use crate::envelope::{self, Envelope};
use crate::idempotent::{key_of, replayed};
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::Time;

/// The media type of the answer.
const JSON: [(HeaderName, HeaderValue); 1] =
    [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];

/// Room for nearly every answer: it has a type, a uid and an id of at most 128, 128 and 30 bytes.
const ANSWER_BYTES: usize = 512;

/// An event that is durable, together with the list of endpoints that it is for.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EventAccepted {
    /// Its id, also the `webhook-id` of every request.
    #[schema(example = "evt_01kb6x8v2rhd7t4q9m3n5p6s7v")]
    id: String,
    /// The sender's own name for it.
    uid: Option<String>,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(example = "invoice.paid")]
    type_: String,
    /// When it became durable.
    accepted_at: Time,
    /// Whether any endpoint wants it.
    matched: bool,
    /// How many endpoints want it.
    #[schema(example = 1)]
    deliveries_count: usize,
}

/// Submit an event.
///
/// Answered when the event is durable, with the list of endpoints that it is for. From then on each of its
/// deliveries ends on record: delivered, dead, discarded or cancelled.
///
/// Give it a `uid` or an `Idempotency-Key` and you may send it again whenever you do not know what became of it: within
/// 24 hours the same body gets the first answer, and the event is delivered once.
#[utoipa::path(
    post,
    path = "/v1/events",
    operation_id = "create_event",
    tag = "events",
    request_body(content = Envelope<'_>, content_type = "application/json"),
    responses((status = 202, description = "The event is accepted, now or by an earlier request with the same key.",
        body = EventAccepted))
)]
pub(super) async fn create_event(
    State(state): State<ApiState>,
    caller: Caller,
    _: NoQuery,
    request: Request,
) -> Result<Submitted, Failure> {
    submit(&state, &caller, request).await
}

/// Submits the event that a request's body holds, for a caller who may.
pub(crate) async fn submit(
    state: &ApiState,
    caller: &Caller,
    request: Request,
) -> Result<Submitted, Failure> {
    let key = key_of(request.headers())?;
    let body = read_json(
        request,
        state,
        limits::SUBMIT_BODY_BYTES,
        Problem::PayloadTooLarge,
    )
    .await?;
    let event = match envelope::read(caller.tenant().tenant(), key.clone(), &body) {
        Ok(event) => event,
        // Boxed, as every rare step on the way of an event: its future would be carried along, and moved, with all.
        Err(failure) => {
            let keyed = key.map(|key| KeyedRequest {
                scope: caller.tenant(),
                route: envelope::ROUTE.to_owned(),
                key,
                body_hash: BodyHash::of(&body),
            });
            return Err(Box::pin(key_first(state, keyed, failure)).await);
        }
    };
    let submission = Submission::of(&event);
    let accepted = state.acceptor().accept(event).await?;
    submission.answered(accepted)
}

/// What of a submission its answer repeats.
pub(super) struct Submission {
    type_: String,
    uid: Option<Uid>,
}

impl Submission {
    pub(super) fn of(event: &NewEvent) -> Self {
        Self {
            type_: event.event_type.as_str().to_owned(),
            uid: event.keys.as_ref().and_then(EventKeys::uid).cloned(),
        }
    }

    /// What is said once the event is durable.
    pub(super) fn answered(self, accepted: Accepted) -> Result<Submitted, Failure> {
        let answer = EventAccepted {
            id: accepted.id.to_string(),
            uid: self.uid.map(String::from),
            type_: self.type_,
            accepted_at: Time(accepted.accepted_at),
            matched: accepted.deliveries_count > 0,
            deliveries_count: accepted.deliveries_count,
        };
        // Into room enough: a serializer that asks for it piece by piece is dear beside what it writes.
        let mut body = Vec::with_capacity(ANSWER_BYTES);
        serde_json::to_writer(&mut body, &answer).map_err(Failure::internal)?;
        let replayed = accepted.replayed.then(replayed);
        Ok((StatusCode::ACCEPTED, JSON, replayed, body))
    }
}

/// What is said of an event that is durable.
pub(crate) type Submitted = (
    StatusCode,
    [(HeaderName, HeaderValue); 1],
    Option<[(HeaderName, HeaderValue); 1]>,
    Vec<u8>,
);

/// What is said of a submission that is refused for its content: that its key, if it has one, stands for another one comes
/// first.
pub(super) async fn key_first(
    state: &ApiState,
    keyed: Option<KeyedRequest>,
    failure: Failure,
) -> Failure {
    let Some(keyed) = keyed else { return failure };
    match event_key_is_reused(state.database(), &keyed).await {
        Ok(true) => Failure::new(Problem::IdempotencyKeyReused),
        // A database that does not answer makes the fault no other one.
        Ok(false) | Err(_) => failure,
    }
}

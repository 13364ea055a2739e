//! Attempts: the requests that were made.

mod get;
mod list;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::delivery::Trigger;
use posthorn_store::read;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::endpoints::HeaderSet;
use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(list::list_attempts))
        .routes(routes!(get::get_attempt))
}

/// An attempt as its delivery shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptSummary {
    /// Its id.
    #[schema(
        example = "att_01kb6x8v2rhd7t4q9m3n5p6s7v01kb6wq3c5e8h2k4n7r9t1v3x5-1-9f2c4e6a8b0d1f35"
    )]
    id: String,
    /// Its number: attempts of a delivery are numbered for ever.
    n: u32,
    /// Why it was made.
    #[schema(extensions(("x-known-values" = json!(["schedule", "replay", "test", "probe"]))))]
    trigger: String,
    /// The replay that it is part of.
    replay_id: Option<String>,
    /// When the request was sent.
    sent_at: Time,
    /// How it ended.
    #[schema(extensions(("x-known-values" = json!(["success", "failed"]))))]
    outcome: String,
    /// The status that was answered.
    status: Option<u16>,
    /// What went wrong.
    error: Option<AttemptError>,
    /// From sending to the end of the answer.
    duration_ms: u32,
}

/// What went wrong with an attempt.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptError {
    /// The kind of error.
    #[schema(extensions(("x-known-values" = json!(
        ["timeout", "dns", "connect", "tls", "refused_target", "status", "protocol", "config"]
    ))))]
    kind: String,
    /// In words.
    detail: Option<String>,
}

/// An attempt with its request and what was kept of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Attempt {
    #[serde(flatten)]
    summary: AttemptSummary,
    /// The delivery that it is of; null for a test, which is of none.
    delivery_id: Option<String>,
    /// The event. That of a test is in no list.
    event_id: String,
    /// The endpoint.
    endpoint_id: String,
    /// The address that was connected to.
    remote_address: Option<String>,
    /// What was sent, beside the payload.
    request: AttemptRequest,
    /// What was kept of the answer; null where nothing was.
    response: Option<AttemptResponse>,
}

/// What was sent.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptRequest {
    /// The endpoint's URL at that time.
    url: Option<String>,
    /// The endpoint's own headers at that time. Values are never read back.
    headers: BTreeMap<String, HeaderSet>,
}

/// What was kept of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttemptResponse {
    /// Its headers, in their order.
    headers: Vec<ResponseHeader>,
    /// Its body. Null without the scope payloads:read.
    body: Option<ResponseBody>,
}

/// A header of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResponseHeader {
    /// Its name.
    name: String,
    /// Its value; of one that carries a secret, masked.
    value: String,
}

/// The body of an answer, or its beginning: as text where it is UTF-8, else in base64.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct ResponseBody {
    /// The text.
    text: Option<String>,
    /// The bytes, where they are no text.
    base64: Option<String>,
    /// Bytes that were read.
    bytes: u32,
    /// The body went on.
    cut: bool,
}

impl From<read::AttemptSummary> for AttemptSummary {
    fn from(attempt: read::AttemptSummary) -> Self {
        Self {
            id: attempt.id.to_string(),
            n: attempt.id.n,
            trigger: attempt.trigger,
            replay_id: None,
            sent_at: Time(attempt.sent_at),
            outcome: attempt.outcome,
            status: attempt.status,
            error: attempt.error_kind.map(|kind| AttemptError {
                kind,
                detail: attempt.error_detail,
            }),
            duration_ms: attempt.duration_ms,
        }
    }
}

impl Attempt {
    /// `with_body`: the caller may read what endpoints answered.
    pub(super) fn new(attempt: read::Attempt, with_body: WithBody) -> Self {
        let delivery = attempt.summary.id.delivery;
        let is_test = attempt.summary.trigger == Trigger::Test.as_str();
        let headers = attempt
            .header_names
            .into_iter()
            .map(|name| (name, HeaderSet::yes()))
            .collect();
        Self {
            summary: attempt.summary.into(),
            delivery_id: (!is_test).then(|| delivery.to_string()),
            event_id: delivery.event.to_string(),
            endpoint_id: delivery.endpoint.to_string(),
            remote_address: attempt.remote_address,
            request: AttemptRequest {
                url: attempt.url,
                headers,
            },
            response: attempt
                .reply
                .map(|reply| AttemptResponse::new(reply, with_body)),
        }
    }
}

/// Whether an answer's body is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WithBody {
    Shown,
    Withheld,
}

impl AttemptResponse {
    fn new(reply: read::AttemptReply, with_body: WithBody) -> Self {
        let headers: Vec<(String, String)> = reply
            .headers
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        let body = reply.body.filter(|_| with_body == WithBody::Shown);
        Self {
            headers: headers
                .into_iter()
                .map(|(name, value)| ResponseHeader { name, value })
                .collect(),
            body: body.map(|bytes| ResponseBody::new(bytes, reply.size, reply.cut)),
        }
    }
}

impl ResponseBody {
    fn new(kept: Vec<u8>, bytes: u32, cut: bool) -> Self {
        match String::from_utf8(kept) {
            Ok(text) => Self {
                text: Some(text),
                base64: None,
                bytes,
                cut,
            },
            // A text that was cut inside its last character is a text up to that character.
            Err(error) if cut && error.utf8_error().error_len().is_none() => {
                let end = error.utf8_error().valid_up_to();
                let kept = error.into_bytes();
                let text = kept
                    .get(..end)
                    .and_then(|text| std::str::from_utf8(text).ok())
                    .map(str::to_owned);
                Self {
                    text,
                    base64: None,
                    bytes,
                    cut,
                }
            }
            Err(error) => Self {
                text: None,
                base64: Some(STANDARD.encode(error.as_bytes())),
                bytes,
                cut,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_text_is_shown_as_text() {
        let body = ResponseBody::new(b"caf\xc3\xa9".to_vec(), 5, false);
        assert_eq!(
            (body.text.as_deref(), body.base64),
            (Some("caf\u{e9}"), None)
        );
    }

    #[test]
    fn a_text_cut_inside_a_character_is_shown_up_to_it() {
        let body = ResponseBody::new(b"caf\xc3".to_vec(), 4, true);
        assert_eq!(body.text.as_deref(), Some("caf"));
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_in_base64() {
        for (bytes, cut) in [
            (b"\xff\xfe\x00".to_vec(), false),
            (b"caf\xc3".to_vec(), false),
            (b"\xffcaf\xc3".to_vec(), true),
        ] {
            let body = ResponseBody::new(bytes.clone(), 3, cut);
            assert_eq!(
                (body.text, body.base64),
                (None, Some(STANDARD.encode(bytes)))
            );
        }
    }
}

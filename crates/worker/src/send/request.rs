//! The request of an attempt: its headers, in order, and the signature over the very bytes that are sent (INV-3, INV-4).

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EventId;
use posthorn_domain::signature::signature_header;
use posthorn_egress::Answer;
use posthorn_store::configuration::EndpointConfig;

/// What the event brings.
pub(super) struct Content {
    pub(super) media_type: String,
    pub(super) payload: Bytes,
    pub(super) headers: CustomHeaders,
}

/// The headers of one attempt, made when it is sent: signed now, with the secrets in force now. Then the endpoint's own,
/// then the event's where the endpoint has none of that name.
///
/// # Errors
/// In words for the tenant, where a header or secret cannot be used.
pub(super) fn headers(
    event: EventId,
    content: &Content,
    config: &EndpointConfig,
    at: DateTime<Utc>,
) -> Result<HeaderMap, String> {
    let id = event.to_string();
    let timestamp = at.timestamp();
    let in_force: Vec<_> = config
        .secrets
        .iter()
        .filter(|live| live.retires_at.is_none_or(|end| end > at))
        .map(|live| &live.secret)
        .collect();
    if in_force.is_empty() {
        return Err("the endpoint has no signing secret in force".to_owned());
    }
    let signature = signature_header(&in_force, &id, timestamp, &content.payload);
    let mut headers = HeaderMap::with_capacity(8 + config.headers.len() + content.headers.len());
    headers.insert(CONTENT_TYPE, value("content-type", &content.media_type)?);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("Posthorn/", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert(
        HeaderName::from_static("webhook-id"),
        value("webhook-id", &id)?,
    );
    headers.insert(
        HeaderName::from_static("webhook-timestamp"),
        HeaderValue::from(timestamp),
    );
    headers.insert(
        HeaderName::from_static("webhook-signature"),
        value("webhook-signature", &signature)?,
    );
    for (name, text) in config.headers.iter().chain(content.headers.iter()) {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the header {name} cannot be sent"))?;
        if !headers.contains_key(&header) {
            let mut secret = value(name, text)?;
            secret.set_sensitive(true);
            headers.insert(header, secret);
        }
    }
    Ok(headers)
}

fn value(name: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("the header {name} cannot be sent"))
}

/// Words for an answer that is not a success.
pub(super) fn explain(answer: &Answer) -> String {
    let status = answer.status;
    let location = answer
        .headers
        .iter()
        .find(|(name, _)| *name == LOCATION.as_str());
    match (status, location) {
        (300..=399, Some((_, to))) => {
            let to: String = to.chars().take(200).collect();
            format!(
                "the endpoint answered {status} and points to {to}; redirects are not followed, set the endpoint's url"
            )
        }
        (300..=399, None) => format!("the endpoint answered {status}; redirects are not followed"),
        (410, _) => "the endpoint answered 410: it wants no more events".to_owned(),
        (401 | 403, _) => format!(
            "the endpoint answered {status}: it refuses these credentials or this signature"
        ),
        (429, _) => "the endpoint answered 429: too many requests".to_owned(),
        _ => format!("the endpoint answered {status}"),
    }
}

//! The request of an attempt: its headers, in order, and the signature over the very bytes that are sent (INV-3, INV-4).

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::{ACCEPT, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_domain::body::{self, BodyForm};
use posthorn_domain::content_type::ContentType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EventId;
use posthorn_domain::signature::signature_header;
use posthorn_egress::Answer;
use posthorn_store::configuration::{EndpointConfig, Signing};

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// What the event brings.
pub(super) struct Content {
    pub(super) event_type: String,
    pub(super) happened_at: DateTime<Utc>,
    pub(super) media_type: ContentType,
    pub(super) payload: Bytes,
    pub(super) headers: CustomHeaders,
}

/// The body of every attempt: the same bytes as long as the endpoint wants the same form.
///
/// # Errors
/// In words for the tenant, where the payload cannot be sent in that form. The event was matched before the endpoint wanted it.
pub(super) fn body(content: &Content, form: BodyForm) -> Result<Bytes, String> {
    if !form.carries(&content.media_type) {
        return Err(format!(
            "the endpoint's body is `{form}`, which carries JSON alone, and this event's payload is {}",
            content.media_type.as_str()
        ));
    }
    Ok(match form {
        BodyForm::Payload => content.payload.clone(),
        BodyForm::Standard => {
            body::standard(&content.event_type, content.happened_at, &content.payload).into()
        }
    })
}

/// The headers of one attempt with this body, made when it is sent: signed now, with the secrets in force now. Then the
/// endpoint's own, then the event's where the endpoint has none that a receiver may take for it.
///
/// # Errors
/// In words for the tenant, where a header or secret cannot be used.
pub(super) fn headers(
    event: EventId,
    (content, body): (&Content, &[u8]),
    config: &EndpointConfig,
    at: DateTime<Utc>,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::with_capacity(8 + config.headers.len() + content.headers.len());
    let content_type = match config.body {
        BodyForm::Payload => content.media_type.as_str(),
        BodyForm::Standard => ContentType::JSON.as_str(),
    };
    headers.insert(CONTENT_TYPE, value("content-type", content_type)?);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("Posthorn/", env!("CARGO_PKG_VERSION"))),
    );
    sign(&mut headers, event, body, config, at)?;
    // An event's header may have a name that a signature has at this endpoint: the signature's stands. So does the endpoint's own, and
    // alone: a receiver that reads `_` as `-` would take either of two (RFC 3875, 4.1.18).
    let taken = |own: &str| {
        let signing = config.signing.as_deref();
        signing.is_some_and(|signing| signing.headers.take(own))
    };
    let of_event = content.headers.iter();
    let of_event = of_event.filter(|(own, _)| !config.headers.have_alike(own));
    for (own, text) in config.headers.iter().chain(of_event) {
        let header = name(own)?;
        if !headers.contains_key(&header) && !taken(own) {
            let mut secret = value(own, text)?;
            secret.set_sensitive(true);
            headers.insert(header, secret);
        }
    }
    Ok(headers)
}

/// Adds the signatures, and what they are of, under the names that this endpoint has for them.
fn sign(
    headers: &mut HeaderMap,
    event: EventId,
    body: &[u8],
    config: &EndpointConfig,
    at: DateTime<Utc>,
) -> Result<(), String> {
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
    let signature = signature_header(&in_force, &id, timestamp, body);
    let [id_name, timestamp_name, signature_name] = match config.signing.as_deref() {
        None => [ID, TIMESTAMP, SIGNATURE],
        Some(Signing { headers: names, .. }) => [
            name(&names.id)?,
            name(&names.timestamp)?,
            name(&names.signature)?,
        ],
    };
    headers.insert(id_name, value("webhook-id", &id)?);
    headers.insert(timestamp_name, HeaderValue::from(timestamp));
    headers.insert(signature_name, value("webhook-signature", &signature)?);
    let compat = config.signing.as_deref();
    if let Some(compat) = compat.and_then(|signing| signing.compat.as_ref()) {
        let header = compat.form.header();
        let signature = compat.sign(timestamp, body);
        headers.insert(name(header)?, value(header, &signature)?);
    }
    Ok(())
}

fn name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("the header {text} cannot be sent"))
}

fn value(name: &str, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| format!("the header {name} cannot be sent"))
}

/// Where a redirect points, without what is most often a credential: who logs in there, the query and the fragment.
fn pointed(location: impl AsRef<str>) -> Option<String> {
    let plain = location.as_ref().split(['?', '#']).next()?;
    if plain.contains('@') {
        return Some("a place with credentials in it".to_owned());
    }
    let short: String = plain.chars().take(200).collect();
    (!short.is_empty()).then_some(short)
}

/// Words for an answer that is not a success.
pub(super) fn explain(answer: &Answer) -> String {
    let status = answer.status;
    let points_to = answer.header(&LOCATION).and_then(pointed);
    match (status, points_to) {
        (304, _) => "the endpoint answered 304, which is no answer to a POST".to_owned(),
        (300..=399, Some(to)) => format!(
            "the endpoint answered {status} and points to {to}; redirects are not followed, set the endpoint's url"
        ),
        (300..=399, None) => format!("the endpoint answered {status}; redirects are not followed"),
        (410, _) => "the endpoint answered 410: it wants no more events".to_owned(),
        (401 | 403, _) => format!(
            "the endpoint answered {status}: it refuses these credentials or this signature"
        ),
        (429, _) => "the endpoint answered 429: too many requests".to_owned(),
        _ => format!("the endpoint answered {status}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// INV-10: a redirect repeats the endpoint's own token more often than not.
    #[test]
    fn a_redirect_is_told_without_what_may_be_a_credential() {
        for (location, told) in [
            ("/ok", Some("/ok")),
            ("/ok?token=canary#canary", Some("/ok")),
            ("https://h.test", Some("https://h.test")),
            ("https://h.test/a?canary#canary", Some("https://h.test/a")),
            (
                "https://u:canary@h.test/",
                Some("a place with credentials in it"),
            ),
            ("//u:canary@h.test/", Some("a place with credentials in it")),
            ("", None),
            ("?canary", None),
        ] {
            assert_eq!(pointed(location).as_deref(), told, "{location}");
        }
    }
}

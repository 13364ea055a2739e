//! The body of a request: the payload as it is, or the envelope of Standard Webhooks around it, joined as bytes (INV-3).

use chrono::{DateTime, SecondsFormat, Utc};

use crate::content_type::ContentType;
use crate::word::words;

words! {
    /// What an endpoint's requests carry.
    "form of a body" BodyForm {
        /// The payload as it is. The default.
        Payload = "payload",
        /// The envelope of Standard Webhooks 1.0 ("Payload structure"), with the payload as `data`.
        Standard = "standard",
    }
}

impl BodyForm {
    /// Whether a payload of this type can be sent so: an envelope of JSON carries JSON.
    #[must_use]
    pub const fn carries(self, content_type: &ContentType) -> bool {
        match self {
            Self::Payload => true,
            Self::Standard => content_type.is_json(),
        }
    }
}

/// `{"type":…,"timestamp":…,"data":` + the payload + `}`: an event's type, when it happened in RFC 3339, UTC and microseconds,
/// and its payload, which must be JSON, byte for byte. The same at any time.
#[must_use]
pub fn standard(event_type: &str, happened_at: DateTime<Utc>, payload: &[u8]) -> Vec<u8> {
    // No character of a type needs an escape in JSON.
    let head = format!(
        r#"{{"type":"{event_type}","timestamp":"{}","data":"#,
        happened_at.to_rfc3339_opts(SecondsFormat::Micros, true)
    );
    [head.as_bytes(), payload, b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_payload_stands_in_its_envelope_byte_for_byte() {
        let time = at("2026-01-31T10:30:00.5+01:00");
        for (payload, body) in [
            (
                "{\"a\" : 1.0,\r\n\"a\":\"\\ud800\"} ",
                "{\"type\":\"a.b\",\"timestamp\":\"2026-01-31T09:30:00.500000Z\",\"data\":{\"a\" : 1.0,\r\n\"a\":\"\\ud800\"} }",
            ),
            (
                "null",
                r#"{"type":"a.b","timestamp":"2026-01-31T09:30:00.500000Z","data":null}"#,
            ),
        ] {
            let joined = standard("a.b", time, payload.as_bytes());
            assert_eq!(String::from_utf8(joined).unwrap(), body);
        }
    }

    #[test]
    fn the_first_and_the_last_time_that_are_taken_can_be_written() {
        for text in ["0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"] {
            let joined = standard("a", at(text), b"1");
            let body = format!(r#"{{"type":"a","timestamp":"{text}","data":1}}"#);
            assert_eq!(String::from_utf8(joined).unwrap(), body);
        }
    }

    #[test]
    fn an_envelope_carries_json_alone() {
        let text = ContentType::parse("text/plain").unwrap();
        let event = ContentType::parse("application/cloudevents+json").unwrap();
        for (form, content_type, carries) in [
            (BodyForm::Payload, &text, true),
            (BodyForm::Payload, &ContentType::JSON, true),
            (BodyForm::Standard, &text, false),
            (BodyForm::Standard, &ContentType::JSON, true),
            (BodyForm::Standard, &event, true),
        ] {
            assert_eq!(
                form.carries(content_type),
                carries,
                "{form} {content_type:?}"
            );
        }
    }
}

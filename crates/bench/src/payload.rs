//! The payload of a measured event: 512 bytes of JSON that begin with the moment for which the event was meant.
//!
//! The sink reads that moment back, so that end to end counts from when a sender wanted to send, not from when it got to it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a payload.
pub(crate) const BYTES: usize = 512;
/// The type of every measured event.
pub(crate) const EVENT_TYPE: &str = "bench.steady";
/// A type that no measured event has.
pub(crate) const OTHER_TYPE: &str = "bench.other";

const BEGIN: &str = "{\"at\":";
const MIDDLE: &str = ",\"pad\":\"";
const END: &str = "\"}";
/// Microseconds since 1970 have 16 digits until the year 2286.
const DIGITS: usize = 16;

/// Now, in microseconds since 1970.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A payload for this moment.
pub(crate) fn payload(at_us: u64) -> String {
    let pad = BYTES - BEGIN.len() - DIGITS - MIDDLE.len() - END.len();
    format!("{BEGIN}{at_us:0DIGITS$}{MIDDLE}{:x<pad$}{END}", "")
}

/// The body that submits it.
pub(crate) fn submission(at_us: u64) -> String {
    format!(
        "{{\"type\":\"{EVENT_TYPE}\",\"payload\":{}}}",
        payload(at_us)
    )
}

/// The moment in a payload, if it is one of ours.
pub(crate) fn moment(payload: &[u8]) -> Option<u64> {
    let digits = payload.strip_prefix(BEGIN.as_bytes())?.get(..DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_json_of_its_size_and_tells_its_moment() {
        let at = now_us();
        let payload = payload(at);
        assert_eq!(payload.len(), BYTES);
        assert_eq!(moment(payload.as_bytes()), Some(at));
        assert!(serde_json::from_str::<serde_json::Value>(&submission(at)).is_ok());
    }
}

//! `Retry-After`: seconds, or any of the three forms of an HTTP date (RFC 9110, sections 10.2.3 and 5.6.7).
//!
//! It comes from a receiver that may be careless or hostile: whatever is not understood is ignored,
//! whatever is too long is capped, and the past means nothing.

use core::time::Duration;

use chrono::{DateTime, Utc};

use crate::limits;

/// How long the receiver asks to be left alone, counted from `now`; at most 24 h.
///
/// `None` when there is nothing to wait for: zero, a moment that has passed, or a text that is neither
/// seconds nor a date.
#[must_use]
pub fn parse_retry_after(value: &str, now: DateTime<Utc>) -> Option<Duration> {
    if value.len() > limits::RETRY_AFTER_BYTES {
        return None;
    }
    let value = value.trim_matches([' ', '\t']);
    let asked = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Only too many digits can fail here, and they mean "very long".
        value.parse().map_or(Duration::MAX, Duration::from_secs)
    } else {
        let at = DateTime::<Utc>::from(httpdate::parse_http_date(value).ok()?);
        (at - now).to_std().ok()?
    };
    (!asked.is_zero()).then_some(asked.min(limits::RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests;

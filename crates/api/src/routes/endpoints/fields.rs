//! The fields of an endpoint, checked one by one. Create and change share every rule.

use std::collections::BTreeMap;

use posthorn_domain::address::EgressPolicy;
use posthorn_domain::endpoint::may_be_fatal;
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::rate::{RateLimit, RateLimitError};
use posthorn_domain::retry::{RetryPolicy, UncheckedPolicy};
use posthorn_domain::uid::Uid;
use posthorn_domain::url::{EndpointUrl, UrlError};
use posthorn_store::configure::{Patch, RateChanges};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::failure::{header_faults, rate_fault};
use crate::faults::Faults;
use crate::problem::Problem;
use crate::wire::{Change, present};

/// A URL that the policy allows (INV-8), as far as it can be told now: what a name resolves to is judged when it is sent to.
pub(super) fn url(text: &str, egress: &EgressPolicy, faults: &mut Faults) -> Option<EndpointUrl> {
    let url = match EndpointUrl::parse(text) {
        Ok(url) => url,
        Err(error) => {
            let problem = if error == UrlError::TooLong {
                Problem::UrlTooLong
            } else {
                Problem::UrlInvalid
            };
            faults.add("/url", problem, error.to_string());
            return None;
        }
    };
    let scheme = egress.allows_scheme(url.scheme());
    faults.keep("/url", Problem::HttpsRequired, scheme)?;
    let verdict = egress.allows_url(&url);
    if let Err(refused) = verdict {
        tracing::debug!(why = %refused.why(), "an endpoint's URL is refused");
    }
    faults.keep("/url", Problem::TargetForbidden, verdict)?;
    Some(url)
}

/// The tenant's own name for something.
pub(super) fn uid(text: &str, faults: &mut Faults) -> Option<String> {
    let uid = faults.keep("/uid", Problem::UidInvalid, Uid::parse(text))?;
    Some(uid.into())
}

/// A person's words.
pub(super) fn words(pointer: &str, text: String, faults: &mut Faults) -> Option<String> {
    if text.contains('\0') {
        faults.add(
            pointer,
            Problem::FieldInvalid,
            "a text has no NUL character",
        );
        return None;
    }
    if text.chars().count() > limits::DESCRIPTION_CHARS {
        faults.add(
            pointer,
            Problem::DescriptionTooLong,
            format!("at most {} characters", limits::DESCRIPTION_CHARS),
        );
        return None;
    }
    Some(text)
}

/// What the endpoint listens to.
pub(super) fn event_types(texts: &[String], faults: &mut Faults) -> Option<Vec<EventTypePattern>> {
    if texts.is_empty() || texts.len() > limits::ENDPOINT_PATTERNS {
        let problem = if texts.is_empty() {
            Problem::FieldInvalid
        } else {
            Problem::TooManyEventTypes
        };
        faults.add(
            "/event_types",
            problem,
            format!("1 to {} patterns", limits::ENDPOINT_PATTERNS),
        );
        return None;
    }
    let parse = |(at, text): (usize, &String)| {
        let pointer = format!("/event_types/{at}");
        faults.keep(
            &pointer,
            Problem::EventTypePatternInvalid,
            EventTypePattern::parse(text),
        )
    };
    let patterns: Vec<_> = texts.iter().enumerate().map(parse).collect();
    patterns.into_iter().collect()
}

/// Headers of its own, all of them.
pub(super) fn headers(
    pairs: BTreeMap<String, String>,
    faults: &mut Faults,
) -> Option<CustomHeaders> {
    CustomHeaders::parse(pairs)
        .map_err(|error| header_faults(&error).for_each(|fault| faults.note(fault)))
        .ok()
}

/// Pairs that are shown and never sent, all of them.
pub(super) fn metadata(pairs: BTreeMap<String, String>, faults: &mut Faults) -> Option<Metadata> {
    faults.keep(
        "/metadata",
        Problem::MetadataInvalid,
        Metadata::parse(pairs),
    )
}

/// Every delivery's end, in seconds.
pub(super) fn max_age_s(seconds: u32, faults: &mut Faults) -> Option<u32> {
    let (least, most) = (limits::MAX_AGE_MIN.as_secs(), limits::MAX_AGE_MAX.as_secs());
    within("/max_age_s", seconds, least, most, faults)
}

/// One deadline over a request, in milliseconds.
pub(super) fn timeout_ms(millis: u32, faults: &mut Faults) -> Option<u32> {
    let in_ms = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    within(
        "/timeout_ms",
        millis,
        in_ms(limits::TIMEOUT_MIN),
        in_ms(limits::TIMEOUT_MAX),
        faults,
    )
}

/// When a failed attempt is followed by another.
pub(super) fn retry_policy(policy: UncheckedPolicy, faults: &mut Faults) -> Option<RetryPolicy> {
    let checked = policy.checked();
    checked
        .map_err(|broken| {
            for fault in broken {
                let pointer = format!("/retry_policy{}", fault.pointer);
                let detail = format!("{pointer} {}", fault.error);
                faults.add(pointer, Problem::FieldInvalid, detail);
            }
        })
        .ok()
}

/// A status that may end a delivery at once: 400 to 599 without 408, 410 and 429.
#[derive(Debug, ToSchema)]
#[schema(minimum = 400, maximum = 599)]
#[expect(dead_code, reason = "describes one of fatal_statuses")]
pub(super) struct FatalStatus(u16);

/// How many requests may start. Where there is no limit yet, `per_second` is required.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RateLimitRequest)]
pub(super) struct RateRequest {
    /// Requests a second, in the long run. In a change it may be absent, and stays.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, minimum = 0.01, maximum = 10_000)]
    per_second: Option<f64>,
    /// How many requests may start at once, after a rest. Default (null): 1.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    burst: Change<u32>,
}

impl RateRequest {
    fn changes(&self) -> RateChanges {
        RateChanges {
            per_second: self.per_second,
            burst: match self.burst {
                Change::Absent => Patch::Keep,
                Change::Null => Patch::Clear,
                Change::Value(burst) => Patch::Set(burst),
            },
        }
    }

    /// The rate of an endpoint that had none.
    pub(super) fn whole(&self, faults: &mut Faults) -> Option<RateLimit> {
        let rate = self.changes().merge(None);
        let missing = rate
            .err()
            .filter(|error| *error == RateLimitError::PerSecondMissing);
        for error in missing.into_iter().chain(self.out_of_range()) {
            faults.note(rate_fault(error));
        }
        rate.ok()
    }

    /// A change of a rate. That there is one to change is for the store to see.
    pub(super) fn change(&self, faults: &mut Faults) -> Option<RateChanges> {
        let mut sound = true;
        for error in self.out_of_range() {
            faults.note(rate_fault(error));
            sound = false;
        }
        sound.then(|| self.changes())
    }

    /// What is wrong with the numbers that are there, each by itself.
    fn out_of_range(&self) -> impl Iterator<Item = RateLimitError> {
        let per_second = self
            .per_second
            .map(|per_second| RateLimit::new(per_second, RateLimit::BURST_DEFAULT));
        let burst = match self.burst {
            Change::Value(burst) => Some(RateLimit::new(1.0, burst)),
            Change::Absent | Change::Null => None,
        };
        [per_second, burst]
            .into_iter()
            .flatten()
            .filter_map(Result::err)
    }
}

/// How many requests may be under way.
pub(super) fn max_in_flight(limit: u32, faults: &mut Faults) -> Option<u32> {
    let most = u64::from(limits::MAX_IN_FLIGHT_MAX);
    within("/max_in_flight", limit, 1, most, faults)
}

/// A whole number within its bounds. The words are those of [`crate::shape`].
pub(super) fn within(
    pointer: &str,
    value: u32,
    least: u64,
    most: u64,
    faults: &mut Faults,
) -> Option<u32> {
    if (least..=most).contains(&u64::from(value)) {
        return Some(value);
    }
    faults.add(
        pointer,
        Problem::FieldInvalid,
        format!("{pointer} must be a whole number from {least} to {most}"),
    );
    None
}

/// Statuses that end a delivery at once: in order, each once.
pub(super) fn fatal_statuses(mut statuses: Vec<u16>, faults: &mut Faults) -> Option<Vec<u16>> {
    let mut sound = true;
    for (at, status) in statuses.iter().enumerate() {
        if !may_be_fatal(*status) {
            let pointer = format!("/fatal_statuses/{at}");
            let detail = format!(
                "{pointer} must be a whole number from 400 to 599, and not 408, 410 or 429, which have a meaning of their own"
            );
            faults.add(pointer, Problem::FieldInvalid, detail);
            sound = false;
        }
    }
    if !sound {
        return None;
    }
    statuses.sort_unstable();
    statuses.dedup();
    Some(statuses)
}

#[cfg(test)]
mod tests;

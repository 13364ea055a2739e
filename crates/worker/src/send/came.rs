//! What came of a request: the answer or the failure, what it means by the endpoint's policy, and what is kept of it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{ErrorKind, Outcome, Trigger, classify, classify_error};
use posthorn_domain::endpoint::KeepResponses;
use posthorn_domain::id::ReplayId;
use posthorn_domain::limits;
use posthorn_egress::Answer;
use posthorn_store::configuration::{EndpointConfig, EndpointEntry};
use posthorn_store::record::{Attempt, AttemptError, KeptResponse};

use super::request::explain;

/// What came of a request, and what it means.
pub(super) struct Came {
    pub(super) outcome: Outcome,
    pub(super) answer: Option<Answer>,
    pub(super) error: Option<AttemptError>,
    pub(super) remote_address: Option<String>,
}

impl Came {
    /// There was no request, for this reason.
    pub(super) fn failed(kind: ErrorKind, detail: String) -> Self {
        let error = Some(AttemptError {
            kind,
            detail: cut(detail),
        });
        Self {
            outcome: classify_error(kind),
            answer: None,
            error,
            remote_address: None,
        }
    }

    /// There was an answer; it is not judged yet.
    pub(super) fn answered(answer: Answer) -> Self {
        let remote_address = answer.remote_address.map(|address| address.to_string());
        let outcome = classify_error(ErrorKind::Status);
        Self {
            outcome,
            answer: Some(answer),
            error: None,
            remote_address,
        }
    }

    /// What an answer means by its endpoint's policy; words for the tenant where it is not a success.
    pub(super) fn judged(mut self, config: &EndpointConfig, now: DateTime<Utc>) -> Self {
        let Some(answer) = &self.answer else {
            return self;
        };
        self.outcome = classify(
            answer.status,
            answer.retry_after.as_deref(),
            &config.fatal_statuses,
            now,
        );
        if self.outcome != Outcome::Success {
            let detail = explain(answer);
            self.error = Some(AttemptError {
                kind: ErrorKind::Status,
                detail,
            });
        }
        self
    }
}

/// Words of a failure, no longer than is kept (INV-11): names and certificates of strangers stand in them.
pub(super) fn cut(detail: String) -> String {
    match detail.char_indices().nth(limits::ERROR_DETAIL_CHARS) {
        Some((end, _)) => detail.get(..end).unwrap_or_default().to_owned(),
        None => detail,
    }
}

/// What of an attempt is known without its answer.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) n: u32,
    pub(super) nonce: u32,
    pub(super) at: DateTime<Utc>,
    pub(super) duration: Duration,
    pub(super) trigger: Trigger,
    pub(super) replay: Option<ReplayId>,
    pub(super) config_seq: i64,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// It is kept with the attempt.
    Answer,
    /// Its status alone is.
    Status,
}

impl Keep {
    /// What an endpoint wants of an attempt that came to this.
    pub(super) fn of(entry: &EndpointEntry, outcome: &Outcome) -> Self {
        let config = entry.config.as_ref();
        match config.map_or(KeepResponses::Failures, |config| config.keep_responses) {
            KeepResponses::All => Self::Answer,
            KeepResponses::Failures if *outcome != Outcome::Success => Self::Answer,
            KeepResponses::Failures | KeepResponses::None => Self::Status,
        }
    }
}

impl Came {
    /// The attempt that it was.
    pub(super) fn attempt(self, made: Made, keep: Keep) -> Attempt {
        let answer = self.answer.as_ref();
        Attempt {
            n: made.n,
            nonce: made.nonce,
            success: self.outcome == Outcome::Success,
            status: answer.map(|answer| answer.status),
            at: made.at,
            duration: made.duration,
            trigger: made.trigger,
            replay: made.replay,
            response: answer.filter(|_| keep == Keep::Answer).map(kept),
            remote_address: self.remote_address,
            error: self.error,
            config_seq: made.config_seq,
        }
    }
}

/// What is kept of an answer.
fn kept(answer: &Answer) -> KeptResponse {
    let headers = serde_json::to_string(&answer.headers()).unwrap_or_else(|_| "[]".to_owned());
    KeptResponse {
        headers,
        body: answer.body.to_vec(),
        size: answer.size,
        cut: answer.cut,
    }
}

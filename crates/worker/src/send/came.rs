//! What came of a request: the answer or the failure, what it means by the endpoint's policy, and what is kept of it.

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{ErrorKind, Outcome, classify, classify_error};
use posthorn_domain::endpoint::KeepResponses;
use posthorn_domain::limits;
use posthorn_egress::Answer;
use posthorn_store::configuration::EndpointConfig;
use posthorn_store::record::{AttemptError, KeptResponse};

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

/// Whether the answer is kept with the attempt.
pub(super) fn keeps(keep: KeepResponses, success: bool) -> bool {
    match keep {
        KeepResponses::All => true,
        KeepResponses::Failures => !success,
        KeepResponses::None => false,
    }
}

/// What is kept of it.
pub(super) fn kept(answer: &Answer) -> KeptResponse {
    let headers = serde_json::to_string(&answer.headers()).unwrap_or_else(|_| "[]".to_owned());
    KeptResponse {
        headers,
        body: answer.body.to_vec(),
        size: answer.size,
        cut: answer.cut,
    }
}

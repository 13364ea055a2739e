//! One exchange with an endpoint: the request made and signed, sent through the guard, and what came of it.

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{ErrorKind, classify_error};
use posthorn_egress::{Egress, Outgoing, Sent};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::EndpointEntry;
use posthorn_store::record::{AttemptError, DeliveryKey};

use super::came::{Came, cut};
use super::request::{self, Content};

/// Sends what an event brings to an endpoint, signed as of `at`, once. What came is judged by the endpoint's policy.
pub(super) async fn exchange(
    (egress, clock): (&Egress, &Clock),
    key: DeliveryKey,
    content: &Content,
    entry: &EndpointEntry,
    at: DateTime<Utc>,
) -> Came {
    let config = match &entry.config {
        Ok(config) => config,
        Err(reason) => return Came::failed(ErrorKind::Config, reason.clone()),
    };
    let made = request::body(content, config.body).and_then(|body| {
        let headers = request::headers(key.event, (content, &body), config, at)?;
        Ok((headers, body))
    });
    let (headers, body) = match made {
        Ok(made) => made,
        Err(reason) => return Came::failed(ErrorKind::Config, reason),
    };
    let outgoing = Outgoing {
        tenant: key.tenant,
        url: &config.url,
        headers,
        body,
        timeout: config.timeout,
    };
    match egress.send(outgoing).await {
        Sent::Answered(answer) => Came::answered(answer).judged(config, clock.now()),
        Sent::Failed(failure) => Came {
            outcome: classify_error(failure.kind),
            answer: None,
            error: Some(AttemptError {
                kind: failure.kind,
                detail: cut(failure.detail),
            }),
            remote_address: failure.remote_address.map(|address| address.to_string()),
        },
    }
}

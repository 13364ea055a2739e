//! Test sends: requests that somebody asked for to see what comes of them ([`posthorn_store::test_send`]).
//!
//! They are made, signed, guarded and judged as every request is, by the same functions, and nothing follows from them: no
//! retry, no dead letter, no part in the endpoint's circuit, pace, rate or slots. They go out whatever the endpoint's state.

use std::sync::Arc;

use posthorn_domain::content_type::ContentType;
use posthorn_domain::delivery::Trigger;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EventId;
use posthorn_egress::Egress;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::read;
use posthorn_store::record::{self, DeliveryKey};
use posthorn_store::test_send::{Asked, TestSend, TestSendError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::came::{Keep, Made};
use super::exchange::exchange;
use super::request::Content;
use crate::step::bounded;

/// What sending tests needs.
pub struct TestSenderParts {
    /// For the attempts.
    pub database: Database,
    /// Endpoints as they are now.
    pub cache: ConfigCache,
    /// The guarded client.
    pub egress: Egress,
    /// Time.
    pub clock: Clock,
    /// For the ids of events and attempts.
    pub entropy: Entropy,
}

/// Sends tests.
pub struct TestSender {
    parts: Arc<TestSenderParts>,
}

impl TestSender {
    /// Ready to send.
    #[must_use]
    pub fn new(parts: TestSenderParts) -> Self {
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Sends what is asked for, each by itself, until nobody can ask any more, or until `stop`: then what is under way is
    /// broken off.
    pub async fn run(self, mut queue: mpsc::Receiver<Asked>, stop: CancellationToken) {
        let mut under_way = JoinSet::new();
        loop {
            let asked = tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = under_way.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a test send ended by itself");
                    }
                    continue;
                }
                asked = queue.recv() => asked,
            };
            let Some(Asked {
                test,
                answer,
                place,
            }) = asked
            else {
                break;
            };
            let parts = Arc::clone(&self.parts);
            under_way.spawn(async move {
                let sent = parts.send(&test).await;
                drop(place);
                // Whoever asked may have gone.
                let _gone = answer.send(sent);
            });
        }
        under_way.join_all().await;
    }
}

impl TestSenderParts {
    async fn send(&self, test: &TestSend) -> Result<read::Attempt, TestSendError> {
        let snapshot = self.cache.snapshot();
        let entry = snapshot
            .endpoint(test.scope.tenant(), test.endpoint)
            .ok_or(TestSendError::NoEndpoint)?;
        let event = EventId::mint(self.clock.now(), self.entropy.bytes());
        let key = DeliveryKey {
            tenant: test.scope.tenant(),
            endpoint: test.endpoint,
            event,
        };
        let (at, began) = (self.clock.now(), self.clock.monotonic());
        let content = content(event, test);
        let came = exchange((&self.egress, &self.clock), key, &content, entry, at).await;
        let keep = Keep::of(entry, &came.outcome);
        let made = Made {
            n: 1,
            nonce: u32::from_be_bytes(self.entropy.bytes()),
            at,
            duration: self.clock.monotonic().saturating_duration_since(began),
            trigger: Trigger::Test,
            replay: None,
            config_seq: entry.config_seq,
        };
        // All of the answer is told to whoever asked; kept is what is kept of others.
        let mut attempt = came.attempt(made, Keep::Answer);
        let told = read::Attempt::told(key, &attempt, entry);
        if keep == Keep::Status {
            attempt.response = None;
        }
        let recorded = bounded(record::test_send(&self.database, test.scope, key, &attempt)).await;
        if let Err(error) = recorded {
            // The request was made, and whoever asked for it waits to hear what came of it.
            tracing::warn!(%error, endpoint = %key.endpoint, "the attempt of a test send is not on record");
        }
        Ok(told)
    }
}

fn content(event: EventId, test: &TestSend) -> Content {
    Content {
        event_type: test.event_type.as_str().to_owned(),
        happened_at: event.minted_at(),
        media_type: ContentType::JSON,
        payload: test.payload.clone(),
        headers: CustomHeaders::default(),
    }
}

//! Accept: an event becomes durable together with the list of endpoints that it is for (INV-1).
//!
//! match in memory → mint the id → queue → one statement for many → answer. [`Acceptor`] is the caller's side,
//! [`Batcher`] owns the connections and flushes. An answer is given only after PostgreSQL has said that
//! the batch is committed; where that is not known the same ids are sent again until it is. An event that its
//! tenant submitted before, under the same key, is answered as it was then and written no second time.

mod backpressure;
mod batcher;
mod encode;
mod flush;
mod handover;
mod keys;
mod lane;
mod memory;
mod queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use tokio::sync::{mpsc, oneshot};

pub use self::backpressure::Backpressure;
pub use self::batcher::Batcher;
use self::batcher::Queues;
use self::flush::Row;
pub use self::keys::EventKeys;
use self::memory::Memory;
pub use self::memory::Taken;
use crate::clock::Clock;
use crate::configuration::ConfigCache;
use crate::database::Database;
use crate::due::DueHint;
use crate::shards::Shards;
use crate::stream::{Stream, StreamKeeper};

pub(crate) use self::encode::decode;

/// An event as a tenant submits it.
#[derive(Debug)]
pub struct NewEvent {
    /// Whose.
    pub tenant: TenantId,
    /// Its type.
    pub event_type: EventType,
    /// What the payload says that it is, sent as it stands.
    pub content_type: ContentType,
    /// The payload, byte for byte (INV-3).
    pub payload: Bytes,
    /// When it happened, by the tenant's account.
    pub occurred_at: Option<DateTime<Utc>>,
    /// Shown and searched, never sent.
    pub metadata: Metadata,
    /// Sent with every attempt, below the endpoint's own.
    pub headers: CustomHeaders,
    /// Under which names it may be submitted again.
    pub keys: Option<EventKeys>,
}

/// An event that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its id.
    pub id: EventId,
    /// When it was accepted, by the database's clock.
    pub accepted_at: DateTime<Utc>,
    /// How many endpoints it is for.
    pub deliveries_count: usize,
    /// Whether an earlier request submitted it, and this is that request's answer.
    pub replayed: bool,
}

/// Why an event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcceptError {
    /// Too much is queued already; nothing was written.
    #[error("too many events are waiting to be written")]
    Busy,
    /// The database did not confirm in time. The event may turn out to be written all the same.
    #[error("the database did not confirm in time")]
    Unavailable,
    /// This node accepts no more.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The tenant is gone.
    #[error("the tenant no longer exists")]
    TenantGone,
    /// The idempotency key stands for a request with another body.
    #[error("the idempotency key was used with another body")]
    KeyReused,
    /// The uid stands for an event with another body.
    #[error("the uid was used with another body")]
    UidReused,
    /// Another request with one of the keys is being written, and takes its time.
    #[error("another request with the key is under way")]
    KeyInUse,
    /// PostgreSQL refuses this event and no other: a fault of ours.
    #[error("the event could not be written")]
    Refused,
}

/// An accepted event on its way to the dispatcher of the same node, its payload still in memory.
#[derive(Debug)]
pub struct FreshEvent {
    /// Whose.
    pub tenant: TenantId,
    /// Its id.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// What the payload says that it is.
    pub content_type: ContentType,
    /// The payload.
    pub payload: Bytes,
    /// When it happened, by its tenant's account.
    pub occurred_at: Option<DateTime<Utc>>,
    /// Its own headers.
    pub headers: CustomHeaders,
    /// The endpoints that this node sends it to.
    pub endpoints: Vec<EndpointId>,
    /// Endpoints to hand over once more, because the outcome of the flush that was to do it is unknown. They are parked unless
    /// `pending` has, or had, their row.
    pub handed_over: Vec<EndpointId>,
    /// Its tenant has endpoints with strict limits, which only the owners of their shards send to.
    pub has_strict: bool,
    /// The stream that it was written in; its open set is told when a delivery is resolved.
    pub stream: Arc<Stream>,
    /// What it takes of the node's memory.
    pub taken: Taken,
}

impl FreshEvent {
    /// When it happened: when it was accepted, where its tenant does not say.
    #[must_use]
    pub fn happened_at(&self) -> DateTime<Utc> {
        self.occurred_at.unwrap_or_else(|| self.id.minted_at())
    }

    /// The database has acknowledged that `deliveries` of this event are resolved or pending.
    pub fn resolved(&self, deliveries: usize) {
        self.stream.open().resolved(self.id, deliveries);
    }
}

/// What accept needs.
#[derive(Clone)]
pub struct AcceptorParts {
    /// For the flushes' connection.
    pub database: Database,
    /// What events are matched against.
    pub cache: ConfigCache,
    /// The stream that events are written in.
    pub keeper: Arc<StreamKeeper>,
    /// Which deliveries are this node's to send.
    pub shards: Shards,
    /// Time.
    pub clock: Clock,
    /// Where fresh events go once they are durable.
    pub dispatch: mpsc::Sender<FreshEvent>,
    /// Rung when something was handed over to this node itself.
    pub due: DueHint,
    /// Which endpoints are behind on this node.
    pub backpressure: Backpressure,
}

/// The caller's side of accept. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    inner: Arc<Inner>,
}

struct Inner {
    cache: ConfigCache,
    keeper: Arc<StreamKeeper>,
    shards: Shards,
    queues: Queues,
    /// What is accepted and still in memory.
    memory: Memory,
    backpressure: Backpressure,
    /// The batcher has lost its database: answer at once instead of queueing.
    away: Arc<AtomicBool>,
    stopping: AtomicBool,
}

impl Acceptor {
    /// An acceptor and its batcher.
    #[must_use]
    pub fn new(parts: AcceptorParts) -> (Self, Batcher) {
        let queues = Queues::default();
        let away = Arc::new(AtomicBool::new(false));
        let (cache, keeper) = (parts.cache.clone(), Arc::clone(&parts.keeper));
        let (shards, backpressure) = (parts.shards.clone(), parts.backpressure.clone());
        let batcher = Batcher::new(parts, queues.clone(), &away);
        let inner = Inner {
            cache,
            keeper,
            shards,
            queues,
            memory: Memory::default(),
            backpressure,
            away,
            stopping: AtomicBool::new(false),
        };
        (
            Self {
                inner: Arc::new(inner),
            },
            batcher,
        )
    }

    /// Accepts one event. The answer comes after its flush is committed; dropping the future does not undo it.
    ///
    /// # Errors
    /// [`AcceptError`]; only `Unavailable` leaves open whether the event was written.
    pub async fn accept(&self, new: NewEvent) -> Result<Accepted, AcceptError> {
        let inner = &*self.inner;
        if inner.stopping.load(Ordering::Acquire) {
            return Err(AcceptError::ShuttingDown);
        }
        if inner.away.load(Ordering::Acquire) {
            return Err(AcceptError::Unavailable);
        }
        let snapshot = inner.cache.snapshot();
        let tenant = snapshot.tenant(new.tenant).ok_or(AcceptError::TenantGone)?;
        let endpoints = tenant.matching(&new.event_type, &new.content_type);
        let handovers = handover::of(tenant, &endpoints, &inner.shards);
        // Room first, the id last: once an id is open its row must reach the batcher.
        let bytes = queue::weight(new.payload.len(), endpoints.len(), new.keys.is_some());
        let queue = inner.queues.of(bytes);
        let place = queue.reserve(new.tenant, bytes)?;
        let taken = inner
            .memory
            .take(new.tenant, new.payload.len(), endpoints.len())
            .ok_or(AcceptError::Busy)?;
        inner.backpressure.hold(new.tenant, &endpoints).await;
        let (codec, stored) = encode::encode(&new.payload);
        let (reply, answer) = oneshot::channel();
        let id = inner.keeper.mint().ok_or(AcceptError::Unavailable)?;
        queue.push(Row {
            new,
            id,
            endpoints,
            handovers,
            has_strict: tenant.has_strict(),
            matched: snapshot.seq(),
            codec,
            stored,
            doubtful: false,
            contested: None,
            reply,
            taken,
            _place: place,
        });
        match tokio::time::timeout(limits::ACCEPT_WAIT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(AcceptError::Unavailable),
        }
    }

    /// How long a caller that was turned away should wait before it comes back.
    #[must_use]
    pub fn retry_after(error: AcceptError) -> Option<Duration> {
        match error {
            AcceptError::Busy | AcceptError::KeyInUse => Some(Duration::from_secs(1)),
            AcceptError::Unavailable | AcceptError::ShuttingDown => Some(Duration::from_secs(2)),
            AcceptError::TenantGone
            | AcceptError::KeyReused
            | AcceptError::UidReused
            | AcceptError::Refused => None,
        }
    }

    /// Accepts no more. What is queued is still flushed.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
    }
}

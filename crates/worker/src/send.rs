//! The life of one delivery: prepare → sign → send → classify → record. All but send are pure or one statement.

mod came;
mod exchange;
mod load;
mod request;
mod test_send;

use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use posthorn_domain::delivery::{Cause, Next, Outcome, Standing, Trigger, Why, next};
use posthorn_domain::endpoint::StateCause;
use posthorn_domain::id::ReplayId;
use posthorn_domain::limits;
use posthorn_egress::Egress;
use posthorn_store::clock::Clock;
use posthorn_store::configuration::{ConfigCache, EndpointEntry};
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::gone;
use posthorn_store::pending::{self, Due, Load, ParkedEndpoint};
use posthorn_store::record::{Consequence, DeliveryKey, Fact, Retry, Source};
use posthorn_store::shards::Shards;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::came::{Came, Keep, Made};
use self::exchange::exchange;
use self::request::Content;
use crate::circuit::{Attempted, Circuits};
use crate::dispatch::{Dispatcher, Item};
use crate::record::{Recorder, Unrecorded};
use crate::stall::Stalls;
use crate::step::bounded;

pub use self::load::{LoadLoop, Loader};
pub use self::test_send::{TestSender, TestSenderParts};

/// What sending needs.
pub struct SenderParts {
    /// To set aside what cannot be sent now.
    pub database: Database,
    /// For pending rows.
    pub loader: Loader,
    /// Endpoints as they are now.
    pub cache: ConfigCache,
    /// The guarded client.
    pub egress: Egress,
    /// Time.
    pub clock: Clock,
    /// For attempts' ids and jitter.
    pub entropy: Entropy,
    /// Told what attempts say of their endpoints.
    pub circuits: Arc<Circuits>,
    /// Told when a slot is free.
    pub dispatcher: Arc<Dispatcher>,
    /// Told what came of it.
    pub recorder: Recorder,
    /// Whose pending rows are sent here.
    pub shards: Shards,
}

/// Sends deliveries.
pub struct Sender {
    database: Database,
    loader: Loader,
    cache: ConfigCache,
    egress: Egress,
    clock: Clock,
    entropy: Entropy,
    circuits: Arc<Circuits>,
    dispatcher: Arc<Dispatcher>,
    recorder: Recorder,
    shards: Shards,
    /// Many deliveries of a paused endpoint come up at once; the shared connections are not all for them.
    aside: Semaphore,
    stalls: Stalls,
}

/// A delivery that is about to be sent.
struct Prepared {
    key: DeliveryKey,
    source: Source,
    content: Content,
    n: u32,
    step: u32,
    ends_at: DateTime<Utc>,
    trigger: Trigger,
    replay: Option<ReplayId>,
}

impl Sender {
    /// Ready to send.
    #[must_use]
    pub fn new(parts: SenderParts) -> Self {
        let SenderParts {
            database,
            loader,
            cache,
            egress,
            clock,
            entropy,
            circuits,
            dispatcher,
            recorder,
            shards,
        } = parts;
        Self {
            database,
            loader,
            cache,
            egress,
            clock,
            entropy,
            circuits,
            dispatcher,
            recorder,
            shards,
            aside: Semaphore::new(limits::SETTING_ASIDE),
            stalls: Stalls::default(),
        }
    }

    /// Sends tests through the same client.
    #[must_use]
    pub fn tester(&self) -> TestSender {
        TestSender::new(TestSenderParts {
            database: self.database.clone(),
            cache: self.cache.clone(),
            egress: self.egress.clone(),
            clock: self.clock.clone(),
            entropy: self.entropy,
        })
    }

    /// Sends one delivery and hands what came of it to the recorder. `place` is its place among the unrecorded.
    pub async fn deliver(&self, item: Item, place: OwnedSemaphorePermit) {
        let key = item.key();
        let mut slot = Slot {
            dispatcher: &self.dispatcher,
            key,
            armed: true,
        };
        let snapshot = self.cache.snapshot();
        let entry = snapshot.endpoint(key.tenant, key.endpoint);
        let result = match (entry, self.shut(&item)) {
            // Only the owner of its shard sends to a strict endpoint; who that is may have changed since it was queued.
            (Some(entry), _) if entry.is_strict() && !self.shards.owns(key.endpoint) => {
                self.hand_over(&item)
            }
            // Boxed here and below: what seldom happens would be carried along, and moved, with every delivery.
            (Some(_), Some(why)) => Box::pin(self.set_aside(&item, why)).await,
            (Some(entry), None) => match self.prepare(&item, entry).await {
                Some(prepared) if self.admitted(key, entry).await => {
                    // Last of all: everything before it may have taken its time.
                    if self.may_begin(&item) {
                        Some(self.attempt(prepared, entry).await)
                    } else {
                        self.too_late(&item)
                    }
                }
                Some(_) => Box::pin(self.set_aside(&item, Why::RateLimit)).await,
                None => None,
            },
            (None, _) => Box::pin(self.without_endpoint(&item)).await,
        };
        slot.armed = false;
        self.dispatcher.answered(key);
        match result {
            Some(fact) => {
                let fresh = match item {
                    Item::Fresh(event, _) => Some(event),
                    Item::Pending(_) | Item::Probe(_) => None,
                };
                self.recorder
                    .record(Unrecorded {
                        fact,
                        fresh,
                        place: Some(place),
                        held: true,
                    })
                    .await;
            }
            // Nothing to record: the row says it all, or the event is another's.
            None => self.dispatcher.recorded(std::iter::once(key)),
        }
    }

    /// Why nothing may be sent to the endpoint now, if so: it may have changed since the delivery was let out. A probe is for
    /// a circuit that is open.
    fn shut(&self, item: &Item) -> Option<Why> {
        let shut = self.dispatcher.is_shut(item.key())?;
        (!matches!((item, shut), (Item::Probe(_), Why::Circuit))).then_some(shut)
    }

    /// Whether the lease lets a request begin at this very moment. That was asked when the delivery left its lane; but a node that
    /// has slept since, waited for the row or for its rate, may have lost its stream to another, which sends what is due (INV-6).
    fn may_begin(&self, item: &Item) -> bool {
        match item {
            Item::Fresh(event, _) => event.stream.may_begin(&self.clock),
            Item::Pending(row) | Item::Probe(row) => {
                self.shards.may_begin(row.key.endpoint, &self.clock)
            }
        }
    }

    /// A row lies in `pending` as it is. A fresh delivery goes there, unless its stream is closed: then recovery has it.
    fn too_late(&self, item: &Item) -> Option<Fact> {
        match item {
            Item::Fresh(event, _) if !event.stream.is_closed() => {
                Some(self.dispatcher.parked(item, Why::Capacity, true).fact)
            }
            Item::Fresh(..) | Item::Pending(_) | Item::Probe(_) => None,
        }
    }

    /// Whether the request may start now. The endpoint's lane has let it through by its rate, but what it needed was read since,
    /// and the rate counts when requests start. Waiting costs no attempt.
    async fn admitted(&self, key: DeliveryKey, entry: &EndpointEntry) -> bool {
        if entry.rate_limit.is_none() && !self.circuits.holds_back() {
            return true;
        }
        for _ in 0..limits::ADMISSIONS {
            match self.dispatcher.admit(key) {
                Ok(()) => return true,
                Err(wait) if wait <= limits::ADMISSION_WAIT => self.clock.sleep(wait).await,
                // The rate was lowered since.
                Err(_) => return false,
            }
        }
        false
    }

    /// Reads what is needed to send; `None` where there is nothing to send after all.
    async fn prepare(&self, item: &Item, entry: &EndpointEntry) -> Option<Prepared> {
        match item {
            // A stream that was closed meanwhile is recovery's, unsent deliveries included.
            Item::Fresh(event, _) if event.stream.is_closed() => None,
            Item::Fresh(event, _) => Some(Prepared {
                key: item.key(),
                source: Source::Fresh,
                content: Content {
                    event_type: event.event_type.as_str().to_owned(),
                    happened_at: event.happened_at(),
                    media_type: event.content_type.clone(),
                    payload: event.payload.clone(),
                    headers: event.headers.clone(),
                },
                n: 1,
                step: 0,
                ends_at: event.id.minted_at() + entry.max_age,
                trigger: Trigger::Schedule,
                replay: None,
            }),
            Item::Pending(due) => self.load(due).await,
            Item::Probe(due) => self.load(due).await.map(|prepared| Prepared {
                trigger: match prepared.trigger {
                    Trigger::Replay => Trigger::Replay,
                    _ => Trigger::Probe,
                },
                ..prepared
            }),
        }
    }

    /// Reads a pending row again, at the moment of sending.
    async fn load(&self, due: &Due) -> Option<Prepared> {
        let loaded = match self.loader.load(*due).await? {
            Load::Ready(loaded) => *loaded,
            Load::Expired => return Box::pin(self.bury(due, Cause::Expired)).await,
            Load::PayloadGone => return Box::pin(self.bury(due, Cause::PayloadGone)).await,
            Load::Void | Load::Moved | Load::Later => return None,
        };
        // It was queued while this node owned its shard: by now another may, and sends it.
        if !self.shards.owns(due.key.endpoint) {
            return None;
        }
        self.dispatcher.weighed(due.key, loaded.payload.len());
        let headers = loaded
            .headers
            .as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        Some(Prepared {
            key: due.key,
            source: Source::Pending,
            content: Content {
                event_type: loaded.event_type,
                happened_at: loaded.happened_at,
                media_type: loaded.content_type,
                payload: loaded.payload,
                headers,
            },
            n: loaded.n,
            step: loaded.step,
            ends_at: loaded.ends_at,
            trigger: loaded.trigger,
            replay: loaded.replay,
        })
    }

    async fn bury(&self, due: &Due, cause: Cause) -> Option<Prepared> {
        let _turn = self.aside.acquire().await;
        let buried = bounded(pending::bury(&self.database, due, cause)).await;
        self.stalls.told("ending deliveries", &buried);
        None
    }

    /// Another node sends it: a fresh delivery goes to `pending`, due at once; a row lies there.
    fn hand_over(&self, item: &Item) -> Option<Fact> {
        match item {
            Item::Fresh(event, _) if event.stream.is_closed() => None,
            Item::Fresh(..) => Some(self.dispatcher.parked(item, Why::Handover, true).fact),
            Item::Pending(_) | Item::Probe(_) => None,
        }
    }

    /// The endpoint is not to be sent to now: a fresh delivery goes to `pending`, a row is parked with its siblings.
    async fn set_aside(&self, item: &Item, why: Why) -> Option<Fact> {
        match item {
            Item::Fresh(event, _) if event.stream.is_closed() => None,
            Item::Fresh(..) => Some(self.dispatcher.parked(item, why, false).fact),
            Item::Pending(row) | Item::Probe(row) if row.is_parked() => None,
            Item::Pending(due) | Item::Probe(due) => {
                let _turn = self.aside.acquire().await;
                let (tenant, endpoint) = (due.key.tenant, due.key.endpoint);
                let parked = pending::park_due(&self.database, tenant, endpoint, why, &[]);
                self.stalls
                    .told("setting deliveries aside", &bounded(parked).await);
                None
            }
        }
    }

    /// The endpoint is not in the configuration. A fresh event was matched with it, so it was deleted since: its row
    /// says so, and that ends the delivery. A pending row is ended only on the word of the endpoint's own row.
    async fn without_endpoint(&self, item: &Item) -> Option<Fact> {
        match item {
            Item::Fresh(event, _) => event.resolved(1),
            Item::Pending(due) | Item::Probe(due) => {
                let _turn = self.aside.acquire().await;
                let of = ParkedEndpoint {
                    tenant: due.key.tenant,
                    endpoint: due.key.endpoint,
                };
                let cancelled = bounded(pending::cancel(&self.database, of)).await;
                self.stalls.told("ending deliveries", &cancelled);
            }
        }
        None
    }

    /// One request, and the fact that it makes.
    async fn attempt(&self, prepared: Prepared, entry: &EndpointEntry) -> Fact {
        let at = self.clock.now();
        let began = self.clock.monotonic();
        let by = (&self.egress, &self.clock);
        let came = exchange(by, prepared.key, &prepared.content, entry, at).await;
        let left = (prepared.ends_at - self.clock.now())
            .to_std()
            .unwrap_or_default();
        let standing = Standing {
            n: prepared.n,
            step: prepared.step,
            scheduled: None,
        };
        let decided = next(
            standing,
            &came.outcome,
            &entry.retry_policy,
            left,
            self.entropy.uniform(),
        );
        if came.outcome == Outcome::Gone {
            Box::pin(self.disable(prepared.key, entry.config_seq)).await;
        } else {
            self.count(&prepared, (&came, began), entry).await;
        }
        self.fact(prepared, came, decided, entry, (at, began))
    }

    /// What the attempt says of its endpoint.
    async fn count(
        &self,
        prepared: &Prepared,
        (came, began): (&Came, Instant),
        entry: &EndpointEntry,
    ) {
        let key = prepared.key;
        let attempted = Attempted {
            of: (key.tenant, key.endpoint),
            event: key.event,
            trigger: prepared.trigger,
            outcome: came.outcome,
            status: came.answer.as_ref().map(|answer| answer.status),
            cause: came.error.as_ref().map(|error| error.kind),
            began,
        };
        // At once: what is to be told to other nodes takes its time, and meanwhile more would be refused.
        if self.circuits.heard(&attempted, entry) {
            self.dispatcher.allow_one(key.tenant, key.endpoint);
        }
        if self.circuits.attempted(attempted, entry).await {
            self.dispatcher.allow_one(key.tenant, key.endpoint);
        }
    }

    async fn disable(&self, key: DeliveryKey, config_seq: i64) {
        // At once: until the configuration says so, too, as many more would go out as are allowed.
        self.dispatcher
            .shut(key.tenant, key.endpoint, Why::Disabled);
        let (tenant, endpoint) = (key.tenant, key.endpoint);
        let disabled = gone::disable(
            &self.database,
            tenant,
            endpoint,
            config_seq,
            StateCause::Gone,
        );
        match bounded(disabled).await {
            Ok(true) => {
                self.stalls.done("disabling endpoints");
                tracing::info!(endpoint = %key.endpoint, "an endpoint answered 410 and is disabled");
                let read = bounded(self.cache.refresh()).await;
                self.stalls.told("reading the configuration", &read);
            }
            Ok(false) => self.stalls.done("disabling endpoints"),
            Err(error) => self.stalls.failed("disabling endpoints", &error),
        }
    }

    fn fact(
        &self,
        prepared: Prepared,
        came: Came,
        decided: Next,
        entry: &EndpointEntry,
        (at, began): (DateTime<Utc>, Instant),
    ) -> Fact {
        let keep = Keep::of(entry, &came.outcome);
        let made = Made {
            n: prepared.n,
            nonce: u32::from_be_bytes(self.entropy.bytes()),
            at,
            duration: self.clock.monotonic().saturating_duration_since(began),
            trigger: prepared.trigger,
            replay: prepared.replay,
            config_seq: entry.config_seq,
        };
        let attempt = came.attempt(made, keep);
        let consequence = match decided {
            Next::Delivered => Consequence::Delivered,
            Next::Retry { step, after, .. } => Consequence::Retry(Retry {
                step,
                after,
                ends_at: prepared.ends_at,
            }),
            Next::Dead(cause) => Consequence::Dead(cause),
        };
        Fact::Attempted {
            key: prepared.key,
            attempt: Box::new(attempt),
            source: prepared.source,
            consequence,
            event_type: prepared.content.event_type,
            application: None,
        }
    }
}

/// Frees a delivery's slot should sending it panic: a fault of ours must not use up an endpoint's slots. A pending row
/// is then found again by the due timer; a fresh event stays open, for recovery to find.
struct Slot<'a> {
    dispatcher: &'a Dispatcher,
    key: DeliveryKey,
    armed: bool,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.dispatcher.answered(self.key);
            self.dispatcher.recorded(std::iter::once(self.key));
        }
    }
}

//! Dispatch: what is durable is sent, by turns, within the caps.
//!
//! Fresh events come from accept, due rows from the due timer and the drain. The dispatcher itself never waits for a
//! receiver: it starts requests while there is a slot and room for their results, and parks what has waited
//! too long.
//!
//! What may be sent to an endpoint is asked of the configuration when there is something to send, and again whenever that has
//! changed. Where a rate lets the next request start is a moment that the dispatcher sleeps to.

mod allowance;
mod behind;
mod handover;
mod item;
mod known;
mod lanes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posthorn_domain::delivery::Why;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_domain::limits;
use posthorn_store::accept::{Backpressure, FreshEvent};
use posthorn_store::clock::Clock;
use posthorn_store::configuration::ConfigCache;
use posthorn_store::due::DueHint;
use posthorn_store::pending::{Due, ParkedEndpoint};
use posthorn_store::record::{DeliveryKey, Fact, Parked};
use posthorn_store::shards::Shards;
use posthorn_store::stream::{Stream, StreamKeeper};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use self::lanes::{Lanes, Refusal};
use crate::circuit::Circuits;
use crate::record::{Recorder, Unrecorded};
use crate::send::Sender;

pub(crate) use self::allowance::Allowance;
pub use self::item::Item;

/// How often the dispatcher looks for what has waited too long.
const TICK: Duration = Duration::from_millis(250);

/// The queues of this node and what may be started from them. Shared by all its loops.
pub struct Dispatcher {
    lanes: Mutex<Lanes>,
    wake: Notify,
    /// Rung when the parked rows in a lane run low while more lie in the database.
    low: DueHint,
    /// Shards were given up, and what is queued of theirs was not let go of yet.
    given_up: AtomicBool,
    /// Results that may still be unrecorded; no request starts without a place.
    places: Arc<Semaphore>,
    clock: Clock,
    cache: ConfigCache,
    circuits: Arc<Circuits>,
    keeper: Arc<StreamKeeper>,
    shards: Shards,
    /// Told of endpoints that are behind.
    backpressure: Backpressure,
}

impl Dispatcher {
    /// Empty queues.
    #[must_use]
    pub fn new(
        clock: Clock,
        cache: ConfigCache,
        circuits: Arc<Circuits>,
        keeper: Arc<StreamKeeper>,
        shards: Shards,
        backpressure: Backpressure,
    ) -> Self {
        Self {
            lanes: Mutex::default(),
            wake: Notify::new(),
            low: DueHint::default(),
            given_up: AtomicBool::new(false),
            places: Arc::new(Semaphore::new(limits::UNRECORDED)),
            clock,
            cache,
            circuits,
            keeper,
            shards,
            backpressure,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until `stop`; then parks what is queued and waits for the requests that are out, until they have ended or this is
    /// dropped.
    pub async fn run(
        self: Arc<Self>,
        sender: Arc<Sender>,
        recorder: Recorder,
        mut fresh: mpsc::Receiver<FreshEvent>,
        stop: CancellationToken,
    ) {
        let mut arrived = Vec::new();
        let mut look_at = self.clock.monotonic() + TICK;
        let mut look_behind_at = look_at;
        let mut pause = TICK;
        let mut version = None;
        let mut stream = self.keeper.present();
        while !stop.is_cancelled() {
            // What has arrived is taken in pieces, and requests are started in pieces: what else is ready gets on between them,
            // however many endpoints an event is for.
            if pause.is_zero() || !arrived.is_empty() {
                tokio::task::yield_now().await;
            }
            if arrived.is_empty() {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = self.wake.notified() => {}
                    _ = fresh.recv_many(&mut arrived, limits::FLUSH_ROWS), if !fresh.is_closed() || !fresh.is_empty() => {}
                    () = self.clock.sleep(pause) => {}
                }
                // Taken from its end.
                arrived.reverse();
            }
            self.allow(&mut version);
            self.take_some(&mut arrived, &recorder);
            self.forget_closed(&mut stream);
            if self.given_up.swap(false, Ordering::AcqRel) {
                self.let_go(&recorder);
            }
            pause = self.start(&sender);
            self.park_evicted(&recorder);
            if self.lanes().any_low() {
                self.low.ring();
            }
            // By the clock and not by the timer above: under load there is always something that comes first.
            let now = self.clock.monotonic();
            if now >= look_behind_at {
                look_behind_at = now + limits::BEHIND_LOOK;
                self.tell_behind(now);
            }
            if self.backpressure.is_on() {
                pause = pause.min(limits::BEHIND_LOOK);
            }
            if now >= look_at {
                self.park_overdue(&recorder);
                self.look_again();
                look_at = now + TICK;
            }
        }
        for event in arrived.into_iter().rev() {
            self.take(&Arc::new(event), &recorder);
        }
        self.finish(&recorder, &mut fresh).await;
    }

    /// Takes the last of these events, and those before it, until they have brought [`limits::TAKEN_AT_ONCE`] deliveries.
    fn take_some(&self, arrived: &mut Vec<FreshEvent>, recorder: &Recorder) {
        let mut deliveries = 0;
        while deliveries < limits::TAKEN_AT_ONCE
            && let Some(event) = arrived.pop()
        {
            deliveries += event.endpoints.len();
            self.take(&Arc::new(event), recorder);
        }
    }

    /// Queues the deliveries of a fresh event, without waiting for anything; what does not fit, or is another node's, goes
    /// to `pending`.
    fn take(&self, event: &Arc<FreshEvent>, recorder: &Recorder) {
        // A stream that another node closed is recovery's, with all that was not sent.
        if event.stream.is_closed() {
            return;
        }
        let mut elsewhere = self.elsewhere(event);
        elsewhere.extend(&event.handed_over);
        let refused: Vec<_> = {
            let now = self.clock.monotonic();
            let known = self.known();
            let mut lanes = self.lanes();
            let items = event
                .endpoints
                .iter()
                .filter(|endpoint| !elsewhere.contains(endpoint))
                .map(|endpoint| Item::Fresh(Arc::clone(event), *endpoint));
            items
                .filter_map(|item| {
                    let key = item.key();
                    let allowance = || self.allowance(&known, key.tenant, key.endpoint);
                    let refused = lanes.push(item.clone(), now, allowance).err();
                    refused.map(|why| (item, why))
                })
                .collect()
        };
        for (item, why) in refused {
            match why {
                Refusal::Park(why) => {
                    let parked = self.parked(&item, why, false);
                    recorder.park(parked.unheld());
                }
                // The same delivery came back through `pending` already; that one is sent.
                Refusal::Held => event.resolved(1),
            }
        }
        for endpoint in elsewhere {
            let item = Item::Fresh(Arc::clone(event), endpoint);
            let parked = self.parked(&item, Why::Handover, true);
            recorder.park(parked.unheld());
        }
    }

    /// Queues due rows. Answers the endpoints of which some were not taken, and why.
    pub fn offer(&self, due: &[Due]) -> HashMap<(TenantId, EndpointId), Why> {
        let now = self.clock.monotonic();
        let known = self.known();
        let mut refused = HashMap::new();
        {
            let mut lanes = self.lanes();
            for row in due {
                let of = (row.key.tenant, row.key.endpoint);
                let taken = lanes.push(Item::Pending(*row), now, || {
                    self.allowance(&known, of.0, of.1)
                });
                if let Err(Refusal::Park(why)) = taken {
                    refused.insert(of, why);
                }
            }
        }
        self.wake.notify_one();
        refused
    }

    /// The events of an endpoint whose due rows this node holds: queued, being sent, or not yet recorded.
    #[must_use]
    pub fn holding(&self, tenant: TenantId, endpoint: EndpointId) -> Vec<EventId> {
        self.lanes().holding(tenant, endpoint)
    }

    /// How many more parked rows of an endpoint there is room for.
    #[must_use]
    pub fn room(&self, of: ParkedEndpoint) -> usize {
        self.lanes().room(of.tenant, of.endpoint)
    }

    /// Queues parked rows of an endpoint, in their order, until one does not fit. Answers how many there was no need to
    /// bring again. With `more`, the endpoint is among [`Dispatcher::low`] when they run low.
    pub fn offer_parked(&self, of: ParkedEndpoint, rows: &[Due], more: bool) -> usize {
        let now = self.clock.monotonic();
        let known = self.known();
        let taken = {
            let mut lanes = self.lanes();
            let taken = rows
                .iter()
                .take_while(|row| {
                    let allowance = || self.allowance(&known, of.tenant, of.endpoint);
                    let pushed = lanes.push(Item::Pending(**row), now, allowance);
                    !matches!(pushed, Err(Refusal::Park(_)))
                })
                .count();
            lanes.set_more(of.tenant, of.endpoint, more && taken == rows.len());
            taken
        };
        self.wake.notify_one();
        taken
    }

    /// What was due for an endpoint beyond what is queued lies parked now: it is among [`Dispatcher::low`] when that runs low.
    pub(crate) fn rest_is_parked(&self, of: ParkedEndpoint) {
        self.lanes().rest_is_parked(of.tenant, of.endpoint);
        self.wake.notify_one();
    }

    /// Queues a parked row to try an endpoint whose circuit is open. Answers whether it was taken: not while another request
    /// to the endpoint is under way.
    pub(crate) fn offer_probe(&self, row: Due) -> bool {
        let known = self.known();
        let allowance = || self.allowance(&known, row.key.tenant, row.key.endpoint);
        let now = self.clock.monotonic();
        let pushed = self.lanes().push(Item::Probe(row), now, allowance);
        self.wake.notify_one();
        pushed.is_ok()
    }

    /// The endpoints whose parked rows in memory ran low since the last call, while more lie in the database.
    #[must_use]
    pub fn low(&self) -> Vec<ParkedEndpoint> {
        let low = self.lanes().low();
        low.into_iter()
            .map(|(tenant, endpoint)| ParkedEndpoint { tenant, endpoint })
            .collect()
    }

    /// Rung when [`Dispatcher::low`] has something to tell.
    #[must_use]
    pub fn low_hint(&self) -> DueHint {
        self.low.clone()
    }

    /// The request of a delivery is about to start. Only of an endpoint with a rate is there anything to ask.
    ///
    /// # Errors
    /// How long it may not.
    pub fn admit(&self, key: DeliveryKey) -> Result<(), Duration> {
        let now = self.clock.monotonic();
        self.lanes().admit(key, now)
    }

    /// The payload of a pending row that is being sent has so many bytes.
    pub fn weighed(&self, key: DeliveryKey, bytes: usize) {
        self.lanes().weighed(key, bytes);
        self.wake.notify_one();
    }

    /// The request of a delivery has ended; its result is not on record yet.
    pub fn answered(&self, key: DeliveryKey) {
        self.lanes().answered(key);
        self.wake.notify_one();
    }

    /// These are on record: their deliveries may be taken again.
    pub fn recorded(&self, keys: impl Iterator<Item = DeliveryKey>) {
        {
            let mut lanes = self.lanes();
            keys.for_each(|key| lanes.recorded(key));
        }
        self.wake.notify_one();
    }

    /// Forgets the fresh deliveries of a stream that was closed, once the next is open: recovery has them by now, and a
    /// delivery that this node holds it does not take from `pending`.
    fn forget_closed(&self, known: &mut Option<Arc<Stream>>) {
        let present = self.keeper.present();
        if present.as_ref().map(|stream| stream.id()) == known.as_ref().map(|stream| stream.id()) {
            return;
        }
        *known = present;
        let mut lanes = self.lanes();
        for item in lanes.closed() {
            lanes.recorded(item.key());
        }
    }

    /// Starts requests while there is a slot, a place for the result, and a live lease, and no more than
    /// [`limits::STARTED_AT_ONCE`]. Answers how long it is until there may be more to start, or to look after.
    fn start(&self, sender: &Arc<Sender>) -> Duration {
        let Some(stream) = self.keeper.present() else {
            return TICK;
        };
        for _ in 0..limits::STARTED_AT_ONCE {
            if !stream.may_begin(&self.clock) {
                return TICK;
            }
            let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                return TICK;
            };
            let now = self.clock.monotonic();
            let mut lanes = self.lanes();
            let Some(item) = lanes.pop(now) else {
                return until(lanes.next_at(), now);
            };
            drop(lanes);
            let sender = Arc::clone(sender);
            tokio::spawn(async move { sender.deliver(item, place).await });
        }
        Duration::ZERO
    }

    /// What was queued for endpoints that nothing may be sent to any more goes to `pending`, or is there already.
    fn park_evicted(&self, recorder: &Recorder) {
        let evicted = self.lanes().evicted();
        for (item, why) in evicted {
            match item {
                Item::Fresh(..) => recorder.park(self.parked(&item, why, false)),
                // Found again as due or parked, and treated as its endpoint is by then.
                Item::Pending(row) | Item::Probe(row) => self.lanes().recorded(row.key),
            }
        }
    }

    /// What is not being sent some seconds after its commit goes to `pending`, where any node may take it up.
    fn park_overdue(&self, recorder: &Recorder) {
        let Some(since) = self.clock.monotonic().checked_sub(limits::UNSENT_FOR) else {
            return;
        };
        let overdue = self.lanes().overdue(since);
        for (item, why) in overdue {
            recorder.park(self.parked(&item, why, false));
        }
    }

    /// A fresh delivery that is not sent, as a fact.
    pub(crate) fn parked(&self, item: &Item, why: Why, due: bool) -> Unrecorded {
        let key = item.key();
        let ends_at = key.event.minted_at() + self.max_age(key);
        let fresh = match item {
            Item::Fresh(event, _) => Some(Arc::clone(event)),
            Item::Pending(_) | Item::Probe(_) => None,
        };
        Unrecorded {
            fact: Fact::Parked {
                key,
                parked: Parked { why, due, ends_at },
            },
            fresh,
            place: None,
            held: true,
        }
    }

    /// The life of a delivery of an endpoint; of one that is gone from the configuration, the shortest there is.
    fn max_age(&self, key: DeliveryKey) -> Duration {
        let snapshot = self.cache.snapshot();
        snapshot
            .endpoint(key.tenant, key.endpoint)
            .map_or(limits::MAX_AGE_MIN, |entry| entry.max_age)
    }

    /// Parks what is queued, due at once for whoever comes next, and waits for what is out.
    async fn finish(&self, recorder: &Recorder, fresh: &mut mpsc::Receiver<FreshEvent>) {
        fresh.close();
        while let Some(event) = fresh.recv().await {
            self.take(&Arc::new(event), recorder);
        }
        let queued = self.drain();
        for item in queued.iter().filter(|item| !is_row(item)) {
            recorder.park(self.parked(item, Why::Handover, true));
        }
        while self.lanes().in_flight() > 0 {
            tokio::select! {
                () = self.wake.notified() => {}
                () = self.clock.sleep(TICK) => {}
            }
        }
    }

    /// Takes out everything that is queued. Rows of `pending` lie there as they are, and are held no longer.
    fn drain(&self) -> Vec<Item> {
        let mut lanes = self.lanes();
        let queued = lanes.drain();
        for item in queued.iter().filter(|item| is_row(item)) {
            lanes.recorded(item.key());
        }
        queued
    }

    /// Requests under way, and deliveries held.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let lanes = self.lanes();
        (lanes.in_flight(), lanes.held())
    }
}

const fn is_row(item: &Item) -> bool {
    matches!(item, Item::Pending(_) | Item::Probe(_))
}

/// How long it is until a moment, and no longer than the dispatcher sleeps anyway.
fn until(at: Option<Instant>, now: Instant) -> Duration {
    at.map_or(TICK, |at| at.saturating_duration_since(now).min(TICK))
}

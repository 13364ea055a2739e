//! Record: the loop that gathers results and commits them in batches.
//!
//! A batch at a time, at most every 20 ms under load and at once when idle. What cannot be recorded now is kept
//! and sent again, unchanged, until the database confirms; meanwhile no more requests start than there are places.
//!
//! Fresh deliveries that are set aside have a line and a connection of their own, by turns over the tenants: nobody's results, and
//! nobody's requests, wait for them.

mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthorn_domain::limits;
use posthorn_store::accept::FreshEvent;
use posthorn_store::clock::Clock;
use posthorn_store::record::{Consequence, Fact, RecordError, RecordWriter};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use self::turns::Turns;
use crate::dispatch::Dispatcher;

/// How long a batch that was not confirmed waits before it is sent again.
const PAUSE: Duration = Duration::from_millis(200);

/// One thing to record, with what is told when it is.
pub struct Unrecorded {
    /// What is recorded.
    pub fact: Fact,
    /// The fresh event that it is of: its open id is resolved by one delivery.
    pub fresh: Option<Arc<FreshEvent>>,
    /// Its place among the unrecorded, given back when it is recorded.
    pub place: Option<OwnedSemaphorePermit>,
    /// Whether the dispatcher holds the delivery because of this, and may take it again once it is recorded.
    pub held: bool,
}

impl Unrecorded {
    /// The same of a delivery that the dispatcher does not hold, or holds by a row of `pending` that came before.
    #[must_use]
    pub fn unheld(self) -> Self {
        Self {
            held: false,
            ..self
        }
    }
}

/// The way to the recorder. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    results: mpsc::Sender<Unrecorded>,
    /// Not bounded itself: each tenant's share of what is accepted and still in memory bounds it.
    parked: mpsc::UnboundedSender<Unrecorded>,
}

impl Recorder {
    /// A recorder and the loop that serves it.
    #[must_use]
    pub fn new(
        writer: RecordWriter,
        dispatcher: Arc<Dispatcher>,
        clock: Clock,
    ) -> (Self, RecordLoop) {
        let (results, queue) = mpsc::channel(2 * limits::UNRECORDED);
        let (parked, aside) = mpsc::unbounded_channel();
        let beside = Desk {
            writer: writer.beside(),
            dispatcher: Arc::clone(&dispatcher),
            clock: clock.clone(),
        };
        let desk = Desk {
            writer,
            dispatcher,
            clock,
        };
        let record_loop = RecordLoop {
            desk,
            queue,
            aside: beside,
            parked: aside,
        };
        (Self { results, parked }, record_loop)
    }

    /// Hands over a fresh delivery that goes to `pending`. Never waits: a crowd that is set aside must not keep the others from
    /// being sent (INV-13).
    pub fn park(&self, parked: Unrecorded) {
        drop(self.parked.send(parked));
    }

    /// Hands over a result. Waits while the queue is full, which slows accept and dispatch down and nobody else.
    pub async fn record(&self, result: Unrecorded) {
        // The loop ends only when the node does; then what is lost here is recovery's.
        drop(self.results.send(result).await);
    }
}

/// The recorder's loop: one line for results, and one beside it, on a connection of its own, for what is set aside.
pub struct RecordLoop {
    desk: Desk,
    queue: mpsc::Receiver<Unrecorded>,
    aside: Desk,
    parked: mpsc::UnboundedReceiver<Unrecorded>,
}

/// A connection that records, and whom it tells.
struct Desk {
    writer: RecordWriter,
    dispatcher: Arc<Dispatcher>,
    clock: Clock,
}

impl RecordLoop {
    /// Records until every [`Recorder`] is dropped and both lines are empty; after `stop`, a database that does not
    /// answer ends it, too, and what is set aside has so long and no longer: what is left of that stays open, for recovery.
    pub async fn run(self, stop: CancellationToken) {
        tokio::join!(
            self.desk.results(self.queue, &stop),
            self.aside.set_aside(self.parked, &stop)
        );
    }
}

impl Desk {
    async fn results(mut self, mut queue: mpsc::Receiver<Unrecorded>, stop: &CancellationToken) {
        let mut batch = Vec::with_capacity(limits::RECORD_ROWS);
        while queue.recv_many(&mut batch, limits::RECORD_ROWS).await > 0 {
            let began = self.clock.monotonic();
            if !self.settle(std::mem::take(&mut batch), stop).await {
                return;
            }
            self.linger(began, queue.len(), stop).await;
        }
    }

    /// Where some wait for the next batch, and do not fill it, it waits for more: one batch in so long a time, under load.
    async fn linger(&self, began: Instant, waiting: usize, stop: &CancellationToken) {
        if (1..limits::RECORD_ROWS).contains(&waiting) && !stop.is_cancelled() {
            let spent = self.clock.monotonic().saturating_duration_since(began);
            self.clock
                .sleep(limits::RECORD_LINGER.saturating_sub(spent))
                .await;
        }
    }

    /// Tenants take turns: who has set a thousand deliveries aside does not keep another's one waiting.
    async fn set_aside(
        mut self,
        mut queue: mpsc::UnboundedReceiver<Unrecorded>,
        stop: &CancellationToken,
    ) {
        let mut turns = Turns::default();
        let mut arrived = Vec::new();
        let mut give_up_at = None;
        loop {
            if turns.is_empty() && queue.recv_many(&mut arrived, limits::RECORD_ROWS).await == 0 {
                return;
            }
            while let Ok(parked) = queue.try_recv() {
                arrived.push(parked);
            }
            arrived.drain(..).for_each(|parked| turns.push(parked));
            if stop.is_cancelled() {
                let now = self.clock.monotonic();
                if now >= *give_up_at.get_or_insert(now + limits::SHUTDOWN_RECORD_WAIT) {
                    tracing::warn!(
                        "shut down before everything was set aside; recovery will find it"
                    );
                    return;
                }
            }
            let began = self.clock.monotonic();
            let batch = turns.take(limits::RECORD_ROWS);
            if !self.settle(batch, stop).await {
                return;
            }
            if turns.is_empty() {
                self.linger(began, queue.len(), stop).await;
            }
        }
    }

    /// Records a batch, however often it takes. False when the node stops without the database.
    async fn settle(&mut self, batch: Vec<Unrecorded>, stop: &CancellationToken) -> bool {
        let facts: Vec<_> = batch.iter().map(|result| result.fact.clone()).collect();
        match self.confirm(&facts, stop).await {
            Some(Ok(())) => self.told(batch),
            Some(Err(_)) => {
                for result in batch {
                    if !self.alone(result, stop).await {
                        return false;
                    }
                }
            }
            None => return false,
        }
        true
    }

    /// Sends facts until they are confirmed or refused; `None` when the node stops without the database.
    async fn confirm(
        &mut self,
        facts: &[Fact],
        stop: &CancellationToken,
    ) -> Option<Result<(), RecordError>> {
        let mut give_up_at = None;
        let mut told = false;
        loop {
            match self.writer.record(facts).await {
                // Once: it may be the database that is away, and this is asked five times a second.
                Err(error @ RecordError::Unknown(_)) if !told => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        rows = facts.len(),
                        "results are not on record yet"
                    );
                    told = true;
                }
                Err(RecordError::Unknown(_)) => {}
                done => {
                    if told {
                        tracing::info!(rows = facts.len(), "results are on record again");
                    }
                    return Some(done);
                }
            }
            if stop.is_cancelled() {
                let at = *give_up_at
                    .get_or_insert_with(|| self.clock.monotonic() + limits::SHUTDOWN_RECORD_WAIT);
                if self.clock.monotonic() > at {
                    return None;
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Records one result of a refused batch; refused alone, once more without what strangers wrote.
    async fn alone(&mut self, result: Unrecorded, stop: &CancellationToken) -> bool {
        for fact in [result.fact.clone(), result.fact.without_texts()] {
            match self.confirm(&[fact], stop).await {
                None => return false,
                Some(Ok(())) => {
                    self.told(vec![result]);
                    return true;
                }
                Some(Err(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the database refuses a result"
                    );
                }
            }
        }
        // Its id stays open: the delivery is found again by recovery, at worst as a duplicate.
        metrics::counter!("posthorn_results_refused_total").increment(1);
        let key = result.held.then(|| result.fact.key());
        drop(result);
        self.dispatcher.recorded(key.into_iter());
        true
    }

    /// Everything that hangs on a result being on record.
    fn told(&self, mut batch: Vec<Unrecorded>) {
        metrics::histogram!("posthorn_record_rows")
            .record(f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)));
        for result in &mut batch {
            if let Some(fresh) = &result.fresh {
                fresh.resolved(1);
            }
            count(&result.fact);
            // Before the dispatcher is woken, which looks for places.
            result.place = None;
        }
        let held = batch.iter().filter(|result| result.held);
        self.dispatcher
            .recorded(held.map(|result| result.fact.key()));
    }
}

fn count(fact: &Fact) {
    let Fact::Attempted {
        attempt,
        consequence,
        ..
    } = fact
    else {
        metrics::counter!("posthorn_deliveries_parked_total").increment(1);
        return;
    };
    let outcome = if attempt.success { "success" } else { "failed" };
    metrics::counter!("posthorn_attempts_total", "outcome" => outcome).increment(1);
    if let Consequence::Dead(cause) = consequence {
        metrics::counter!("posthorn_dead_letters_total", "cause" => cause.as_str()).increment(1);
    }
}

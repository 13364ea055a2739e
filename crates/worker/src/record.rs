//! Record: the loop that gathers results and commits them in batches.
//!
//! A batch at a time, at most every 20 ms under load and at once when idle. What cannot be recorded now is kept
//! and sent again, unchanged, until the database confirms; meanwhile no more requests start than there are places. Results whose
//! rows another transaction holds are laid aside and do not keep the others waiting.
//!
//! Fresh deliveries that are set aside have a line and a connection of their own, by turns over the tenants: nobody's results, and
//! nobody's requests, wait for them.

mod locked;
mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use posthorn_domain::limits;
use posthorn_store::accept::FreshEvent;
use posthorn_store::clock::Clock;
use posthorn_store::record::{Consequence, Fact, LockWait, RecordError, RecordWriter};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use self::locked::Locked;
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
            writer: writer.beside().impatient(),
            dispatcher: Arc::clone(&dispatcher),
            clock: clock.clone(),
            locked: Locked::default(),
        };
        let desk = Desk {
            writer: writer.impatient(),
            dispatcher,
            clock,
            locked: Locked::default(),
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
    /// What waits for rows that another transaction holds.
    locked: Locked,
}

impl RecordLoop {
    /// Records until every [`Recorder`] is dropped and both lines are empty, however long the database does not answer. Dropped
    /// before, it ends where it stands: what is left stays open, for recovery.
    pub async fn run(self) {
        tokio::join!(
            self.desk.results(self.queue),
            self.aside.set_aside(self.parked)
        );
    }
}

impl Desk {
    async fn results(mut self, mut queue: mpsc::Receiver<Unrecorded>) {
        let mut batch = Vec::with_capacity(limits::RECORD_ROWS);
        loop {
            tokio::select! {
                arrived = queue.recv_many(&mut batch, limits::RECORD_ROWS) => {
                    if arrived == 0 {
                        break;
                    }
                }
                () = self.clock.sleep(PAUSE), if !self.locked.is_empty() => {}
            }
            let began = self.clock.monotonic();
            if !batch.is_empty() {
                self.settle(std::mem::take(&mut batch)).await;
            }
            self.look_at_locked().await;
            self.linger(began, queue.len()).await;
        }
        self.wait_for_locked().await;
    }

    /// Where some wait for the next batch, and do not fill it, it waits for more: one batch in so long a time, under load.
    async fn linger(&self, began: Instant, waiting: usize) {
        if (1..limits::RECORD_ROWS).contains(&waiting) {
            let spent = self.clock.monotonic().saturating_duration_since(began);
            self.clock
                .sleep(limits::RECORD_LINGER.saturating_sub(spent))
                .await;
        }
    }

    /// Tenants take turns: who has set a thousand deliveries aside does not keep another's one waiting.
    async fn set_aside(mut self, mut queue: mpsc::UnboundedReceiver<Unrecorded>) {
        let mut turns = Turns::default();
        let mut arrived = Vec::new();
        loop {
            if turns.is_empty() {
                tokio::select! {
                    count = queue.recv_many(&mut arrived, limits::RECORD_ROWS) => {
                        if count == 0 {
                            break;
                        }
                    }
                    () = self.clock.sleep(PAUSE), if !self.locked.is_empty() => {}
                }
            }
            while let Ok(parked) = queue.try_recv() {
                arrived.push(parked);
            }
            arrived.drain(..).for_each(|parked| turns.push(parked));
            let began = self.clock.monotonic();
            let batch = turns.take(limits::RECORD_ROWS);
            if !batch.is_empty() {
                self.settle(batch).await;
            }
            self.look_at_locked().await;
            if turns.is_empty() {
                self.linger(began, queue.len()).await;
            }
        }
        self.wait_for_locked().await;
    }

    /// Records a batch, however often it takes.
    async fn settle(&mut self, batch: Vec<Unrecorded>) {
        // While some are known to wait, a batch is likely to meet the same locks.
        let wait = if self.locked.is_empty() {
            LockWait::Some
        } else {
            LockWait::Hardly
        };
        match self.confirm(&facts_of(&batch), wait).await {
            Ok(()) => self.told(batch),
            Err(RecordError::Locked(error)) => self.lay_aside(batch, &error),
            Err(_) => {
                for result in batch {
                    self.alone(result).await;
                }
            }
        }
    }

    /// Sends facts until they are confirmed, refused or found locked.
    async fn confirm(&mut self, facts: &[Fact], wait: LockWait) -> Result<(), RecordError> {
        let mut told = false;
        loop {
            match self.writer.record_waiting(facts, wait).await {
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
                    return done;
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Records one result of a refused batch; refused alone, once more without what strangers wrote.
    async fn alone(&mut self, result: Unrecorded) {
        for fact in [result.fact.clone(), result.fact.without_texts()] {
            match self.confirm(&[fact], LockWait::Hardly).await {
                Err(RecordError::Locked(error)) => {
                    return self.lay_aside(vec![result], &error);
                }
                Ok(()) => return self.told(vec![result]),
                Err(error) => {
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

fn facts_of(batch: &[Unrecorded]) -> Vec<Fact> {
    batch.iter().map(|result| result.fact.clone()).collect()
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

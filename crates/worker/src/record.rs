//! Record: the loop that gathers results and commits them in batches.
//!
//! A batch at a time, at most every 20 ms under load and at once when idle. What cannot be recorded now is kept
//! and sent again, unchanged, until the database confirms; meanwhile no more requests start than there are places.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits;
use posthorn_store::accept::FreshEvent;
use posthorn_store::clock::Clock;
use posthorn_store::record::{Consequence, Fact, RecordError, RecordWriter};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

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
        (
            Self { results },
            RecordLoop {
                writer,
                dispatcher,
                clock,
                queue,
            },
        )
    }

    /// Hands over a result. Waits while the queue is full, which slows accept and dispatch down and nobody else.
    pub async fn record(&self, result: Unrecorded) {
        // The loop ends only when the node does; then what is lost here is recovery's.
        drop(self.results.send(result).await);
    }
}

/// The recorder's loop.
pub struct RecordLoop {
    writer: RecordWriter,
    dispatcher: Arc<Dispatcher>,
    clock: Clock,
    queue: mpsc::Receiver<Unrecorded>,
}

impl RecordLoop {
    /// Records until every [`Recorder`] is dropped and the queue is empty; after `stop`, a database that does not
    /// answer ends it, too.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(limits::RECORD_ROWS);
        while self.queue.recv_many(&mut batch, limits::RECORD_ROWS).await > 0 {
            let began = self.clock.monotonic();
            if !self.settle(std::mem::take(&mut batch), &stop).await {
                return;
            }
            let spent = self.clock.monotonic().saturating_duration_since(began);
            if self.queue.len() < limits::RECORD_ROWS
                && !self.queue.is_empty()
                && !stop.is_cancelled()
            {
                self.clock
                    .sleep(limits::RECORD_LINGER.saturating_sub(spent))
                    .await;
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

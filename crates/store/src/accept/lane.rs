//! A lane of accept: one flush under way, one filling.
//!
//! What arrives while a flush is under way is the next batch; under load a batch lingers for company, and never when the server
//! is idle. Every row that was taken ends answered, or stays open in its stream: for recovery to find.

mod doubts;
mod keyed;
mod pace;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthorn_domain::id::{EndpointId, IdSet};
use posthorn_domain::limits;
use sqlx::PgConnection;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::pace::Pace;
use super::flush::{self, FlushError, Flushed, Row};
use super::handover;
use super::queue::{Next, Queue};
use super::{AcceptError, Accepted, AcceptorParts, FreshEvent};
use crate::clock::Clock;
use crate::configuration::ConfigCache;
use crate::database::{Database, DatabaseError, answered, unanswered};
use crate::due::DueHint;
use crate::shards::Shards;
use crate::stream::{Stream, StreamKeeper};

/// How long a failed round waits before the next.
const PAUSE: Duration = Duration::from_millis(200);

/// Flushes one queue on one connection.
pub(super) struct Lane {
    number: i16,
    database: Database,
    cache: ConfigCache,
    keeper: Arc<StreamKeeper>,
    shards: Shards,
    clock: Clock,
    dispatch: mpsc::Sender<FreshEvent>,
    due: DueHint,
    queue: Queue,
    pace: Pace,
    /// The database is away: callers are answered at once instead of queueing.
    away: Arc<AtomicBool>,
    /// It was told that events cannot be written, and not yet that they are again.
    told: AtomicBool,
    connection: Option<PgConnection>,
}

impl Lane {
    /// A lane that flushes `queue` behind the fence of this number.
    pub(super) fn new(
        number: i16,
        parts: AcceptorParts,
        queue: Queue,
        away: Arc<AtomicBool>,
    ) -> Self {
        let AcceptorParts {
            database,
            cache,
            keeper,
            shards,
            clock,
            dispatch,
            due,
            // Of those who come, not of what is written.
            backpressure: _,
        } = parts;
        Self {
            number,
            database,
            cache,
            keeper,
            shards,
            clock,
            dispatch,
            due,
            queue,
            pace: Pace::default(),
            away,
            told: AtomicBool::new(false),
            connection: None,
        }
    }

    /// Flushes until `stop`, then what is queued, then ends.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        while let Some(batch) = self.next(&stop).await {
            self.settle(batch).await;
        }
    }

    /// Flushes beside the lane itself whatever is worth a flush of its own, until `stop`.
    pub(super) async fn run_beside(mut self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let batch = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                batch = self.queue.take_crowd() => batch,
            };
            self.settle(batch).await;
            // Whoever finds the database away has to find out when it is back: the others may have nothing to do.
            while self.away.load(Ordering::Acquire) && !stop.is_cancelled() {
                self.clock.sleep(PAUSE).await;
                self.look_again().await;
            }
        }
    }

    /// The next batch; `None` when the queue is closed and empty.
    async fn next(&mut self, stop: &CancellationToken) -> Option<Vec<Row>> {
        loop {
            if self.pace.expects_company(self.queue.waiting()) {
                tokio::select! {
                    () = self.queue.ready(limits::FLUSH_COMPANY) => {}
                    () = self.clock.sleep(limits::FLUSH_LINGER) => {}
                }
            }
            match self.queue.take() {
                Next::Batch(rows) => {
                    self.pace.took(rows.len(), self.clock.monotonic());
                    return Some(rows);
                }
                Next::Ended => return None,
                Next::Empty => {}
            }
            let away = self.away.load(Ordering::Acquire);
            tokio::select! {
                biased;
                () = self.queue.ready(1) => {}
                () = stop.cancelled(), if !self.queue.is_closed() => self.queue.close(),
                () = self.clock.sleep(PAUSE), if away => self.look_again().await,
            }
        }
    }

    /// While the database is away nobody queues, so the batcher itself finds out when it answers again. Whether it takes events
    /// the next ones will tell: its disk may be full.
    async fn look_again(&mut self) {
        if self.connect().await.is_ok() {
            self.away.store(false, Ordering::Release);
        }
    }

    /// The database does not take events: told once, however many flushes it is.
    fn gone(&self, error: &DatabaseError, rows: usize) {
        self.away.store(true, Ordering::Release);
        if self.told.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, rows, "events cannot be written yet");
        } else {
            tracing::warn!(%error, rows, "events cannot be written");
        }
    }

    /// It does again.
    fn back(&self) {
        self.away.store(false, Ordering::Release);
        if self.told.swap(false, Ordering::Relaxed) {
            tracing::info!("events are written again");
        }
    }

    /// Flushes until every row is answered.
    async fn settle(&mut self, rows: Vec<Row>) {
        let mut batches = VecDeque::from([rows]);
        while let Some(rows) = batches.pop_front() {
            if !rows.is_empty() {
                batches.extend(self.round(rows).await);
            }
        }
    }

    /// One flush. Answers the batches that are left to do.
    async fn round(&mut self, rows: Vec<Row>) -> Vec<Vec<Row>> {
        let stream = match self.live_stream().await {
            Ok(stream) => stream,
            Err(error) => return self.without_database(rows, &error).await,
        };
        let Some(connection) = self.connection.as_mut() else {
            return vec![rows];
        };
        let flushed = tokio::time::timeout(
            limits::FLUSH_WAIT,
            flush::flush(connection, (stream.id(), self.number), &rows),
        )
        .await
        .unwrap_or_else(|_| Err(FlushError::Unknown(unanswered())));
        match flushed {
            Ok(flushed) => {
                self.back();
                metrics::histogram!("posthorn_flush_rows")
                    .record(f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX)));
                let left = self.answer(rows, &flushed, &stream).await;
                vec![left]
            }
            Err(FlushError::Data(error)) if rows.len() == 1 => {
                tracing::error!(%error, "an event was refused by the database");
                self.turn_away(rows, AcceptError::Refused);
                Vec::new()
            }
            Err(FlushError::Data(_)) => rows.into_iter().map(|row| vec![row]).collect(),
            Err(FlushError::Locked(error)) => self.contest(rows, &error).await,
            Err(FlushError::NotWritten(error)) => self.without_database(rows, &error).await,
            Err(FlushError::Unknown(error)) => {
                self.gone(&error, rows.len());
                self.connection = None;
                let doubtful = rows
                    .into_iter()
                    .map(|row| Row {
                        doubtful: true,
                        ..row
                    })
                    .collect();
                self.clock.sleep(PAUSE).await;
                vec![doubtful]
            }
        }
    }

    /// A connection and an open stream with a live lease, in which a flush may begin.
    async fn live_stream(&mut self) -> Result<Arc<Stream>, DatabaseError> {
        self.connect().await?;
        let stream = match self.keeper.present() {
            Some(stream) if !stream.is_closed() => stream,
            stale => answered(limits::STEP, self.keeper.reopen(stale.as_ref())).await?,
        };
        if stream.may_begin(&self.clock) {
            Ok(stream)
        } else {
            Err(not_renewed())
        }
    }

    async fn connect(&mut self) -> Result<(), DatabaseError> {
        if self.connection.is_none() {
            self.connection = Some(self.database.dedicated().await?);
        }
        Ok(())
    }

    /// Nothing of these rows was written by this round: those that were never in doubt are turned away.
    async fn without_database(&mut self, rows: Vec<Row>, error: &DatabaseError) -> Vec<Vec<Row>> {
        self.gone(error, rows.len());
        self.connection = None;
        let (doubtful, certain): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.doubtful);
        self.turn_away(certain, AcceptError::Unavailable);
        if !doubtful.is_empty() {
            self.clock.sleep(PAUSE).await;
        }
        vec![doubtful]
    }

    /// Certainly not written.
    fn turn_away(&self, rows: Vec<Row>, error: AcceptError) {
        for row in rows {
            self.forget(&row);
            let _gone = row.reply.send(Err(error));
        }
    }

    fn forget(&self, row: &Row) {
        if let Some(stream) = self.keeper.present() {
            stream.open().dropped(row.id);
        }
    }

    /// Answers what is durable. What is left was matched against an older configuration, or is for the next stream.
    async fn answer(
        &mut self,
        rows: Vec<Row>,
        flushed: &Flushed,
        stream: &Arc<Stream>,
    ) -> Vec<Row> {
        if !flushed.open {
            tracing::warn!(stream = stream.id(), "another node closed this stream");
        }
        let written: IdSet<Uuid> = flushed.written.iter().copied().collect();
        let accepted = u64::try_from(written.len()).unwrap_or(u64::MAX);
        metrics::counter!("posthorn_events_accepted_total").increment(accepted);
        let mut left = Vec::new();
        for mut row in rows {
            if !written.contains(&row.id.uuid()) {
                left.push(row);
                continue;
            }
            let endpoints = std::mem::take(&mut row.endpoints);
            let deliveries = endpoints.len();
            let (own, handed) = handover::part(&row, endpoints);
            if handed.iter().any(|endpoint| self.shards.owns(*endpoint)) {
                self.due.ring();
            }
            self.durable(row, deliveries, (own, Vec::new()), stream)
                .await;
        }
        let left = self.settle_doubts(left, flushed.open, stream).await;
        if flushed.open {
            let left = self.settle_keys(left).await;
            return self.match_again(left, flushed.seq).await;
        }
        if let Err(error) = answered(limits::STEP, self.keeper.reopen(Some(stream))).await {
            self.gone(&error, left.len());
            self.clock.sleep(PAUSE).await;
        }
        left
    }

    /// Matches again what a change of configuration overtook.
    async fn match_again(&mut self, rows: Vec<Row>, seq: i64) -> Vec<Row> {
        if rows.is_empty() {
            return rows;
        }
        if let Err(error) = answered(limits::STEP, self.cache.refresh()).await {
            tracing::debug!(%error, seq, "the configuration cannot be read");
            self.gone(&error, rows.len());
            self.clock.sleep(PAUSE).await;
            return rows;
        }
        let snapshot = self.cache.snapshot();
        let mut left = Vec::with_capacity(rows.len());
        for mut row in rows {
            match snapshot.tenant(row.new.tenant) {
                Some(tenant) => {
                    row.endpoints = tenant.matching(&row.new.event_type, &row.new.content_type);
                    row.handovers = handover::of(tenant, &row.endpoints, &self.shards);
                    row.has_strict = tenant.has_strict();
                    row.matched = snapshot.seq();
                    left.push(row);
                }
                None => self.turn_away(vec![row], AcceptError::TenantGone),
            }
        }
        left
    }

    /// The event is in the log: answer its caller and give the dispatcher what is this node's own, and what it is to
    /// bring to `pending`. `deliveries` counts those that the flush handed over, too.
    async fn durable(
        &self,
        row: Row,
        deliveries: usize,
        (own, handed_over): (Vec<EndpointId>, Vec<EndpointId>),
        stream: &Arc<Stream>,
    ) {
        let open = own.len() + handed_over.len();
        if !stream.open().written(row.id, open) {
            // The stream was closed after the flush: recovery finds the event.
            return self.confirm(row, deliveries);
        }
        let id = row.id;
        let _gone = row.reply.send(Ok(Accepted {
            id,
            accepted_at: id.minted_at(),
            deliveries_count: deliveries,
            replayed: false,
        }));
        if open == 0 {
            return;
        }
        let fresh = FreshEvent {
            tenant: row.new.tenant,
            id,
            event_type: row.new.event_type,
            content_type: row.new.content_type,
            payload: row.new.payload,
            occurred_at: row.new.occurred_at,
            headers: row.new.headers,
            endpoints: own,
            handed_over,
            has_strict: row.has_strict,
            stream: Arc::clone(stream),
            taken: row.taken,
        };
        // Without a dispatcher (the node is stopping) the id stays open and the stream is left to be adopted.
        drop(self.dispatch.send(fresh).await);
    }

    /// In the log, but not this node's to deliver.
    fn confirm(&self, row: Row, deliveries_count: usize) {
        self.forget(&row);
        let accepted = Accepted {
            id: row.id,
            accepted_at: row.id.minted_at(),
            deliveries_count,
            replayed: false,
        };
        let _gone = row.reply.send(Ok(accepted));
    }
}

/// Nothing may be written before the lease is renewed.
fn not_renewed() -> DatabaseError {
    let text = "the lease of this node's stream has not been renewed in time";
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}

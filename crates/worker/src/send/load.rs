//! Load: rows of `pending` are read for sending many at a time.
//!
//! Whoever is about to send one asks; one loop with one connection answers, with one statement for all who wait. A result is
//! the row at that moment, and no connection is held while it is sent (INV-7).

use std::collections::VecDeque;

use posthorn_domain::limits;
use posthorn_store::database::Database;
use posthorn_store::pending::{Due, Load, PendingReader};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::stall::Stalls;

struct Wanted {
    row: Due,
    answer: oneshot::Sender<Load>,
}

/// The way to the loop that reads. Cheap to clone.
#[derive(Clone)]
pub struct Loader {
    wanted: mpsc::Sender<Wanted>,
}

impl Loader {
    /// A loader and the loop that serves it.
    #[must_use]
    pub fn new(database: Database) -> (Self, LoadLoop) {
        let (wanted, queue) = mpsc::channel(limits::LOAD_ROWS);
        let reader = PendingReader::new(database);
        let stalls = Stalls::default();
        let load_loop = LoadLoop {
            reader,
            queue,
            stalls,
        };
        (Self { wanted }, load_loop)
    }

    /// What a row is by now; `None` when it could not be read: it stays where it is, and is found again.
    pub async fn load(&self, row: Due) -> Option<Load> {
        let (answer, answered) = oneshot::channel();
        self.wanted.send(Wanted { row, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// The loop that reads.
pub struct LoadLoop {
    reader: PendingReader,
    queue: mpsc::Receiver<Wanted>,
    stalls: Stalls,
}

impl LoadLoop {
    /// Reads until every [`Loader`] is dropped, or until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut waiting = VecDeque::new();
        while self.gather(&mut waiting, &stop).await {
            self.read(&mut waiting).await;
        }
    }

    /// Fills a batch: waits for the first row and takes what else is there. False when there is nobody to read for.
    async fn gather(&mut self, waiting: &mut VecDeque<Wanted>, stop: &CancellationToken) -> bool {
        if waiting.is_empty() {
            let first = tokio::select! {
                () = stop.cancelled() => None,
                first = self.queue.recv() => first,
            };
            let Some(first) = first else { return false };
            waiting.push_back(first);
        }
        while waiting.len() < limits::LOAD_ROWS
            && let Ok(next) = self.queue.try_recv()
        {
            waiting.push_back(next);
        }
        true
    }

    /// One statement, and once more where the connection failed: it may have been an old one. Leaves in `waiting` what is
    /// to be read by the next.
    async fn read(&mut self, waiting: &mut VecDeque<Wanted>) {
        let rows: Vec<_> = waiting.iter().map(|wanted| wanted.row).collect();
        let read = match self.reader.load(&rows).await {
            Ok(read) => Ok(read),
            Err(_) => self.reader.load(&rows).await,
        };
        let batch = std::mem::take(waiting);
        self.stalls.told("reading due deliveries", &read);
        // Whoever asked for what was not read hears that by its channel.
        let Ok(read) = read else { return };
        metrics::histogram!("posthorn_load_rows")
            .record(f64::from(u32::try_from(rows.len()).unwrap_or(u32::MAX)));
        for (wanted, load) in batch.into_iter().zip(read) {
            match load {
                Load::Later => waiting.push_back(wanted),
                // Whoever asked may be gone, with its node.
                load => drop(wanted.answer.send(load)),
            }
        }
    }
}

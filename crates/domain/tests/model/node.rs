//! A node of the model: what one process holds in memory.

use std::collections::BTreeSet;

use crate::store::Fact;

/// Whether the node can reach the database and renew its lease.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Up,
    /// Renewed nothing for half the lease: it starts no flush and no request.
    Stalled,
    Down,
}

/// A delivery in memory, to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// Accepted here.
    Fresh,
    /// The key of a pending row: read again when it is sent.
    Key { n: u32 },
}

/// A request on its way.
#[derive(Clone, Copy)]
pub(crate) struct Flight {
    pub(crate) n: u32,
    pub(crate) step: u32,
    pub(crate) first: bool,
    pub(crate) nonce: u64,
    pub(crate) answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Error,
    Fatal,
    /// The receiver may have taken it; the node will never know.
    None,
}

pub(crate) struct Node {
    pub(crate) health: Health,
    pub(crate) stream: u64,
    /// Ids that are neither resolved nor in `pending`, as far as the database has said.
    pub(crate) open: BTreeSet<u64>,
    pub(crate) to_flush: Option<u64>,
    /// The flush was begun: it may arrive even after the node has stalled.
    pub(crate) flush_sent: bool,
    pub(crate) held: Option<Held>,
    pub(crate) flight: Option<Flight>,
    pub(crate) results: Vec<Fact>,
    /// A batch that was sent and not answered: sent again, unchanged, until it is.
    pub(crate) unanswered: Vec<Fact>,
    pub(crate) owns_shard: bool,
    /// What recovery saw when it looked, to be written afterwards.
    pub(crate) recovering: Option<(u64, Option<u32>)>,
}

impl Node {
    pub(crate) fn started(stream: u64) -> Self {
        Self {
            health: Health::Up,
            stream,
            open: BTreeSet::new(),
            to_flush: None,
            flush_sent: false,
            held: None,
            flight: None,
            results: Vec::new(),
            unanswered: Vec::new(),
            owns_shard: false,
            recovering: None,
        }
    }

    /// True when it has nothing to do with the delivery: only then may it take it from `pending`.
    pub(crate) fn is_free(&self) -> bool {
        self.held.is_none()
            && self.flight.is_none()
            && self.results.is_empty()
            && self.unanswered.is_empty()
    }
}

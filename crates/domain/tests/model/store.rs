//! The database of the model: what is committed, and the statements that change it.

use std::collections::BTreeMap;

use posthorn_domain::delivery::{Cause, Next, Why};

/// The rules of accepting and recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Only an attempt that this transaction inserted has consequences.
    NewRowsDecide,
    /// A failed attempt of a pending row moves it only where its number is still the attempt's own.
    CompareAndSet,
    /// A failed first attempt makes a pending row only if no success and no verdict is on record.
    FirstFailureLooks,
    /// … and no dead letter.
    FirstFailureSeesDeadLetters,
    /// A dead letter is written only if no success is on record.
    DeathLooks,
    /// A flush writes nothing unless its stream is open.
    Fence,
    /// The watermark stays below the smallest open id.
    WatermarkBelowOpen,
    /// An id stays open until the database has acknowledged.
    OpenUntilAcknowledged,
    /// A pending row is void once a success numbered at least `since` is on record.
    VoidAfterSuccess,
    /// A new stream's first watermark is below what its node carries over.
    CarriedIdsAreOpen,
}

/// All rules, or all but one.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    left_out: Option<Rule>,
}

impl Rule {
    pub(crate) const ALL: [Self; 10] = [
        Self::NewRowsDecide,
        Self::CompareAndSet,
        Self::FirstFailureLooks,
        Self::FirstFailureSeesDeadLetters,
        Self::DeathLooks,
        Self::Fence,
        Self::WatermarkBelowOpen,
        Self::OpenUntilAcknowledged,
        Self::VoidAfterSuccess,
        Self::CarriedIdsAreOpen,
    ];
}

impl Rules {
    pub(crate) const ALL: Self = Self { left_out: None };

    pub(crate) fn without(rule: Rule) -> Self {
        Self {
            left_out: Some(rule),
        }
    }

    pub(crate) fn hold(self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) stream: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Success,
    Failed,
    Cancelled,
    Discarded,
    Expired,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row {
    pub(crate) n: u32,
    pub(crate) step: u32,
    pub(crate) since: u32,
    pub(crate) why: Why,
    pub(crate) parked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    Open,
    Closed,
    Recovered,
}

pub(crate) struct Stream {
    pub(crate) state: StreamState,
    pub(crate) watermark: u64,
}

/// One result to be recorded. Recorded again it is the same row.
#[derive(Clone, Copy)]
pub(crate) enum Fact {
    Attempted {
        n: u32,
        nonce: u64,
        first: bool,
        next: Next,
    },
    /// Accepted, not sent, and to be sent by the owner of its shard.
    Unsent,
}

pub(crate) enum Flushed {
    Written,
    AlreadyThere(Event),
    Fenced,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) event: Option<Event>,
    pub(crate) attempts: BTreeMap<(u32, u64), Kind>,
    pub(crate) pending: Option<Row>,
    pub(crate) dead: Option<Cause>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) owner: Option<u64>,
}

impl Store {
    pub(crate) fn is_open(&self, stream: u64) -> bool {
        self.streams
            .get(&stream)
            .is_some_and(|stream| stream.state == StreamState::Open)
    }

    pub(crate) fn flush(&mut self, rules: Rules, event: Event, handed_over: bool) -> Flushed {
        if rules.hold(Rule::Fence) && !self.is_open(event.stream) {
            return Flushed::Fenced;
        }
        if let Some(stored) = self.event {
            return Flushed::AlreadyThere(stored);
        }
        self.event = Some(event);
        if handed_over {
            self.pending = Some(Row::unattempted(Why::Handover));
        }
        Flushed::Written
    }

    /// Records a batch in one transaction.
    pub(crate) fn record(&mut self, rules: Rules, batch: &[Fact]) -> Result<(), String> {
        let (before, was_settled) = (self.pending, self.settled());
        let mut new_rows = 0;
        for fact in batch {
            match *fact {
                Fact::Unsent if self.pending.is_none() && !self.settled() => {
                    self.pending = Some(Row::unattempted(Why::Capacity));
                }
                Fact::Unsent => {}
                Fact::Attempted {
                    n,
                    nonce,
                    first,
                    next,
                } => {
                    let kind = if next == Next::Delivered {
                        Kind::Success
                    } else {
                        Kind::Failed
                    };
                    let new = self.attempts.insert((n, nonce), kind).is_none();
                    new_rows += u32::from(new);
                    if new || !rules.hold(Rule::NewRowsDecide) {
                        self.follow(rules, n, first, next);
                    }
                }
            }
        }
        self.check(before, was_settled, new_rows)
    }

    fn follow(&mut self, rules: Rules, n: u32, first: bool, decision: Next) {
        let own = self
            .pending
            .filter(|row| row.n == n || !rules.hold(Rule::CompareAndSet));
        let seen = if rules.hold(Rule::FirstFailureSeesDeadLetters) {
            self.settled()
        } else {
            self.ended_by_attempt_or_verdict()
        };
        let looked = !rules.hold(Rule::FirstFailureLooks) || !seen;
        match (decision, own) {
            (Next::Delivered, _) => (self.pending, self.dead) = (None, None),
            (Next::Retry { n, step, .. }, _) if first => {
                let made = Row {
                    n,
                    step,
                    ..Row::unattempted(Why::Retry)
                };
                self.pending = self.pending.or_else(|| looked.then_some(made));
            }
            (Next::Retry { n, step, .. }, Some(row)) => {
                self.pending = Some(Row {
                    n,
                    step,
                    why: Why::Retry,
                    parked: false,
                    ..row
                });
            }
            (Next::Dead(cause), own) if first || own.is_some() => {
                let hit = if first {
                    self.pending.is_none() && looked
                } else {
                    self.pending.take().is_some()
                };
                if hit && (!rules.hold(Rule::DeathLooks) || !self.succeeded()) {
                    self.dead = Some(cause);
                }
            }
            _ => {}
        }
    }

    /// What must hold between any two states.
    fn check(&self, before: Option<Row>, was_settled: bool, new_rows: u32) -> Result<(), String> {
        match (before, self.pending) {
            (Some(old), Some(row)) if row.n < old.n => {
                return Err(format!("the number went back: {old:?}, {row:?}"));
            }
            (Some(old), Some(row)) if row != old && new_rows == 0 => {
                return Err("a row moved without a new attempt".into());
            }
            (Some(old), None) if new_rows == 0 => {
                return Err(format!("the row went without a new attempt: {old:?}"));
            }
            (None, Some(_)) if was_settled => {
                return Err("settled, and pending again though nobody asked".into());
            }
            _ => {}
        }
        if self.succeeded() && self.dead.is_some() {
            return Err("delivered and dead".into());
        }
        Ok(())
    }

    /// A person or the delivery's age ends it: the row goes, a verdict stays.
    pub(crate) fn end(&mut self, kind: Kind, nonce: u64) {
        if let Some(row) = self.pending.take() {
            self.attempts.insert((row.n, nonce), kind);
            if kind == Kind::Expired && !self.succeeded() {
                self.dead = Some(Cause::Expired);
            }
        }
    }

    pub(crate) fn discard(&mut self, nonce: u64) {
        if self.pending.is_none() && self.dead.take().is_some() {
            self.attempts
                .insert((self.next_number(), nonce), Kind::Discarded);
        }
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.attempts.keys().map(|(n, _)| n + 1).max().unwrap_or(1)
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.attempts.values().any(|own| *own == kind)
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.has(Kind::Success)
    }

    pub(crate) fn is_void(&self, row: Row) -> bool {
        self.attempts
            .iter()
            .any(|((n, _), kind)| *kind == Kind::Success && *n >= row.since)
    }

    /// A success, a verdict or a dead letter.
    pub(crate) fn settled(&self) -> bool {
        self.dead.is_some() || self.ended_by_attempt_or_verdict()
    }

    fn ended_by_attempt_or_verdict(&self) -> bool {
        self.attempts.values().any(|kind| *kind != Kind::Failed)
    }

    /// INV-2 at every moment: nothing at or below its stream's watermark is neither settled nor pending.
    pub(crate) fn lost(&self) -> Option<Event> {
        let event = self
            .event
            .filter(|_| self.pending.is_none() && !self.settled())?;
        let stream = self.streams.get(&event.stream)?;
        (stream.state == StreamState::Recovered || event.id <= stream.watermark).then_some(event)
    }
}

impl Row {
    pub(crate) fn unattempted(why: Why) -> Self {
        Self {
            n: 1,
            step: 0,
            since: 1,
            why,
            parked: false,
        }
    }
}

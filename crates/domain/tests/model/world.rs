//! The walk: two nodes, a store, a receiver, and a step at a time.

use core::time::Duration;

use posthorn_domain::delivery::{Cause, Outcome, Standing, Why, next};
use posthorn_domain::retry::RetryPolicy;

use crate::dice::Dice;
use crate::node::{Answer, Flight, Health, Held, Node};
use crate::store::{Event, Fact, Flushed, Kind, Row, Rule, Rules, Store, Stream, StreamState};

const STEPS: u32 = 120;
const SETTLING_ROUNDS: u32 = 200;
const POLICY: RetryPolicy = RetryPolicy::Fixed {
    delay_ms: 1000,
    max_attempts: 3,
};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Statements may go unanswered; nothing else goes wrong.
    None,
    /// Nodes crash and stall, streams are closed, answers are lost.
    Many,
}

struct World {
    dice: Dice,
    rules: Rules,
    faults: Faults,
    store: Store,
    nodes: [Node; 2],
    /// The database's time: ids, streams and nonces are all made of it.
    now: u64,
    /// The numbers of the requests that reached the receiver.
    requests: Vec<u32>,
    handed_over: bool,
    accepted: bool,
    answered: bool,
    /// A replay whose answer was read from the store, to be written afterwards.
    replaying: Option<Row>,
    replays: u32,
}

/// One walk from a seed; the first rule that is broken ends it.
pub(crate) fn walk(seed: u64, faults: Faults, rules: Rules) -> Result<(), String> {
    let mut world = World::new(seed, faults, rules);
    for _ in 0..STEPS {
        let place = usize::from(world.dice.once_in(2));
        world.step(place)?;
        world.look()?;
    }
    world.settle()
}

impl World {
    fn new(seed: u64, faults: Faults, rules: Rules) -> Self {
        let mut world = Self {
            dice: Dice::new(seed),
            rules,
            faults,
            store: Store::default(),
            nodes: [Node::started(0), Node::started(0)],
            now: 0,
            requests: Vec::new(),
            handed_over: false,
            accepted: false,
            answered: false,
            replaying: None,
            replays: 0,
        };
        world.handed_over = world.dice.once_in(4);
        world.restart(0);
        world.restart(1);
        world
    }

    fn step(&mut self, place: usize) -> Result<(), String> {
        match self.dice.below(22) {
            0 => self.accept(place),
            1 | 2 => self.flush(place),
            3..=5 => self.send(place)?,
            6 => self.come_back(place),
            7 | 8 => self.record(place)?,
            9 => self.write_watermark(place),
            10 | 11 => self.take_shard(place),
            12 | 13 => self.pick(place),
            14 => self.give_shard_up(place),
            15 => self.set_aside(place),
            16 => self.ask(),
            17 | 18 => self.close_other(place),
            19 | 20 => self.recover(place),
            _ => self.fault(place),
        }
        Ok(())
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Whether a statement is carried out, and whether its answer arrives.
    fn luck(&mut self) -> (bool, bool) {
        match self.dice.below(6) {
            0 => (false, false),
            1 => (true, false),
            _ => (true, true),
        }
    }

    fn accept(&mut self, place: usize) {
        let id = self.tick();
        let node = &mut self.nodes[place];
        if node.health == Health::Up && !self.accepted {
            self.accepted = true;
            node.open.insert(id);
            node.to_flush = Some(id);
        }
    }

    fn flush(&mut self, place: usize) {
        let (done, mut heard) = self.luck();
        let node = &mut self.nodes[place];
        // A stalled node starts none, but one that is under way may still arrive.
        node.flush_sent |= node.health == Health::Up && node.to_flush.is_some();
        heard &= node.health == Health::Up;
        let Some(id) = node
            .to_flush
            .filter(|_| node.health != Health::Down && node.flush_sent && done)
        else {
            return;
        };
        let event = Event {
            id,
            stream: node.stream,
        };
        let flushed = self.store.flush(self.rules, event, self.handed_over);
        if !heard {
            return;
        }
        match flushed {
            Flushed::Fenced => return self.reopen(place),
            Flushed::AlreadyThere(stored)
                if stored.stream != node.stream || !self.store.is_open(stored.stream) =>
            {
                // Written by the stream that was closed meanwhile: recovery delivers it.
                node.open.remove(&id);
            }
            Flushed::Written | Flushed::AlreadyThere(_) if self.handed_over => {
                node.open.remove(&id);
            }
            Flushed::Written | Flushed::AlreadyThere(_) => node.held = Some(Held::Fresh),
        }
        node.to_flush = None;
        self.answered = true;
    }

    fn send(&mut self, place: usize) -> Result<(), String> {
        let node = &self.nodes[place];
        if node.health != Health::Up || node.flight.is_some() {
            return Ok(());
        }
        match node.held {
            Some(Held::Fresh) => self.request(place, Row::unattempted(Why::Retry), true),
            Some(Held::Key { n }) => {
                self.nodes[place].held = None;
                let read_again = self.store.pending.filter(|row| row.n == n && !row.parked);
                let Some(row) = read_again.filter(|_| self.nodes[place].owns_shard) else {
                    return Ok(());
                };
                if self.rules.hold(Rule::VoidAfterSuccess) && self.store.is_void(row) {
                    self.store.pending = None;
                    return Ok(());
                }
                self.request(place, row, false)
            }
            None => Ok(()),
        }
    }

    fn request(&mut self, place: usize, row: Row, first: bool) -> Result<(), String> {
        if self.store.is_void(row) {
            return Err(format!("attempt {} was requested after a success", row.n));
        }
        let nonce = self.tick();
        let lossy = self.faults == Faults::Many;
        let answer = match self.dice.below(9) {
            0..=2 => Answer::Error,
            3 | 4 => Answer::Fatal,
            5 if lossy => Answer::None,
            _ => Answer::Ok,
        };
        self.requests.push(row.n);
        let node = &mut self.nodes[place];
        node.held = None;
        node.flight = Some(Flight {
            n: row.n,
            step: row.step,
            first,
            nonce,
            answer,
        });
        Ok(())
    }

    fn come_back(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        let Some(flight) = node.flight.filter(|_| node.health != Health::Down) else {
            return;
        };
        let outcome = match flight.answer {
            Answer::Ok => Outcome::Success,
            Answer::Fatal => Outcome::Fatal,
            Answer::Error | Answer::None => Outcome::Failed {
                floor: None,
                dies_as: Cause::Exhausted,
            },
        };
        let standing = Standing {
            n: flight.n,
            step: flight.step,
            scheduled: None,
        };
        let next = next(standing, &outcome, &POLICY, Duration::from_hours(24), 0.5);
        node.flight = None;
        node.results.push(Fact::Attempted {
            n: flight.n,
            nonce: flight.nonce,
            first: flight.first,
            next,
        });
        if !self.rules.hold(Rule::OpenUntilAcknowledged) {
            node.open.clear();
        }
    }

    /// Recording is not fenced: what a stalled node still sends may arrive.
    fn record(&mut self, place: usize) -> Result<(), String> {
        let (done, heard) = self.luck();
        let node = &mut self.nodes[place];
        if node.unanswered.is_empty() {
            node.unanswered = core::mem::take(&mut node.results);
        }
        if node.health == Health::Down || node.unanswered.is_empty() || !done {
            return Ok(());
        }
        self.store.record(self.rules, &node.unanswered)?;
        if heard {
            let closes =
                |fact: &Fact| matches!(fact, Fact::Unsent | Fact::Attempted { first: true, .. });
            if node.unanswered.iter().any(closes) {
                node.open.clear();
            }
            node.unanswered.clear();
        }
        Ok(())
    }

    fn write_watermark(&mut self, place: usize) {
        let fresh = self.tick();
        let node = &self.nodes[place];
        let below = node
            .open
            .first()
            .filter(|_| self.rules.hold(Rule::WatermarkBelowOpen))
            .map_or(fresh, |id| id - 1);
        let stream = self
            .store
            .streams
            .get_mut(&node.stream)
            .filter(|stream| stream.state == StreamState::Open);
        if let Some(stream) = stream.filter(|_| node.health == Health::Up) {
            stream.watermark = stream.watermark.max(below);
        }
    }

    fn take_shard(&mut self, place: usize) {
        let free = self
            .store
            .owner
            .is_none_or(|owner| !self.store.is_open(owner));
        let node = &mut self.nodes[place];
        if node.health == Health::Up && free && self.store.is_open(node.stream) {
            self.store.owner = Some(node.stream);
            node.owns_shard = true;
        }
    }

    fn pick(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        if let Some(row) = self.store.pending.filter(|row| !row.parked)
            && node.health == Health::Up
            && node.owns_shard
            && node.is_free()
        {
            node.held = Some(Held::Key { n: row.n });
        }
    }

    /// Before a shard changes hands its owner stops, and waits for its requests.
    fn give_shard_up(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        if matches!(node.held, Some(Held::Key { .. })) {
            node.held = None;
        }
        if node.health == Health::Up
            && node.owns_shard
            && node.is_free()
            && self.store.owner == Some(node.stream)
        {
            node.owns_shard = false;
            self.store.owner = None;
        }
    }

    /// What was not sent in time goes to `pending`; what is pending is parked and released.
    fn set_aside(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        if node.health == Health::Up && node.held == Some(Held::Fresh) && node.flight.is_none() {
            node.held = None;
            node.results.push(Fact::Unsent);
        } else if let Some(row) = &mut self.store.pending {
            row.parked = !row.parked;
        }
    }

    /// A person asks for something, or the delivery's end comes.
    fn ask(&mut self) {
        let nonce = self.tick();
        match self.dice.below(8) {
            0 => self.store.end(Kind::Cancelled, nonce),
            1 => self.store.end(Kind::Expired, nonce),
            2 => self.store.discard(nonce),
            _ => self.replay(),
        }
    }

    /// Looks in one step and writes in another, as two transactions that do not see each other.
    fn replay(&mut self) {
        if let Some(row) = self.replaying.take() {
            self.store.pending.get_or_insert(row);
        } else if self.replays < 2
            && self.store.settled()
            && self.store.pending.is_none()
            && !self.store.has(Kind::Cancelled)
        {
            let n = self.store.next_number();
            self.replays += 1;
            self.replaying = Some(Row {
                n,
                since: n,
                ..Row::unattempted(Why::Replay)
            });
        }
    }

    /// A stream is closed only by another node, and only once its own starts nothing any more.
    fn close_other(&mut self, place: usize) {
        let other = &self.nodes[1 - place];
        let live = (other.health == Health::Up).then_some(other.stream);
        let own = self.nodes[place].stream;
        if self.nodes[place].health != Health::Up {
            return;
        }
        for (number, stream) in &mut self.store.streams {
            if *number != own && Some(*number) != live && stream.state == StreamState::Open {
                stream.state = StreamState::Closed;
            }
        }
    }

    /// Looks in one step and writes in another, as a scan whose snapshot is older than its insert.
    fn recover(&mut self, place: usize) {
        if self.nodes[place].health != Health::Up {
            return;
        }
        if let Some((stream, n)) = self.nodes[place].recovering.take() {
            if let Some(n) = n {
                self.store.pending.get_or_insert(Row {
                    n,
                    ..Row::unattempted(Why::Recovered)
                });
            }
            let stream = self
                .store
                .streams
                .get_mut(&stream)
                .filter(|stream| stream.state == StreamState::Closed);
            if let Some(stream) = stream {
                stream.state = StreamState::Recovered;
            }
            return;
        }
        let mut closed = self
            .store
            .streams
            .iter()
            .filter(|(_, stream)| stream.state == StreamState::Closed);
        if let Some((&number, stream)) = closed.next() {
            let scanned = self
                .store
                .event
                .filter(|event| event.stream == number && event.id > stream.watermark);
            let open = scanned.filter(|_| self.store.pending.is_none() && !self.store.settled());
            self.nodes[place].recovering = Some((number, open.map(|_| self.store.next_number())));
        }
    }

    fn fault(&mut self, place: usize) {
        if self.faults == Faults::None {
            return;
        }
        match (self.nodes[place].health, self.dice.below(3)) {
            (Health::Down, _) => self.restart(place),
            (Health::Stalled, 0 | 1) => self.wake(place),
            (Health::Up, 0) => self.nodes[place].health = Health::Stalled,
            (_, 1) => self.nodes[place].health = Health::Down,
            _ => {}
        }
    }

    fn restart(&mut self, place: usize) {
        let stream = self.tick();
        self.store.streams.insert(
            stream,
            Stream {
                state: StreamState::Open,
                watermark: stream,
            },
        );
        self.nodes[place] = Node::started(stream);
    }

    /// A stalled node renews its lease, unless its stream was closed meanwhile.
    fn wake(&mut self, place: usize) {
        self.nodes[place].health = Health::Up;
        if !self.store.is_open(self.nodes[place].stream) {
            self.reopen(place);
        }
    }

    /// Opens a new stream. The batcher is carried over; what was accepted and not sent is left to recovery.
    fn reopen(&mut self, place: usize) {
        let stream = self.tick();
        let node = &mut self.nodes[place];
        let carried = node
            .to_flush
            .filter(|_| self.rules.hold(Rule::CarriedIdsAreOpen));
        node.stream = stream;
        node.open = carried.into_iter().collect();
        node.held = None;
        node.owns_shard = false;
        let watermark = carried.map_or(stream, |id| id - 1);
        self.store.streams.insert(
            stream,
            Stream {
                state: StreamState::Open,
                watermark,
            },
        );
    }

    /// What must hold after every step.
    fn look(&self) -> Result<(), String> {
        if let Some(event) = self.store.lost() {
            return Err(format!(
                "event {} is at or below its stream's watermark and nowhere",
                event.id
            ));
        }
        if self.answered && self.store.event.is_none() {
            return Err("answered and not in the log".into());
        }
        let twice = |n: &u32| self.requests.iter().filter(|other| *other == n).count() > 1;
        match self.requests.iter().find(|n| twice(n)) {
            Some(n) if self.faults == Faults::None => {
                Err(format!("attempt {n} was requested twice"))
            }
            _ => Ok(()),
        }
    }

    /// No more faults and no more wishes: everything that is begun comes to its end.
    fn settle(&mut self) -> Result<(), String> {
        for round in 0..SETTLING_ROUNDS {
            for place in [0, 1] {
                match self.nodes[place].health {
                    Health::Down => self.restart(place),
                    Health::Stalled => self.wake(place),
                    Health::Up => {}
                }
                self.store
                    .pending
                    .iter_mut()
                    .for_each(|row| row.parked = false);
                self.flush(place);
                self.close_other(place);
                self.recover(place);
                self.take_shard(place);
                self.pick(place);
                self.send(place)?;
                self.come_back(place);
                self.record(place)?;
                self.write_watermark(place);
                self.look()?;
            }
            let quiet = self
                .nodes
                .iter()
                .all(|node| node.is_free() && node.to_flush.is_none() && node.recovering.is_none());
            let recovered = self
                .store
                .streams
                .values()
                .all(|stream| stream.state != StreamState::Closed);
            if quiet && recovered && self.store.pending.is_none() && round > 0 {
                break;
            }
        }
        self.ended()
    }

    fn ended(&self) -> Result<(), String> {
        if self.store.event.is_none() {
            return Ok(());
        }
        if self.store.pending.is_some() || !self.store.settled() {
            return Err("the delivery did not end".into());
        }
        let recorded = self
            .store
            .attempts
            .values()
            .filter(|kind| matches!(kind, Kind::Success | Kind::Failed))
            .count();
        if self.faults == Faults::None && recorded != self.requests.len() {
            return Err(format!(
                "{} requests, {recorded} on record",
                self.requests.len()
            ));
        }
        Ok(())
    }
}

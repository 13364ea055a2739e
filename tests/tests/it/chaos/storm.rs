//! Bad weather between a node and its database, drawn from a seed.

use std::time::Duration;

use posthorn_tests::proxy::{Fate, Loss, Lost, Proxy, Way};
use posthorn_tests::wait::pause;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::load::drawn;

/// Connections that one gust hits, at most.
const GUST: usize = 6;

/// More than there are connections.
const DRAWS: usize = 1000;

/// What goes wrong in one round.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Some connections are closed.
    Cuts,
    /// All are, and so is every new one for a while.
    Outage,
    /// Everything takes longer.
    Delay,
    /// Nothing passes for a while, and then what waited.
    Stall,
    /// Some answers do not arrive.
    LostAnswers,
    /// The answer to a flush does not arrive.
    LostFlush,
    /// The answer to a COMMIT does not arrive.
    LostCommit,
    /// On some connections nobody answers any more.
    Silence,
}

const FAULTS: [Fault; 8] = [
    Fault::Cuts,
    Fault::Outage,
    Fault::Delay,
    Fault::Stall,
    Fault::LostAnswers,
    Fault::LostFlush,
    Fault::LostCommit,
    Fault::Silence,
];

/// A storm over one proxy.
pub(super) struct Storm<'a> {
    proxy: &'a Proxy,
    dice: StdRng,
}

impl<'a> Storm<'a> {
    pub(super) fn new(proxy: &'a Proxy, seed: u64) -> Self {
        Self {
            proxy,
            dice: StdRng::seed_from_u64(seed),
        }
    }

    /// Fault after fault for so long; each kind comes once before any comes again. Then the way is open.
    pub(super) async fn blow(&mut self, time: Duration) {
        let blowing = async {
            loop {
                let mut left = FAULTS.to_vec();
                while !left.is_empty() {
                    let fault = left.swap_remove(self.dice.random_range(0..left.len()));
                    self.strike(fault).await;
                    pause(drawn(&mut self.dice, 100, 700)).await;
                }
            }
        };
        // It has no other end.
        let _over = tokio::time::timeout(time, blowing).await;
        self.proxy.set(Way::Open);
        self.proxy.delay(Duration::ZERO);
    }

    async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Cuts => self.gust(Fate::Cut).await,
            Fault::LostAnswers => self.gust(Fate::Deaf).await,
            Fault::Silence => self
                .proxy
                .decide(self.dice.random_range(0..DRAWS), Fate::Silent),
            Fault::Outage => self.hold(Way::Cut, 2_000).await,
            Fault::Stall => self.hold(Way::Stalled, 3_000).await,
            Fault::Delay => {
                self.proxy.delay(drawn(&mut self.dice, 2, 80));
                pause(drawn(&mut self.dice, 500, 2_000)).await;
                self.proxy.delay(Duration::ZERO);
            }
            // As the payload of the load is written, in the statement's parameters.
            Fault::LostFlush => self.lose("as it was"),
            Fault::LostCommit => self.lose("COMMIT"),
        }
    }

    /// One connection after the other.
    async fn gust(&mut self, fate: Fate) {
        for _ in 0..self.dice.random_range(1..=GUST) {
            self.proxy.decide(self.dice.random_range(0..DRAWS), fate);
            pause(drawn(&mut self.dice, 10, 150)).await;
        }
    }

    async fn hold(&mut self, way: Way, longest: u64) {
        self.proxy.set(way);
        pause(drawn(&mut self.dice, 100, longest)).await;
        self.proxy.set(Way::Open);
    }

    fn lose(&self, answer_to: &'static str) {
        self.proxy.lose(Loss {
            marker: answer_to.into(),
            request: "".into(),
            lost: Lost::Answer,
        });
    }
}

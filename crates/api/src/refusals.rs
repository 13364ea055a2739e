//! What the log is told of requests that are refused because we cannot take them: not each, for while the database is
//! away that is every one.
//!
//! A run of refusals of one code is told when it begins, then by its count now and then, and when it has ended: requests
//! are taken again, and none was refused for [`limits::REFUSALS_QUIET`]. Each single refusal is there at the level debug.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use posthorn_domain::limits;

/// The runs that are under way, by code.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Whether there is any: what a request that was taken looks at.
    under_way: AtomicBool,
    runs: Mutex<BTreeMap<&'static str, Run>>,
}

#[derive(Debug)]
struct Run {
    began: Instant,
    last: Instant,
    told: Instant,
    count: u64,
}

/// What there is to say about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It begins.
    Begun,
    /// It goes on; so many requests were refused since it began.
    GoesOn(u64),
    /// It has ended after so many requests and this time.
    Ended(u64, Duration),
}

impl Refusals {
    /// A request was refused with this code.
    pub(crate) fn refused(&self, code: &'static str, now: Instant) -> Option<Telling> {
        let mut runs = self.lock();
        self.under_way.store(true, Ordering::Relaxed);
        let Some(run) = runs.get_mut(code) else {
            let run = Run {
                began: now,
                last: now,
                told: now,
                count: 1,
            };
            runs.insert(code, run);
            return Some(Telling::Begun);
        };
        run.count = run.count.saturating_add(1);
        run.last = now;
        if now.saturating_duration_since(run.told) < limits::REFUSALS_TOLD_EVERY {
            return None;
        }
        run.told = now;
        Some(Telling::GoesOn(run.count))
    }

    /// A request was taken. Says which runs have ended by that.
    pub(crate) fn taken(&self, now: impl FnOnce() -> Instant) -> Vec<(&'static str, Telling)> {
        if !self.under_way.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let now = now();
        let mut runs = self.lock();
        let mut ended = Vec::new();
        runs.retain(|code, run| {
            let goes_on = now.saturating_duration_since(run.last) < limits::REFUSALS_QUIET;
            if !goes_on {
                let lasted = run.last.saturating_duration_since(run.began);
                ended.push((*code, Telling::Ended(run.count, lasted)));
            }
            goes_on
        });
        self.under_way.store(!runs.is_empty(), Ordering::Relaxed);
        ended
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use posthorn_store::clock::Clock;

    use super::*;

    #[test]
    fn a_run_of_refusals_is_told_when_it_begins_then_counted_now_and_then_and_when_it_ends() {
        let begin = Clock::start().monotonic();
        let refusals = Refusals::default();
        let mut told = Vec::new();
        // A thousand requests a second, for 25 seconds.
        for millis in 0..25_000 {
            let now = begin + Duration::from_millis(millis);
            told.extend(refusals.refused("unavailable", now));
        }
        let counts = [Telling::GoesOn(10_001), Telling::GoesOn(20_001)];
        assert_eq!(told, [&[Telling::Begun][..], &counts].concat());
        let soon = begin + Duration::from_secs(26);
        assert_eq!(refusals.taken(|| soon), []);
        let later = begin + Duration::from_mins(1);
        let lasted = Duration::from_millis(24_999);
        assert_eq!(
            refusals.taken(|| later),
            [("unavailable", Telling::Ended(25_000, lasted))]
        );
        assert_eq!(refusals.taken(|| later), []);
        assert_eq!(refusals.refused("unavailable", later), Some(Telling::Begun));
    }

    #[test]
    fn each_code_has_a_run_of_its_own() {
        let now = Clock::start().monotonic();
        let refusals = Refusals::default();
        assert_eq!(refusals.refused("unavailable", now), Some(Telling::Begun));
        assert_eq!(refusals.refused("busy", now), Some(Telling::Begun));
        assert_eq!(refusals.refused("busy", now), None);
    }
}

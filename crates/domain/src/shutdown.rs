//! Shutdown: the one budget of a node that stops, and what each stage of the way down may take of it.
//!
//! The deadline is made once, when the node no longer listens. The stages follow one another, and each ends when it is done: what
//! one does not need is there for those behind it. One that hangs is cut where it stands, early enough that those behind it have
//! their share, too (INV-11). Cutting is safe at any moment: whatever is not on record by then is found by recovery, as after
//! a crash.

use std::time::{Duration, Instant};

use crate::limits;

/// What a stage may take of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// How long it may last, however much is left.
    pub longest: Duration,
    /// How much of the budget it leaves to the stages behind it, whatever became of those before it.
    pub leaves: Duration,
}

/// The moment at which a node that stops has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Instant);

impl Deadline {
    /// Of a node that begins to stop now.
    #[must_use]
    pub fn begun(now: Instant) -> Self {
        Self(now + limits::SHUTDOWN_WAIT)
    }

    /// How long a stage that begins, or goes on, at `now` may take.
    #[must_use]
    pub fn left(self, share: Share, now: Instant) -> Duration {
        let left = self.0.saturating_duration_since(now);
        left.saturating_sub(share.leaves).min(share.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: [Share; 7] = [
        limits::SHUTDOWN_CALLERS,
        limits::SHUTDOWN_FLUSH,
        limits::SHUTDOWN_REQUESTS,
        limits::SHUTDOWN_RECORD,
        limits::SHUTDOWN_STEPS,
        limits::SHUTDOWN_LEAVE,
        limits::SHUTDOWN_CLOSE,
    ];

    /// A moment; which one does not matter.
    #[expect(clippy::disallowed_methods, reason = "an instant has no other origin")]
    fn begun() -> Instant {
        Instant::now()
    }

    /// INV-11.
    #[test]
    fn stages_that_all_hang_end_with_the_budget_and_each_has_a_second_of_it() {
        let begun = begun();
        let deadline = Deadline::begun(begun);
        let mut now = begun;
        for stage in STAGES {
            let left = deadline.left(stage, now);
            assert!(left >= Duration::from_secs(1), "{stage:?}: {left:?}");
            now += left;
        }
        assert!(now <= begun + limits::SHUTDOWN_WAIT);
    }

    #[test]
    fn what_a_stage_does_not_need_is_there_for_those_behind_it() {
        let begun = begun();
        let deadline = Deadline::begun(begun);
        let at_once = deadline.left(limits::SHUTDOWN_REQUESTS, begun);
        let late = deadline.left(limits::SHUTDOWN_REQUESTS, begun + Duration::from_secs(10));
        assert_eq!(at_once, late + Duration::from_secs(10));
    }

    #[test]
    fn behind_the_deadline_nothing_is_left() {
        let begun = begun();
        let after = begun + limits::SHUTDOWN_WAIT + Duration::from_secs(1);
        let left = Deadline::begun(begun).left(limits::SHUTDOWN_CLOSE, after);
        assert_eq!(left, Duration::ZERO);
    }
}

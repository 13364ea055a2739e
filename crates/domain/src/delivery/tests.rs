//! Tests of the state machine (INV-5): tables for single decisions, random lives for the whole.

use proptest::prelude::*;

use super::life::{Before, Delivery, Due, Happening, Pending, Refusal, advance};
use super::*;
use crate::retry::{Jitter, Preset};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(784_111_777, 0).unwrap()
}

const DAY: Duration = Duration::from_hours(24);
const FAILED: Outcome = Outcome::Failed {
    floor: None,
    dies_as: Cause::Exhausted,
};

fn fixed(delay_ms: u64, max_attempts: u32) -> RetryPolicy {
    RetryPolicy::Fixed {
        delay_ms,
        max_attempts,
    }
}

fn after_failure(floor: Option<u64>, policy: &RetryPolicy, left: Duration) -> Next {
    let outcome = Outcome::Failed {
        floor: floor.map(Duration::from_secs),
        dies_as: Cause::Exhausted,
    };
    next(
        Standing {
            n: 1,
            step: 0,
            scheduled: None,
        },
        &outcome,
        policy,
        left,
        0.0,
    )
}

#[test]
fn every_2xx_is_a_success() {
    for status in 200..300 {
        assert_eq!(
            classify(status, Some("30"), &[200], now()),
            Outcome::Success,
            "{status}"
        );
    }
}

#[test]
fn whatever_is_not_2xx_failed_redirects_included() {
    for status in (100..200).chain(300..410).chain(411..600) {
        let outcome = classify(status, None, &[], now());
        assert_eq!(outcome, FAILED, "{status}");
    }
}

#[test]
fn a_410_is_gone_whatever_the_endpoint_calls_fatal() {
    assert_eq!(classify(410, None, &[], now()), Outcome::Gone);
    assert_eq!(classify(410, Some("30"), &[410], now()), Outcome::Gone);
}

#[test]
fn a_status_is_fatal_only_where_the_endpoint_says_so() {
    assert_eq!(classify(422, None, &[400, 422], now()), Outcome::Fatal);
    assert_eq!(classify(404, None, &[400, 422], now()), FAILED);
}

#[test]
fn retry_after_counts_on_429_and_503_alone() {
    let floor = |status| match classify(status, Some("30"), &[], now()) {
        Outcome::Failed { floor, .. } => floor,
        _ => None,
    };
    assert_eq!(floor(429), Some(Duration::from_secs(30)));
    assert_eq!(floor(503), Some(Duration::from_secs(30)));
    for status in [302, 400, 408, 500, 502, 504] {
        assert_eq!(floor(status), None, "{status}");
    }
}

#[test]
fn an_error_says_what_the_delivery_dies_of() {
    for kind in ErrorKind::ALL {
        let dies_as = match kind {
            ErrorKind::RefusedTarget => Cause::RefusedTarget,
            ErrorKind::Config => Cause::Config,
            _ => Cause::Exhausted,
        };
        assert_eq!(
            classify_error(*kind),
            Outcome::Failed {
                floor: None,
                dies_as
            }
        );
    }
}

#[test]
fn every_verdict_reads_back_from_its_outcome() {
    let dead = Cause::ALL.iter().copied().map(Verdict::Dead);
    for verdict in dead.chain([Verdict::Cancelled, Verdict::Discarded]) {
        assert_eq!(Verdict::from_outcome(verdict.as_outcome()), Some(verdict));
    }
    for word in ["success", "failed", "dead", "dead_", "dead_x", ""] {
        assert_eq!(Verdict::from_outcome(word), None, "{word}");
    }
}

#[test]
fn a_limit_of_three_is_three_attempts() {
    let policy = fixed(1000, 3);
    let mut standing = Standing {
        n: 1,
        step: 0,
        scheduled: None,
    };
    let mut attempts = 1;
    while let Next::Retry { n, step, .. } = next(standing, &FAILED, &policy, DAY, 0.5) {
        standing = Standing {
            n,
            step,
            scheduled: None,
        };
        attempts += 1;
    }
    assert_eq!(attempts, 3);
}

#[test]
fn the_endpoints_floor_holds_after_jitter() {
    let policy = RetryPolicy::Schedule {
        delays_ms: vec![30_000],
        jitter: Jitter::Full,
    };
    let at_least = |floor| match after_failure(Some(floor), &policy, DAY) {
        Next::Retry { after, .. } => after.as_secs(),
        _ => 0,
    };
    assert_eq!(at_least(30), 30);
    assert_eq!(at_least(3600), 3600);
}

#[test]
fn a_floor_below_the_policys_delay_changes_nothing() {
    let retry = Next::Retry {
        n: 2,
        step: 1,
        after: Duration::from_mins(5),
    };
    assert_eq!(after_failure(Some(5), &fixed(300_000, 3), DAY), retry);
}

#[test]
fn nothing_is_due_beyond_the_deliverys_end() {
    let left = Duration::from_mins(1);
    let retry = Next::Retry {
        n: 2,
        step: 1,
        after: left,
    };
    assert_eq!(after_failure(Some(3600), &fixed(1000, 3), left), retry);
    assert_eq!(after_failure(None, &fixed(300_000, 3), left), retry);
}

#[test]
fn an_exhausted_delivery_dies_of_its_last_failure() {
    let standing = Standing {
        n: 7,
        step: 2,
        scheduled: None,
    };
    for (kind, cause) in [
        (ErrorKind::Timeout, Cause::Exhausted),
        (ErrorKind::RefusedTarget, Cause::RefusedTarget),
        (ErrorKind::Config, Cause::Config),
    ] {
        let decision = next(standing, &classify_error(kind), &fixed(1000, 3), DAY, 0.0);
        assert_eq!(decision, Next::Dead(cause));
    }
}

#[test]
fn an_extra_attempt_moves_no_schedule_and_uses_up_none() {
    let standing = Standing {
        n: 3,
        step: 2,
        scheduled: Some(Duration::from_secs(77)),
    };
    let decision = next(standing, &FAILED, &fixed(1000, 3), DAY, 0.0);
    assert_eq!(
        decision,
        Next::Retry {
            n: 4,
            step: 2,
            after: Duration::from_secs(77)
        }
    );
    assert_eq!(
        next(standing, &Outcome::Success, &fixed(1000, 3), DAY, 0.0),
        Next::Delivered
    );
}

#[test]
fn fatal_and_gone_end_at_once() {
    let standing = Standing {
        n: 1,
        step: 0,
        scheduled: None,
    };
    let policy = RetryPolicy::default();
    assert_eq!(
        next(standing, &Outcome::Fatal, &policy, DAY, 0.0),
        Next::Dead(Cause::FatalStatus)
    );
    assert_eq!(
        next(standing, &Outcome::Gone, &policy, DAY, 0.0),
        Next::Dead(Cause::Gone)
    );
}

// The whole life.

fn attempted(n: u32, outcome: &Outcome) -> Happening<'_> {
    const POLICY: &RetryPolicy = &RetryPolicy::Fixed {
        delay_ms: 1000,
        max_attempts: 2,
    };
    Happening::Attempted {
        n,
        outcome,
        policy: POLICY,
        left: DAY,
        draw: 0.5,
    }
}

fn live(happenings: &[Happening<'_>]) -> Delivery {
    happenings
        .iter()
        .fold(Delivery::Waiting, |delivery, happening| {
            advance(delivery, *happening).unwrap()
        })
}

#[test]
fn a_failure_is_retried_and_the_last_is_the_end() {
    let retrying = live(&[attempted(1, &FAILED)]);
    assert_eq!(retrying.state(), DeliveryState::Retrying);
    assert_eq!(
        live(&[attempted(1, &FAILED), attempted(2, &FAILED)]),
        Delivery::Dead(Cause::Exhausted)
    );
    assert_eq!(
        live(&[attempted(1, &FAILED), attempted(2, &Outcome::Success)]),
        Delivery::Delivered
    );
}

#[test]
fn what_was_not_attempted_waits_even_in_pending() {
    for happening in [Happening::HandedOver, Happening::Recovered] {
        assert_eq!(live(&[happening]).state(), DeliveryState::Waiting);
    }
    assert_eq!(
        live(&[Happening::Parked(Why::Paused)]).state(),
        DeliveryState::Parked
    );
    assert_eq!(
        live(&[Happening::Parked(Why::Paused), Happening::Released]).state(),
        DeliveryState::Waiting
    );
}

#[test]
fn a_replay_that_fails_leaves_the_dead_letter_and_one_that_succeeds_removes_it() {
    let replayed = live(&[attempted(1, &Outcome::Fatal), Happening::Replayed { n: 2 }]);
    assert_eq!(replayed.state(), DeliveryState::Retrying);
    let failed = advance(replayed, attempted(2, &Outcome::Fatal));
    assert_eq!(failed, Ok(Delivery::Dead(Cause::FatalStatus)));
    assert_eq!(
        advance(replayed, attempted(2, &Outcome::Success)),
        Ok(Delivery::Delivered)
    );
}

#[test]
fn a_cancelled_replay_is_dead_as_before() {
    let replayed = live(&[attempted(1, &Outcome::Fatal), Happening::Replayed { n: 2 }]);
    assert_eq!(
        advance(replayed, Happening::Cancel),
        Ok(Delivery::Dead(Cause::FatalStatus))
    );
    let open = live(&[attempted(1, &FAILED)]);
    assert_eq!(advance(open, Happening::Cancel), Ok(Delivery::Cancelled));
}

#[test]
fn delivered_is_for_ever_whatever_a_replay_comes_to() {
    let replayed = live(&[
        attempted(1, &Outcome::Success),
        Happening::Replayed { n: 2 },
    ]);
    assert_eq!(replayed.state(), DeliveryState::Delivered);
    for happening in [
        attempted(2, &Outcome::Fatal),
        Happening::Expired,
        Happening::EndpointGone,
        Happening::Cancel,
    ] {
        assert_eq!(
            advance(replayed, happening),
            Ok(Delivery::Delivered),
            "{happening:?}"
        );
    }
}

#[test]
fn an_attempt_with_another_number_decides_nothing_unless_it_succeeded() {
    let retrying = live(&[attempted(1, &FAILED)]);
    assert_eq!(
        advance(retrying, attempted(1, &FAILED)),
        Err(Refusal::Stale)
    );
    assert_eq!(
        advance(retrying, attempted(1, &Outcome::Gone)),
        Err(Refusal::Stale)
    );
    assert_eq!(
        advance(retrying, attempted(1, &Outcome::Success)),
        Ok(Delivery::Delivered)
    );
}

#[test]
fn a_late_success_delivers_what_had_ended_otherwise() {
    for ended in [
        Delivery::Dead(Cause::Expired),
        Delivery::Cancelled,
        Delivery::Discarded,
    ] {
        assert_eq!(
            advance(ended, attempted(1, &Outcome::Success)),
            Ok(Delivery::Delivered)
        );
        assert_eq!(advance(ended, attempted(1, &FAILED)), Err(Refusal::Stale));
    }
}

#[test]
fn a_person_can_end_only_what_there_is_to_end() {
    assert_eq!(
        advance(Delivery::Waiting, Happening::Cancel),
        Err(Refusal::NotPending)
    );
    assert_eq!(
        advance(Delivery::Delivered, Happening::Cancel),
        Err(Refusal::NotPending)
    );
    assert_eq!(
        advance(Delivery::Waiting, Happening::Discard),
        Err(Refusal::NotDead)
    );
    assert_eq!(
        advance(Delivery::Cancelled, Happening::Replayed { n: 2 }),
        Err(Refusal::Cancelled)
    );
    let retrying = live(&[attempted(1, &FAILED)]);
    assert_eq!(advance(retrying, Happening::Discard), Err(Refusal::Pending));
    let dead = live(&[attempted(1, &Outcome::Fatal)]);
    assert_eq!(advance(dead, Happening::Discard), Ok(Delivery::Discarded));
}

#[test]
fn a_deleted_endpoint_cancels_what_is_open_and_leaves_what_has_ended() {
    assert_eq!(live(&[Happening::EndpointDeleted]), Delivery::Cancelled);
    let dead = live(&[attempted(1, &Outcome::Fatal)]);
    assert_eq!(
        advance(dead, Happening::EndpointDeleted),
        Err(Refusal::Ended)
    );
    let replayed = advance(dead, Happening::Replayed { n: 2 }).unwrap();
    assert_eq!(advance(replayed, Happening::EndpointDeleted), Ok(dead));
}

#[test]
fn a_replay_of_a_retrying_delivery_keeps_its_schedule() {
    let extra = live(&[attempted(1, &FAILED), Happening::Replayed { n: 2 }]);
    let Delivery::Pending(row) = extra else {
        panic!("{extra:?}")
    };
    assert_eq!(
        (row.due, row.scheduled, row.step),
        (Due::In(Duration::ZERO), Some(Duration::from_secs(1)), 1)
    );
    let Ok(Delivery::Pending(row)) = advance(extra, attempted(2, &FAILED)) else {
        panic!("{extra:?}")
    };
    assert_eq!(
        (row.n, row.step, row.due, row.scheduled),
        (3, 1, Due::In(Duration::from_secs(1)), None)
    );
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let failed = (
        proptest::option::of(0..200_000_u64),
        proptest::sample::select(Cause::ALL),
    )
        .prop_map(|(floor, dies_as)| Outcome::Failed {
            floor: floor.map(Duration::from_secs),
            dies_as,
        });
    prop_oneof![1 => Just(Outcome::Success), 1 => Just(Outcome::Fatal), 1 => Just(Outcome::Gone), 9 => failed]
}

/// What may happen, but for the attempt; numbers are filled in by the test.
fn happenings() -> impl Strategy<Value = Option<Happening<'static>>> {
    use Happening as H;
    let named = proptest::sample::select(vec![
        H::HandedOver,
        H::Recovered,
        H::Released,
        H::Replayed { n: 0 },
        H::Cancel,
        H::Discard,
        H::Expired,
        H::EndpointGone,
        H::EndpointDeleted,
        H::PayloadGone,
    ]);
    let parked = proptest::sample::select(Why::ALL).prop_map(H::Parked);
    prop_oneof![5 => Just(None), 3 => named.prop_map(Some), 1 => parked.prop_map(Some)]
}

proptest! {
    #[test]
    fn attempts_alone_always_end_the_delivery(
        outcomes in proptest::collection::vec(outcomes(), 1..20), preset in proptest::sample::select(Preset::ALL), draw in 0.0..1.0_f64,
    ) {
        let policy = RetryPolicy::Preset { name: preset };
        let mut standing = Standing { n: 1, step: 0, scheduled: None };
        let mut requests = 0_u32;
        for outcome in outcomes.iter().cycle() {
            requests += 1;
            match next(standing, outcome, &policy, DAY, draw) {
                Next::Retry { n, step, after } => {
                    prop_assert!(after <= DAY && n == standing.n + 1 && step == standing.step + 1);
                    standing = Standing { n, step, scheduled: None };
                }
                Next::Delivered | Next::Dead(_) => break,
            }
        }
        prop_assert!(requests <= policy.max_attempts());
    }

    #[test]
    fn no_sequence_leaves_the_machine_and_every_life_ends(
        steps in proptest::collection::vec((happenings(), outcomes(), 0.0..1.0_f64), 0..40), limit in 1..6_u32,
    ) {
        let policy = fixed(1000, limit);
        let mut delivery = Delivery::Waiting;
        let mut highest = 0;
        let mut succeeded = false;
        let attempt = |delivery: &mut Delivery, highest: &mut u32, outcome: &Outcome, draw| {
            let n = match delivery { Delivery::Pending(row) => row.n, _ => *highest + 1 };
            *highest = n.max(*highest);
            let happening = Happening::Attempted { n, outcome, policy: &policy, left: DAY, draw };
            *delivery = advance(*delivery, happening).unwrap_or(*delivery);
        };
        for (happening, outcome, draw) in &steps {
            match happening {
                None => {
                    succeeded |= *outcome == Outcome::Success;
                    attempt(&mut delivery, &mut highest, outcome, *draw);
                }
                Some(Happening::Replayed { .. }) => {
                    delivery = advance(delivery, Happening::Replayed { n: highest + 1 }).unwrap_or(delivery);
                }
                Some(happening) => delivery = advance(delivery, *happening).unwrap_or(delivery),
            }
            if let Delivery::Pending(Pending { n, since, step, before, .. }) = delivery {
                prop_assert!(n >= 1 && since >= 1 && since <= n && step < limit);
                prop_assert!(!succeeded || before == Before::Delivered);
            }
            prop_assert_eq!(succeeded, delivery.state() == DeliveryState::Delivered);
        }
        let mut requests = 0;
        while !delivery.has_ended() {
            attempt(&mut delivery, &mut highest, &FAILED, 0.5);
            requests += 1;
            prop_assert!(requests <= limit + 1, "an extra attempt may be among them");
        }
    }
}

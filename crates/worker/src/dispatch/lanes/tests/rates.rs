//! Lanes with a rate.

use posthorn_domain::rate::RateLimit;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn rate(per_second: f64, burst: u32) -> Allowance {
    Allowance {
        rate: Some(RateLimit::new(per_second, burst).unwrap()),
        ..usual()
    }
}

/// A lane of endpoint 1 with so many fresh deliveries.
fn queue(lanes: &mut Lanes, deliveries: u128, at: Instant, allowance: Allowance) {
    for event in 0..deliveries {
        lanes
            .push(fresh(key(1, 1, event), 10), at, || allowance)
            .unwrap();
    }
}

/// Starts what may start at a moment, and ends it at once.
fn start_all(lanes: &mut Lanes, at: Instant) -> usize {
    let mut started = 0;
    while let Some(item) = lanes.pop(at) {
        assert_eq!(lanes.admit(item.key(), at), Ok(()));
        lanes.answered(item.key());
        lanes.recorded(item.key());
        started += 1;
    }
    started
}

#[test]
fn a_lane_starts_its_burst_and_says_when_it_may_start_the_next() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 10, t, rate(10.0, 3));
    assert_eq!(start_all(&mut lanes, t), 3);
    assert_eq!(lanes.next_at(), Some(t + 100 * MS));
    assert_eq!(start_all(&mut lanes, t + 99 * MS), 0);
    assert_eq!(start_all(&mut lanes, t + 100 * MS), 1);
}

/// D27: no burst after a sleep.
#[test]
fn what_a_dispatcher_slept_over_is_no_more_than_the_burst() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 40, t, rate(10.0, 2));
    assert_eq!(start_all(&mut lanes, t), 2);
    assert_eq!(start_all(&mut lanes, t + 10_000 * MS), 2);
}

#[test]
fn what_was_let_through_counts_before_it_has_started() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 10, t, rate(10.0, 2));
    let out = std::iter::from_fn(|| lanes.pop(t)).count();
    assert_eq!(out, 2);
    assert_eq!(lanes.next_at(), Some(t + 100 * MS));
}

#[test]
fn what_was_let_through_and_makes_no_request_leaves_its_token() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 2, t, rate(0.01, 1));
    let void = lanes.pop(t).unwrap();
    assert!(lanes.pop(t).is_none());
    lanes.answered(void.key());
    lanes.recorded(void.key());
    assert_eq!(start_all(&mut lanes, t), 1);
}

/// D27, INV-13.
#[test]
fn an_endpoint_that_waits_for_its_rate_does_not_slow_another() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 1000, t, rate(0.01, 1));
    assert_eq!(start_all(&mut lanes, t), 1);
    lanes.push(fresh(key(1, 2, 5000), 10), t, usual).unwrap();
    assert_eq!(start_all(&mut lanes, t), 1);
}

#[test]
fn a_queue_that_was_empty_for_a_moment_has_no_more_tokens() {
    let (mut lanes, t) = (Lanes::default(), now());
    for event in 0..3 {
        lanes.forget(t);
        let one = fresh(key(1, 1, event), 10);
        lanes.push(one, t, || rate(1.0, 2)).unwrap();
        assert_eq!(start_all(&mut lanes, t), usize::from(event < 2));
    }
    assert_eq!(start_all(&mut lanes, t + 999 * MS), 0);
    assert_eq!(start_all(&mut lanes, t + 1000 * MS), 1);
    assert_eq!(lanes.tenants.len(), 0);
}

/// The shard of every endpoint here.
fn shard_of_the_endpoint() -> [i16; 1] {
    [i16::from(key(1, 1, 0).endpoint.shard())]
}

/// INV-13: the tokens may all have been taken by the node that had it before.
#[test]
fn an_endpoint_that_changes_hands_begins_without_tokens() {
    let (mut lanes, t) = (Lanes::default(), now());
    lanes.taken(&shard_of_the_endpoint(), t);
    queue(&mut lanes, 20, t, rate(10.0, 3));
    assert_eq!(start_all(&mut lanes, t + 99 * MS), 0);
    assert_eq!(start_all(&mut lanes, t + 100 * MS), 1);
    assert_eq!(start_all(&mut lanes, t + 10_000 * MS), 3);
    lanes.taken(&shard_of_the_endpoint(), t + 20_000 * MS);
    assert_eq!(start_all(&mut lanes, t + 20_099 * MS), 0);
}

#[test]
fn an_endpoint_that_nobody_has_sent_to_for_long_begins_with_its_burst() {
    let (mut lanes, t) = (Lanes::default(), now());
    lanes.taken(&shard_of_the_endpoint(), t);
    queue(&mut lanes, 20, t + 300 * MS, rate(10.0, 3));
    assert_eq!(start_all(&mut lanes, t + 300 * MS), 3);
}

#[test]
fn a_rate_that_is_lifted_is_lifted_at_once_and_one_that_is_set_again_knows_its_level() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 40, t, rate(0.01, 1));
    assert_eq!(start_all(&mut lanes, t), 1);
    lanes.allow(|_, _| in_flight(20));
    assert_eq!(start_all(&mut lanes, t), 39);
    for event in 100..110 {
        let one = fresh(key(1, 1, event), 10);
        lanes.push(one, t, || rate(0.01, 1)).unwrap();
    }
    assert_eq!(start_all(&mut lanes, t), 0);
}

#[test]
fn what_waits_too_long_for_its_rate_says_so() {
    let (mut lanes, t) = (Lanes::default(), now());
    queue(&mut lanes, 5, t, rate(0.01, 1));
    start_all(&mut lanes, t);
    let overdue = lanes.overdue(t + 3_000 * MS);
    assert_eq!(overdue.len(), 4);
    assert!(overdue.iter().all(|(_, why)| *why == Why::RateLimit));
    for (item, _) in overdue {
        lanes.recorded(item.key());
    }
    // The lane still stands where it waits; after that nothing is left of it.
    assert_eq!(start_all(&mut lanes, t + 100_000 * MS), 0);
    assert_eq!(lanes.tenants.len(), 0);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// D27: whatever is pushed when, and however long what was let through takes to start, no window has more starts than
    /// burst and rate allow; and at the moments that the lanes name, something starts.
    #[test]
    fn no_window_of_a_lane_has_more_starts_than_its_rate_allows(
        per_second in 0.5..2_000.0_f64,
        burst in 1..20_u32,
        delays in proptest::collection::vec(0..3_u64, 60..300),
    ) {
        let (mut lanes, mut at) = (Lanes::default(), now());
        queue(&mut lanes, 400, at, rate(per_second, burst));
        let (mut starts, mut begun) = (Vec::new(), Vec::new());
        for delay in delays {
            while let Some(item) = lanes.pop(at) {
                begun.push(item.key());
            }
            begun.retain(|key| {
                if lanes.admit(*key, at).is_err() {
                    return true;
                }
                starts.push(at);
                lanes.answered(*key);
                lanes.recorded(*key);
                false
            });
            at = match (delay, lanes.next_at()) {
                (0, Some(next)) => next.max(at),
                (delay, _) => at + Duration::from_micros(delay * 700),
            };
        }
        for (first, from) in starts.iter().enumerate() {
            for (last, to) in starts.iter().enumerate().skip(first) {
                let window = to.saturating_duration_since(*from).as_secs_f64();
                let count = f64::from(u32::try_from(last - first + 1).unwrap());
                proptest::prop_assert!(count <= f64::from(burst) + per_second * window + 1e-6);
            }
        }
        proptest::prop_assert!(starts.len() >= usize::try_from(burst).unwrap().min(16));
    }

    /// INV-13, D27: whoever has the endpoint when, no window has more starts than burst and rate allow.
    #[test]
    fn no_window_has_more_starts_than_a_rate_allows_whenever_the_endpoint_changes_hands(
        per_second in 0.5..200.0_f64,
        burst in 1..20_u32,
        hands in proptest::collection::vec(1..3_000_u64, 1..8),
    ) {
        let mut nodes = [Lanes::default(), Lanes::default()];
        let (mut at, mut starts) = (now(), Vec::new());
        let allowed = rate(per_second, burst);
        for (turn, span) in hands.into_iter().enumerate() {
            let lanes = &mut nodes[turn % 2];
            if turn > 0 {
                lanes.taken(&shard_of_the_endpoint(), at);
            }
            let end = at + Duration::from_millis(span);
            for event in 0..64 {
                let of = key(1, 1, 1000 * u128::try_from(turn).unwrap() + event);
                let _ = lanes.push(fresh(of, 10), at, || allowed);
            }
            while at < end {
                starts.extend((0..start_all(lanes, at)).map(|_| at));
                at = lanes.next_at().unwrap_or(end).clamp(at + Duration::from_micros(1), end);
            }
            for (item, _) in lanes.overdue(at + Duration::from_secs(1)) {
                lanes.recorded(item.key());
            }
        }
        for (first, from) in starts.iter().enumerate() {
            for (last, to) in starts.iter().enumerate().skip(first) {
                let window = to.saturating_duration_since(*from).as_secs_f64();
                let count = f64::from(u32::try_from(last - first + 1).unwrap());
                proptest::prop_assert!(count <= f64::from(burst) + per_second * window + 1e-6);
            }
        }
    }
}

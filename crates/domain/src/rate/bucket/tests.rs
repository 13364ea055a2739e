//! The bucket against its definition.

use proptest::prelude::*;

use super::*;

fn limit(per_second: f64, burst: u32) -> RateLimit {
    RateLimit::new(per_second, burst).unwrap()
}

fn millis(span: u64) -> Duration {
    Duration::from_millis(span)
}

/// Starts one more request at `now` or, where there is no token, as soon as there is.
fn start(bucket: &mut Bucket, now: Duration) -> Duration {
    match bucket.take(now) {
        Ok(()) => now,
        Err(at) => {
            bucket.take(at).unwrap();
            at
        }
    }
}

#[test]
fn a_burst_starts_at_once_and_the_rest_at_the_rate() {
    let mut bucket = Bucket::full(limit(10.0, 3));
    let mut now = millis(1_000);
    let starts = [(); 6].map(|()| {
        now = start(&mut bucket, now);
        now
    });
    let expected = [1_000, 1_000, 1_000, 1_100, 1_200, 1_300].map(millis);
    assert_eq!(starts, expected);
}

#[test]
fn a_rest_saves_no_more_than_the_burst() {
    let mut bucket = Bucket::full(limit(10.0, 2));
    bucket.take(millis(0)).unwrap();
    let late = millis(3_600_000);
    let takes = [(); 3].map(|()| bucket.take(late));
    assert_eq!(takes, [Ok(()), Ok(()), Err(millis(3_600_100))]);
}

#[test]
fn what_was_let_through_and_has_not_started_counts() {
    let bucket = Bucket::full(limit(10.0, 2));
    let next = |others| bucket.next_at(millis(500), others);
    assert_eq!([next(0), next(1), next(2)], [500, 500, 600].map(millis));
}

#[test]
fn another_limit_keeps_the_tokens_that_are_missing() {
    let mut bucket = Bucket::full(limit(1.0, 4));
    for _ in 0..4 {
        bucket.take(millis(0)).unwrap();
    }
    bucket.set_limit(limit(100.0, 4), millis(0));
    assert_eq!(bucket.take(millis(0)), Err(millis(10)));
    bucket.set_limit(limit(1.0, 1), millis(0));
    assert_eq!(bucket.take(millis(0)), Err(millis(4_000)));
}

#[test]
fn an_empty_bucket_fills_at_the_rate_and_never_gains_by_it() {
    let mut bucket = Bucket::full(limit(10.0, 3));
    bucket.empty(millis(1_000));
    assert_eq!(bucket.take(millis(1_000)), Err(millis(1_100)));
    let mut later = bucket;
    assert_eq!([(); 3].map(|()| later.take(millis(1_300))), [Ok(()); 3]);
    for _ in 0..2 {
        bucket.empty(millis(0));
        assert_eq!(bucket.take(millis(1_000)), Err(millis(1_100)));
    }
}

#[test]
fn the_slowest_and_the_fastest_rate_are_exact() {
    for (per_second, apart) in [(0.01, 100_000_000), (10_000.0, 100), (3.0, 333_334)] {
        let mut bucket = Bucket::full(limit(per_second, 1));
        bucket.take(millis(0)).unwrap();
        let second = bucket.take(millis(0)).unwrap_err();
        let apart = Duration::from_micros(apart);
        let short = apart.saturating_sub(Duration::from_micros(1));
        assert!(second <= apart && second > short, "{per_second}");
    }
}

proptest! {
    /// D27: the definition itself, over every window that begins with a start and ends with one. Requests come in crowds with
    /// rests between them, for it is after a rest that too many could start.
    #[test]
    fn no_window_has_more_starts_than_burst_and_rate_allow(
        per_second in (-2.0..4.0_f64).prop_map(|exponent| 10_f64.powf(exponent)),
        burst in 1..20_u32,
        crowds in prop::collection::vec((0..2_000_000_u64, 1..40_usize), 1..10),
    ) {
        let mut bucket = Bucket::full(limit(per_second, burst));
        let mut now = Duration::ZERO;
        let mut starts = Vec::new();
        for (rest, crowd) in crowds {
            now += Duration::from_micros(rest);
            for _ in 0..crowd {
                let foretold = bucket.next_at(now, 0);
                now = start(&mut bucket, now);
                prop_assert_eq!(now, foretold);
                starts.push(now);
            }
        }
        for (first, from) in starts.iter().enumerate() {
            for (last, to) in starts.iter().enumerate().skip(first) {
                let window = to.saturating_sub(*from).as_secs_f64();
                let count = f64::from(u32::try_from(last - first + 1).unwrap());
                prop_assert!(count <= f64::from(burst) + per_second * window + 1e-6);
            }
        }
    }

    /// It is a limit and not a stop: whoever waits is let through at the rate.
    #[test]
    fn a_queue_goes_out_at_the_rate(per_second in 0.01..10_000.0_f64, burst in 1..50_u32) {
        let mut bucket = Bucket::full(limit(per_second, burst));
        let last = (0..burst + 100).fold(Duration::ZERO, |now, _| start(&mut bucket, now));
        let ideal = 100.0 / per_second;
        prop_assert!((last.as_secs_f64() - ideal).abs() <= ideal * 1e-4 + 1e-6);
    }
}

//! The circuit, by its rules.

use chrono::TimeDelta;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn event(n: u128) -> EventId {
    EventId::from_uuid(Uuid::from_u128(n))
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

/// After so many failures, one each so many seconds, of so many events in turn.
fn failed(failures: i64, every: i64, events: i64) -> Circuit {
    (0..failures).fold(Circuit::Closed, |circuit, n| {
        let of = event(u128::from((n % events).unsigned_abs()));
        circuit.after(Came::Failure(of), at(n * every), 16)
    })
}

fn is_open(circuit: Circuit) -> bool {
    matches!(circuit, Circuit::Open { .. })
}

#[test]
fn a_circuit_opens_after_ten_failures_of_three_events_over_a_minute() {
    assert!(is_open(failed(10, 7, 3)));
    assert!(!is_open(failed(9, 60, 3)), "nine failures");
    assert!(!is_open(failed(10, 6, 3)), "54 seconds");
    assert!(!is_open(failed(100, 60, 2)), "two events");
}

/// D30: one failure, success, failure.
#[test]
fn a_success_begins_the_count_anew() {
    let failing = failed(9, 60, 3);
    let well = failing.after(Came::Success, at(600), 16);
    assert_eq!(well, Circuit::Closed);
    let again = well.after(Came::Failure(event(7)), at(660), 16);
    assert!(matches!(again, Circuit::Failing(run) if run.failures == 1 && run.first_at == at(660)));
}

/// D08.
#[test]
fn concurrency_grows_by_doubling_until_it_is_what_it_was() {
    let mut circuit = Circuit::Open { probes: 3 }.after(Came::Success, at(0), 16);
    let mut allowed = Vec::new();
    while let Circuit::Ramping { allowed: now, .. } = circuit {
        allowed.push(now);
        circuit = circuit.after(Came::Success, at(0), 16);
    }
    assert_eq!(allowed, [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8]);
    assert_eq!(circuit, Circuit::Closed);
}

#[test]
fn a_failure_on_the_way_back_opens_it_again() {
    let back = Circuit::RAMP.after(Came::Failure(event(1)), at(0), 16);
    assert_eq!(back, Circuit::Open { probes: 0 });
}

#[test]
fn probes_come_after_5_seconds_and_then_less_and_less_often() {
    let middle = [0, 1, 2, 6, 7, 40].map(|probes| probe_after(probes, 0.5).as_secs());
    assert_eq!(middle, [5, 10, 20, 320, 600, 600]);
}

#[test]
fn an_endpoint_is_given_up_after_five_days() {
    let days = |days: i64| at(days * 86_400);
    assert!(!is_given_up(days(0), days(5) - TimeDelta::seconds(1)));
    assert!(is_given_up(days(0), days(5)));
    assert!(!is_given_up(days(1), days(0)));
}

proptest! {
    /// INV-13 the other way round: whatever fails when, it opens exactly when all three conditions hold.
    #[test]
    fn a_circuit_opens_exactly_when_the_run_of_failures_is_long_wide_and_old_enough(
        attempts in prop::collection::vec((prop::option::weighted(0.9, 0..5_u128), 0..30_i64), 1..80)
    ) {
        let (mut circuit, mut now, mut run) = (Circuit::Closed, 0, Vec::new());
        for (failed, pause) in attempts {
            now += pause;
            let came = failed.map_or(Came::Success, |n| Came::Failure(event(n)));
            circuit = circuit.after(came, at(now), 16);
            match failed {
                Some(n) => run.push((n, now)),
                None => run.clear(),
            }
            let mut events: Vec<_> = run.iter().map(|(n, _)| *n).collect();
            events.sort_unstable();
            events.dedup();
            let lasted = run.first().map_or(0, |(_, first)| now - first);
            let opens = run.len() >= 10 && events.len() >= 3 && lasted >= 60;
            prop_assert_eq!(is_open(circuit), opens);
            if opens {
                break;
            }
        }
    }

    #[test]
    fn a_probe_is_never_sooner_than_5_seconds_nor_later_than_10_minutes(probes: u32, draw in 0.0..1.0_f64) {
        let after = probe_after(probes, draw);
        prop_assert!(after >= Duration::from_secs(5) && after <= Duration::from_mins(10));
    }
}

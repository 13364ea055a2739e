//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

fn preset(name: Preset) -> RetryPolicy {
    RetryPolicy::Preset { name }
}

fn read(json: &str) -> Result<RetryPolicy, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        (0..=1000_u32).prop_map(|r| Jitter::Spread(f64::from(r) / 1000.0)),
    ]
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let fixed =
        (10..100_000_u64, 1..25_u32).prop_map(|(delay_ms, max_attempts)| RetryPolicy::Fixed {
            delay_ms,
            max_attempts,
        });
    let exponential = (
        10..10_000_u64,
        100..=1000_u32,
        0..90_000_u64,
        1..25_u32,
        jitters(),
    )
        .prop_map(
            |(base_ms, percent, more, max_attempts, jitter)| RetryPolicy::Exponential {
                base_ms,
                factor: f64::from(percent) / 100.0,
                cap_ms: base_ms + more,
                max_attempts,
                jitter,
            },
        );
    let schedule = (
        proptest::collection::vec(10..1_000_000_u64, 0..30),
        jitters(),
    )
        .prop_map(|(delays_ms, jitter)| RetryPolicy::Schedule { delays_ms, jitter });
    let presets = proptest::sample::select(Preset::ALL).prop_map(preset);
    prop_oneof![presets, fixed, exponential, schedule]
}

#[test]
fn the_presets_are_these_schedules() {
    let hours = |n: u64| n * 3_600_000;
    let minutes = |n: u64| n * 60_000;
    assert_eq!(preset(Preset::Internal).delays_ms(), [1000, 1000]);
    assert_eq!(
        preset(Preset::InternalBulk).delays_ms(),
        [500, 1000, 2000, 4000]
    );
    assert_eq!(
        preset(Preset::Standard).delays_ms(),
        [
            5000,
            minutes(5),
            minutes(30),
            hours(2),
            hours(5),
            hours(10),
            hours(14),
            hours(20),
            hours(24)
        ]
    );
    assert_eq!(
        preset(Preset::HighVolume).delays_ms(),
        [
            1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000, 60_000
        ]
    );
    let financial = preset(Preset::Financial).delays_ms();
    assert_eq!(
        financial.get(..6),
        Some([5000, 15_000, 45_000, minutes(2), minutes(5), hours(1)].as_slice())
    );
    assert_eq!(financial.len(), 5 + 167);
    assert!(financial.iter().skip(5).all(|&delay| delay == hours(1)));
}

#[test]
fn a_limit_of_thirty_makes_thirty_attempts() {
    let policy = RetryPolicy::Fixed {
        delay_ms: 50,
        max_attempts: 30,
    };
    let delays: Vec<_> = (1..).map_while(|step| policy.delay(step, 0.5)).collect();
    assert_eq!(delays, vec![Duration::from_millis(50); 29]);
}

#[test]
fn a_schedule_is_walked_in_order() {
    let policy = RetryPolicy::Schedule {
        delays_ms: vec![1000, 2000, 4000, 8000],
        jitter: Jitter::None,
    };
    let delays: Vec<_> = (1..)
        .map_while(|step| policy.delay(step, 0.9))
        .map(|d| d.as_secs())
        .collect();
    assert_eq!(delays, [1, 2, 4, 8]);
    assert_eq!(policy.max_attempts(), 5);
}

#[test]
fn a_policy_without_delays_has_one_attempt() {
    let policy = read(r#"{"kind":"schedule","delays_ms":[],"jitter":"none"}"#).unwrap();
    assert_eq!((policy.max_attempts(), policy.delay(1, 0.0)), (1, None));
}

#[test]
fn two_thousand_failures_of_one_moment_spread_over_ten_seconds() {
    let policy = RetryPolicy::Schedule {
        delays_ms: vec![30_000],
        jitter: Jitter::Spread(0.2),
    };
    let mut seconds = [0_u32; 60];
    for i in 0..2000 {
        let delay = policy.delay(1, f64::from(i) / 2000.0).unwrap();
        seconds[usize::try_from(delay.as_secs()).unwrap()] += 1;
    }
    assert!(seconds.iter().filter(|&&n| n > 0).count() >= 10);
    assert!(
        seconds.iter().all(|&n| n <= 300),
        "no second holds over 15 %: {seconds:?}"
    );
}

#[test]
fn the_default_max_age_is_the_span_and_a_day_but_at_least_five() {
    let day = Duration::from_hours(24);
    assert_eq!(preset(Preset::Internal).default_max_age(), 5 * day);
    let standard = preset(Preset::Standard);
    assert_eq!(
        standard.span(),
        Duration::from_secs(5 + 35 * 60 + 75 * 3600)
    );
    assert_eq!(standard.default_max_age(), 5 * day);
    let financial = preset(Preset::Financial);
    assert_eq!(financial.default_max_age(), financial.span() + day);
    let month = RetryPolicy::Fixed {
        delay_ms: 86_400_000,
        max_attempts: 31,
    };
    assert_eq!(month.default_max_age(), 30 * day);
}

#[test]
fn each_kind_is_read_from_the_json_of_the_api() {
    let cases = [
        (
            r#"{"kind":"preset","name":"high_volume"}"#,
            preset(Preset::HighVolume),
        ),
        (
            r#"{"kind":"fixed","delay_ms":1000,"max_attempts":3}"#,
            RetryPolicy::Fixed {
                delay_ms: 1000,
                max_attempts: 3,
            },
        ),
        (
            r#"{"kind":"exponential","base_ms":500,"factor":2,"cap_ms":30000,"max_attempts":5,"jitter":"equal"}"#,
            RetryPolicy::Exponential {
                base_ms: 500,
                factor: 2.0,
                cap_ms: 30_000,
                max_attempts: 5,
                jitter: Jitter::Equal,
            },
        ),
        (
            r#"{"kind":"schedule","delays_ms":[10,20],"jitter":{"spread":0.1}}"#,
            RetryPolicy::Schedule {
                delays_ms: vec![10, 20],
                jitter: Jitter::Spread(0.1),
            },
        ),
        (
            r#"{"kind":"schedule","delays_ms":[10]}"#,
            RetryPolicy::Schedule {
                delays_ms: vec![10],
                jitter: Jitter::Spread(0.2),
            },
        ),
    ];
    for (json, policy) in cases {
        assert_eq!(read(json), Ok(policy), "{json}");
    }
}

#[test]
fn what_is_no_policy_is_refused() {
    let cases = [
        "{}",
        r#"{"kind":"preset"}"#,
        r#"{"kind":"preset","name":"fast"}"#,
        r#"{"kind":"preset","name":"standard","jitter":"none"}"#,
        r#"{"kind":"linear","delay_ms":1000}"#,
        r#"{"kind":"fixed","delay_ms":1000}"#,
        r#"{"kind":"fixed","delay_ms":1000,"max_attempts":3,"jitter":"full"}"#,
        r#"{"kind":"fixed","delay_ms":"1000","max_attempts":3}"#,
        r#"{"kind":"fixed","delay_ms":-1,"max_attempts":3}"#,
        r#"{"kind":"fixed","delay_ms":1.5,"max_attempts":3}"#,
        r#"{"kind":"schedule","delays_ms":[10],"jitter":"lots"}"#,
        r#"{"kind":"schedule","delays_ms":[10],"jitter":{"spread":0.1,"x":1}}"#,
        r#"{"kind":"schedule","delays_ms":null}"#,
        "null",
        "[]",
    ];
    for json in cases {
        assert!(read(json).is_err(), "{json}");
    }
}

#[test]
fn an_unknown_field_is_named() {
    let refusal =
        read(r#"{"kind":"fixed","delay_ms":1000,"max_attempts":3,"urll":1}"#).unwrap_err();
    assert!(refusal.contains("unknown field `urll`"), "{refusal}");
}

#[test]
fn each_bound_is_held_at_its_ends() {
    let fixed = |delay_ms, max_attempts| {
        RetryPolicy::Fixed {
            delay_ms,
            max_attempts,
        }
        .checked()
        .map(|_| ())
        .map_err(|fault| fault.error)
    };
    assert_eq!(fixed(10, 1000), Ok(()));
    assert_eq!(fixed(10, 0), Err(RetryPolicyError::Attempts));
    assert_eq!(fixed(10, 1001), Err(RetryPolicyError::Attempts));
    assert_eq!(fixed(0, 3), Err(RetryPolicyError::Delay));
    assert_eq!(fixed(9, 3), Err(RetryPolicyError::Delay));
    assert_eq!(fixed(604_800_000, 2), Ok(()));
    assert_eq!(fixed(604_800_001, 2), Err(RetryPolicyError::Delay));
    assert_eq!(fixed(u64::MAX, 2), Err(RetryPolicyError::Delay));
    assert_eq!(fixed(86_400_000, 31), Ok(()));
    assert_eq!(fixed(86_400_000, 32), Err(RetryPolicyError::Span));

    let growing = |factor, cap_ms, jitter| {
        RetryPolicy::Exponential {
            base_ms: 100,
            factor,
            cap_ms,
            max_attempts: 3,
            jitter,
        }
        .checked()
        .map(|_| ())
        .map_err(|fault| fault.error)
    };
    assert_eq!(growing(1.0, 100, Jitter::Spread(1.0)), Ok(()));
    assert_eq!(growing(1.0, 99, Jitter::None), Err(RetryPolicyError::Cap));
    for factor in [0.99, 10.01, f64::NAN, f64::INFINITY, -2.0] {
        assert_eq!(
            growing(factor, 100, Jitter::None),
            Err(RetryPolicyError::Factor),
            "{factor}"
        );
    }
    for spread in [-0.01, 1.01, f64::NAN] {
        assert_eq!(
            growing(2.0, 100, Jitter::Spread(spread)),
            Err(RetryPolicyError::Spread),
            "{spread}"
        );
    }

    let list = |n| {
        RetryPolicy::Schedule {
            delays_ms: vec![10; n],
            jitter: Jitter::None,
        }
        .checked()
        .map(|_| ())
        .map_err(|fault| fault.error)
    };
    assert_eq!(list(999), Ok(()));
    assert_eq!(list(1000), Err(RetryPolicyError::Delays));
}

#[test]
fn every_bound_that_is_broken_is_told_where_it_is() {
    let told = |json: &str| {
        let policy: UncheckedPolicy = serde_json::from_str(json).unwrap();
        let faults = policy.checked().unwrap_err();
        let words = faults.iter().map(ToString::to_string);
        words.collect::<Vec<_>>()
    };
    assert_eq!(
        told(r#"{"kind":"fixed","delay_ms":9,"max_attempts":0}"#),
        [
            "/delay_ms must be a whole number from 10 to 604800000",
            "/max_attempts must be a whole number from 1 to 1000",
        ]
    );
    let growing = r#"{"kind":"exponential","base_ms":20,"factor":0.5,"cap_ms":10,"max_attempts":1001,"jitter":{"spread":2}}"#;
    assert_eq!(
        told(growing),
        [
            "/factor must be a number from 1 to 10",
            "/cap_ms must be at least base_ms",
            "/max_attempts must be a whole number from 1 to 1000",
            "/jitter/spread must be a number from 0 to 1",
        ]
    );
    assert_eq!(
        told(r#"{"kind":"schedule","delays_ms":[10,9,10,604800001]}"#),
        [
            "/delays_ms/1 must be a whole number from 10 to 604800000",
            "/delays_ms/3 must be a whole number from 10 to 604800000",
        ]
    );
    assert_eq!(
        told(r#"{"kind":"fixed","delay_ms":86400000,"max_attempts":32}"#),
        [" must have delays of at most 30 days together"]
    );
    // However many there are, they are bounded (INV-11).
    let many = format!(
        r#"{{"kind":"schedule","delays_ms":[{}1]}}"#,
        "1,".repeat(5000)
    );
    assert_eq!(told(&many).len(), 1000);
}

#[test]
fn a_policy_that_was_never_checked_still_gives_bounded_answers() {
    let wild = [
        RetryPolicy::Fixed {
            delay_ms: u64::MAX,
            max_attempts: u32::MAX,
        },
        RetryPolicy::Exponential {
            base_ms: u64::MAX,
            factor: f64::NAN,
            cap_ms: 0,
            max_attempts: u32::MAX,
            jitter: Jitter::Spread(f64::INFINITY),
        },
        RetryPolicy::Schedule {
            delays_ms: vec![u64::MAX; 2000],
            jitter: Jitter::Spread(f64::NAN),
        },
    ];
    for policy in wild {
        assert!(policy.delays_ms().len() < 1000);
        assert!(policy.default_max_age() <= limits::MAX_AGE_MAX);
        for draw in [0.0, 1.0, f64::NAN, f64::INFINITY, -1.0] {
            assert!(policy.delay(1, draw).is_some());
            assert!(policy.delay(u32::MAX, draw).is_none());
        }
    }
}

proptest! {
    #[test]
    fn a_policy_reads_back_from_its_json(policy in policies()) {
        let policy = policy.checked().unwrap();
        let json = serde_json::to_string(&policy).unwrap();
        prop_assert_eq!(read(&json), Ok(policy));
    }

    #[test]
    fn every_delay_is_within_the_bounds_of_its_jitter(policy in policies(), draw in 0.0..1.0_f64) {
        let nominal = policy.delays_ms();
        for (place, &ms) in nominal.iter().enumerate() {
            let step = u32::try_from(place).unwrap() + 1;
            let delay = policy.delay(step, draw).unwrap().as_secs_f64();
            let d = Duration::from_millis(ms).as_secs_f64();
            let (low, high) = match policy.jitter() {
                Jitter::None => (d, d),
                Jitter::Full => (0.1, d.max(0.1)),
                Jitter::Equal => (d / 2.0, d),
                Jitter::Spread(r) => (d * (1.0 - r), d * (1.0 + r)),
            };
            // A nominal delay is shown in whole milliseconds.
            prop_assert!(delay >= low - 0.001 && delay <= high + 0.0021, "{low} <= {delay} <= {high}");
        }
    }

    #[test]
    fn there_is_one_delay_less_than_there_are_attempts(policy in policies(), draw in 0.0..1.0_f64) {
        let attempts = policy.max_attempts();
        prop_assert_eq!(policy.delays_ms().len() + 1, usize::try_from(attempts).unwrap());
        prop_assert!((1..attempts).all(|step| policy.delay(step, draw).is_some()));
        prop_assert_eq!(policy.delay(attempts, draw), None);
    }

    #[test]
    fn exponential_delays_never_shrink_and_never_pass_their_cap(
        base_ms in 10..10_000_u64, factor in 1.0..=10.0_f64, more in 0..100_000_u64, max_attempts in 1..100_u32,
    ) {
        let cap_ms = base_ms + more;
        let policy = RetryPolicy::Exponential { base_ms, factor, cap_ms, max_attempts, jitter: Jitter::None };
        let delays = policy.delays_ms();
        prop_assert!(delays.is_sorted());
        prop_assert!(delays.iter().all(|&d| (base_ms..=cap_ms).contains(&d)));
    }
}

//! Rounds against the goals, and the batch sizes that make `log` comparable.

use crate::{
    baseline::Batches,
    report::{Bound, HalfLoad, Round, Stretch, Verdict, median},
    scenario::Scenario,
};

/// The batches that the server made; a guess where PostgreSQL does not count statements.
pub(crate) fn batches(scenario: &Scenario, stretch: &Stretch) -> Batches {
    const GUESS: u64 = 128;
    let mean = |rows: u64, statements: Option<u64>| {
        let mean = statements
            .filter(|count| *count > 0)
            .map_or(GUESS, |count| rows.div_ceil(count));
        usize::try_from(mean).unwrap_or(1).clamp(1, 512)
    };
    Batches {
        events: mean(stretch.load.accepted, stretch.spent.event_flushes),
        attempts: mean(stretch.expected, stretch.spent.record_batches),
        fan_out: scenario.fan_out,
    }
}

/// Every goal of the scenario, with what was reached.
pub(crate) fn judge(
    scenario: &Scenario,
    rounds: &[Round],
    half_load: Option<&HalfLoad>,
) -> Vec<Verdict> {
    let mut verdicts = counts(rounds, half_load);
    verdicts.extend(ratios(scenario, rounds));
    if scenario.fan_out > 0 {
        verdicts.extend(costs(scenario, rounds));
        verdicts.extend(half_load.map(delay));
    }
    verdicts
}

fn counts(rounds: &[Round], half_load: Option<&HalfLoad>) -> Vec<Verdict> {
    let stretches = || {
        rounds
            .iter()
            .map(|round| &round.posthorn)
            .chain(half_load.map(|half| &half.posthorn))
    };
    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
    let sum = |value: fn(&Stretch) -> u64| stretches().map(value).sum::<u64>() as f64;
    vec![
        Verdict::new(
            "lost deliveries",
            sum(|stretch| stretch.lost),
            Bound::AtMost,
            0.0,
        )
        .gate(),
        Verdict::new(
            "doubled deliveries",
            sum(|stretch| stretch.sink.duplicates),
            Bound::AtMost,
            0.0,
        ),
        Verdict::new(
            "failed submissions",
            sum(|stretch| stretch.load.failed),
            Bound::AtMost,
            0.0,
        ),
    ]
}

fn ratios(scenario: &Scenario, rounds: &[Round]) -> Vec<Verdict> {
    let ratio = median(rounds.iter().map(|round| {
        let stretch = &round.posthorn;
        let reached = if scenario.fan_out == 0 {
            stretch.load.per_second()
        } else {
            stretch.delivered_per_second
        };
        reached / round.direct_per_second.max(1.0)
    }));
    let mut verdicts = vec![Verdict::new(
        "ratio to direct",
        ratio,
        Bound::AtLeast,
        scenario.ratio,
    )];
    if scenario.alarm > 0.0 {
        verdicts.push(
            Verdict::new(
                "ratio to direct, alarm",
                ratio,
                Bound::AtLeast,
                scenario.alarm,
            )
            .gate(),
        );
    }
    verdicts
}

fn costs(scenario: &Scenario, rounds: &[Round]) -> Vec<Verdict> {
    let of = |value: fn(&Stretch) -> f64| median(rounds.iter().map(|round| value(&round.posthorn)));
    let cpu = |stretch: &Stretch| stretch.server_cpu_ms + stretch.postgres_cpu_ms;
    let requests = rounds
        .iter()
        .map(|round| cpu(&round.posthorn) / round.direct_cpu_ms.max(1e-6));
    let wal = of(|stretch| stretch.per_event(stretch.spent.wal_bytes));
    let statements = of(|stretch| {
        stretch.per_event(
            stretch
                .spent
                .statements
                .unwrap_or(stretch.spent.transactions),
        )
    });
    let at_most = |what, reached, wanted| Verdict::new(what, reached, Bound::AtMost, wanted);
    vec![
        at_most(
            "CPU per event, in requests of direct",
            median(requests),
            scenario.cpu,
        )
        .gate(),
        at_most("WAL per event, bytes", wal, scenario.wal).gate(),
        at_most("statements per event", statements, scenario.statements).gate(),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no latency here comes near 2^52 µs"
)]
fn delay(half: &HalfLoad) -> Verdict {
    let (p99, direct) = (
        half.posthorn.sink.end_to_end.p99_us as f64,
        half.direct.p99_us as f64,
    );
    Verdict::new(
        "half load, end to end p99 above direct, ms",
        (p99 - direct) / 1000.0,
        Bound::AtMost,
        25.0,
    )
}

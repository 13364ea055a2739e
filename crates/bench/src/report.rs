//! What a run is told as: JSON for programs, a table for people.

use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use crate::{counters::Spent, latency::Latency, load::Loaded, sink::Count, stage::RunArgs};

/// One measured stretch through the server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stretch {
    /// What the load saw.
    pub(crate) load: Loaded,
    /// What the load beside it saw.
    pub(crate) aside: Option<Loaded>,
    /// What the sink saw.
    pub(crate) sink: Count,
    /// Deliveries that should have come.
    pub(crate) expected: u64,
    /// Expected and never seen.
    pub(crate) lost: u64,
    /// From the first request to the last delivery.
    pub(crate) seconds: f64,
    /// Deliveries in each of those.
    pub(crate) delivered_per_second: f64,
    /// CPU of the server, for each accepted event, in milliseconds.
    pub(crate) server_cpu_ms: f64,
    /// CPU of PostgreSQL, the same.
    pub(crate) postgres_cpu_ms: f64,
    /// What PostgreSQL counted.
    pub(crate) spent: Spent,
}

/// One round: the three things that are compared, one after the other.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Round {
    /// Requests per second straight to the sink.
    pub(crate) direct_per_second: f64,
    /// CPU of load and sink for each of those requests, in milliseconds: what a request costs on this machine.
    pub(crate) direct_cpu_ms: f64,
    /// Through the server.
    pub(crate) posthorn: Stretch,
    /// Events per second of PostgreSQL alone.
    pub(crate) log_per_second: f64,
}

/// Half of what the rounds reached, as an open loop.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HalfLoad {
    /// Events per second that were meant.
    pub(crate) rate: f64,
    /// End to end straight to the sink.
    pub(crate) direct: Latency,
    /// Through the server.
    pub(crate) posthorn: Stretch,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Such as `s1`.
    pub(crate) scenario: &'static str,
    /// Cores of this machine.
    pub(crate) cores: usize,
    /// The rounds.
    pub(crate) rounds: Vec<Round>,
    /// The open loop.
    pub(crate) half_load: Option<HalfLoad>,
    /// The server's memory at its highest, in bytes.
    pub(crate) peak_memory: u64,
    /// Dead row versions at the end.
    pub(crate) dead_tuples: u64,
    /// Rows of `pending` at the end.
    pub(crate) pending: u64,
    /// Dead letters at the end.
    pub(crate) dead_letters: u64,
    /// Judged against the goals.
    pub(crate) verdicts: Vec<Verdict>,
}

/// One goal and what was reached.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    /// What is judged, with its unit.
    pub(crate) what: &'static str,
    /// What was reached: the median of the rounds.
    pub(crate) reached: f64,
    /// What is wanted.
    pub(crate) wanted: f64,
    /// At least, or at most.
    pub(crate) bound: Bound,
    /// It holds.
    pub(crate) holds: bool,
    /// A run fails by it.
    pub(crate) gate: bool,
}

/// Which side of the number is good.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// More is better.
    AtLeast,
    /// Less is better.
    AtMost,
}

impl Verdict {
    /// Judges.
    pub(crate) fn new(what: &'static str, reached: f64, bound: Bound, wanted: f64) -> Self {
        let holds = match bound {
            Bound::AtLeast => reached >= wanted,
            Bound::AtMost => reached <= wanted,
        };
        Self {
            what,
            reached,
            wanted,
            bound,
            holds,
            gate: false,
        }
    }

    /// One that a run fails by.
    pub(crate) fn gate(self) -> Self {
        Self { gate: true, ..self }
    }
}

/// The middle value; of an even number the lower of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values
        .get(values.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(0.0)
}

/// Writes the report where it is wanted; fails when a gate was missed.
pub(crate) fn conclude(
    args: &RunArgs,
    report: &impl Serialize,
    verdicts: &[Verdict],
) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(report)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let failed = verdicts
        .iter()
        .any(|verdict| verdict.gate && !verdict.holds);
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Report {
    /// The table.
    pub(crate) fn print(&self) {
        println!(
            "\n{} on {} cores; times are of this machine, compare the ratios",
            self.scenario, self.cores
        );
        print_head();
        for round in &self.rounds {
            print_line(
                Some(round.direct_per_second),
                Some(round.log_per_second),
                &round.posthorn,
            );
        }
        if let Some(half) = &self.half_load {
            println!(
                "half load, open loop at {:.0}/s; direct end to end {}",
                half.rate,
                millis(half.direct)
            );
            print_line(None, None, &half.posthorn);
        }
        println!(
            "peak memory {} MiB, dead tuples {}, pending {}, dead letters {}",
            self.peak_memory / 1024 / 1024,
            self.dead_tuples,
            self.pending,
            self.dead_letters
        );
        print_verdicts(&self.verdicts);
    }
}

/// The names of the columns.
pub(crate) fn print_head() {
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>6} {:>5} {:>25} {:>25} {:>8} {:>8} {:>7} {:>6} {:>6}",
        "direct/s",
        "log/s",
        "accept/s",
        "deliv/s",
        "lost",
        "dup",
        "accept p50/p99/max ms",
        "end to end p50/p99/max ms",
        "srv ms",
        "pg ms",
        "WAL B",
        "stmts",
        "txns"
    );
}

/// What was wanted, and whether it was reached.
pub(crate) fn print_verdicts(verdicts: &[Verdict]) {
    for verdict in verdicts {
        let sign = match verdict.bound {
            Bound::AtLeast => "≥",
            Bound::AtMost => "≤",
        };
        let word = match (verdict.holds, verdict.gate) {
            (true, _) => "ok",
            (false, true) => "MISSED",
            (false, false) => "missed",
        };
        println!(
            "{word:>7}  {}: {:.3} (wanted {sign} {})",
            verdict.what, verdict.reached, verdict.wanted
        );
    }
}

/// One stretch as a line of the table.
pub(crate) fn print_line(direct: Option<f64>, log: Option<f64>, stretch: &Stretch) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    println!(
        "{:>9} {:>9} {:>9.0} {:>9.0} {:>6} {:>5} {:>25} {:>25} {:>8.4} {:>8.4} {:>7.0} {:>6} {:>6.3}",
        number(direct),
        number(log),
        stretch.load.per_second(),
        stretch.delivered_per_second,
        stretch.lost,
        stretch.sink.duplicates,
        millis(stretch.load.accept),
        millis(stretch.sink.end_to_end),
        stretch.server_cpu_ms,
        stretch.postgres_cpu_ms,
        stretch.per_event(stretch.spent.wal_bytes),
        stretch
            .spent
            .statements
            .map_or("-".to_owned(), |count| format!(
                "{:.3}",
                stretch.per_event(count)
            )),
        stretch.per_event(stretch.spent.transactions),
    );
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no latency here comes near 2^52 µs"
)]
fn millis(latency: Latency) -> String {
    let millis = |micros: u64| micros as f64 / 1000.0;
    format!(
        "{:.1}/{:.1}/{:.1}",
        millis(latency.p50_us),
        millis(latency.p99_us),
        millis(latency.max_us)
    )
}

impl Stretch {
    /// So many for each accepted event.
    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
    pub(crate) fn per_event(&self, count: u64) -> f64 {
        count as f64 / self.load.accepted.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0]) - 1.0).abs() < f64::EPSILON);
        assert!(median([]).abs() < f64::EPSILON);
    }
}

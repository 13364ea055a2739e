//! S4 to S12: the steady load with something in its way, beside the same load with nothing.
//!
//! A trial has pairs of stretches: `alone` and `beside`, interleaved where what is in the way can be taken away again. What is
//! judged is the one against the other, by the median of the pairs.

mod backlog;
mod beside;
mod crash;
mod hostile;
mod laden;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;

use crate::{
    load::Pace,
    process,
    report::{Bound, Stretch, Verdict, conclude, median, print_head, print_line, print_verdicts},
    stage::{EndpointSpec, Measured, RunArgs, Stage},
};

pub(crate) use self::{
    backlog::backlog,
    beside::{failing, flood, hanging},
    crash::crash,
    hostile::hostile,
    laden::{retained, snapshot, waiting},
};

/// What a trial may be told.
#[derive(Args, Clone)]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Rows that are there before: events of s8, deliveries of s7 and s10. Without it
    /// 250,000, 40,000 and 200,000, so that a run stays short; the goals are meant for 5 million, 200,000 and 1 million.
    #[arg(long)]
    pub(crate) rows: Option<u64>,
}

/// Two stretches that are compared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair {
    /// Nothing in the way.
    pub(crate) alone: Stretch,
    /// The same load with it.
    pub(crate) beside: Stretch,
}

/// A whole trial.
#[derive(Debug, Serialize)]
struct TrialReport {
    scenario: &'static str,
    cores: usize,
    pairs: Vec<Pair>,
    /// What is particular to the scenario, each with its unit in its name.
    notes: BTreeMap<&'static str, f64>,
    peak_memory: u64,
    dead_tuples: u64,
    pending: u64,
    dead_letters: u64,
    verdicts: Vec<Verdict>,
}

/// What a trial came to, before it is told.
struct Outcome {
    scenario: &'static str,
    pairs: Vec<Pair>,
    notes: BTreeMap<&'static str, f64>,
    verdicts: Vec<Verdict>,
}

impl Outcome {
    /// With the verdict that every trial has: nothing is lost.
    fn new(scenario: &'static str, pairs: Vec<Pair>) -> Self {
        let lost: u64 = pairs
            .iter()
            .map(|pair| pair.alone.lost + pair.beside.lost)
            .sum();
        let lost = Verdict::new("lost deliveries", count(lost), Bound::AtMost, 0.0).gate();
        Self {
            scenario,
            pairs,
            notes: BTreeMap::new(),
            verdicts: vec![lost],
        }
    }

    /// The median of the pairs.
    fn median(&self, value: impl Fn(&Pair) -> f64) -> f64 {
        median(self.pairs.iter().map(value))
    }

    fn judge(&mut self, what: &'static str, reached: f64, bound: Bound, wanted: f64) {
        self.verdicts
            .push(Verdict::new(what, reached, bound, wanted));
    }

    async fn tell(self, stage: &Stage, args: &RunArgs) -> anyhow::Result<ExitCode> {
        // What has arrived last is on record by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (pending, dead_letters) = stage.reader.unfinished().await?;
        let report = TrialReport {
            scenario: self.scenario,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            pairs: self.pairs,
            notes: self.notes,
            peak_memory: process::peak_memory(stage.server.pid())?,
            dead_tuples: stage.reader.dead_tuples().await?,
            pending,
            dead_letters,
            verdicts: self.verdicts,
        };
        report.print();
        conclude(args, &report, &report.verdicts)
    }
}

impl TrialReport {
    fn print(&self) {
        println!(
            "\n{} on {} cores; each pair is a line alone and a line beside what the scenario is about",
            self.scenario, self.cores
        );
        print_head();
        for pair in &self.pairs {
            print_line(None, None, &pair.alone);
            print_line(None, None, &pair.beside);
        }
        for (what, value) in &self.notes {
            println!("{what}: {value:.1}");
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

#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
fn count(count: u64) -> f64 {
    count as f64
}

fn millis(micros: u64) -> f64 {
    count(micros) / 1000.0
}

/// Every tenant has one endpoint, measured.
fn steady(place: usize) -> Vec<EndpointSpec> {
    vec![EndpointSpec::at(format!("/hook/{place}"))]
}

/// The steady load of the tenants from `first` on.
fn load_of(stage: &Stage, args: &RunArgs, first: usize, pace: Pace) -> Measured {
    let keys: Arc<[String]> = stage.keys.iter().skip(first).cloned().collect();
    Measured {
        keys,
        fan_out: 1,
        duration: args.duration(),
        connections: args.connections,
        pace,
    }
}

/// A short closed loop: what warms everything up, and how many events a second are reached.
async fn warm_up(stage: &Stage, args: &RunArgs, first: usize) -> anyhow::Result<f64> {
    eprintln!("warming up");
    let mut load = load_of(stage, args, first, Pace::Closed);
    load.duration = Duration::from_secs(2);
    stage.through_server(&load, None).await?;
    load.duration = Duration::from_secs(args.seconds.min(5));
    let reached = stage.through_server(&load, None).await?;
    Ok(reached.load.per_second().max(1.0))
}

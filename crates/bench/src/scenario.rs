//! S1, S1b and S2: a steady load of 512-byte events from a hundred tenants, beside what it is compared with.

use std::process::ExitCode;

use crate::{
    judge::{batches, judge},
    load::Pace,
    payload, process,
    report::{HalfLoad, Report, Round, Stretch, conclude, median},
    stage::{EndpointSpec, Measured, RunArgs, Stage},
};

/// What tells one scenario from another.
pub(crate) struct Scenario {
    name: &'static str,
    /// Endpoints that each event is for.
    pub(crate) fan_out: usize,
    /// Deliveries (events, where there are none) against `direct`: wanted, and by which the run fails.
    pub(crate) ratio: f64,
    pub(crate) alarm: f64,
    /// CPU of an event in requests of `direct`, at most; see `docs/adr/0011`.
    pub(crate) cpu: f64,
    /// WAL of an event, at most, in bytes.
    pub(crate) wal: f64,
    /// Statements of an event, at most.
    pub(crate) statements: f64,
}

/// S1.
pub(crate) const STEADY: Scenario = Scenario {
    name: "s1",
    fan_out: 1,
    ratio: 0.25,
    alarm: 0.20,
    cpu: 2.85,
    wal: 1200.0,
    statements: 0.1,
};
/// S1b.
pub(crate) const ACCEPT_ONLY: Scenario = Scenario {
    name: "s1b",
    fan_out: 0,
    ratio: 0.45,
    alarm: 0.0,
    cpu: 0.0,
    wal: 0.0,
    statements: 0.0,
};
/// S2.
pub(crate) const FAN_OUT: Scenario = Scenario {
    name: "s2",
    fan_out: 10,
    ratio: 0.5,
    alarm: 0.0,
    cpu: 14.0,
    wal: 5500.0,
    statements: 0.2,
};

/// Runs a scenario, prints the table, writes the JSON; fails when a gate is missed.
pub(crate) async fn run(scenario: &Scenario, args: &RunArgs) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(args, |_| scenario.endpoints()).await?;
    let report = scenario.measure(&stage, args).await?;
    report.print();
    conclude(args, &report, &report.verdicts)
}

impl Scenario {
    /// Without fan-out, one endpoint that wants another type: matching is done, and finds nothing.
    fn endpoints(&self) -> Vec<EndpointSpec> {
        let at = |place: usize| EndpointSpec::at(format!("/hook/{place}"));
        if self.fan_out == 0 {
            return vec![EndpointSpec {
                event_type: payload::OTHER_TYPE,
                ..at(0)
            }];
        }
        (0..self.fan_out).map(at).collect()
    }

    async fn measure(&self, stage: &Stage, args: &RunArgs) -> anyhow::Result<Report> {
        eprintln!("warming up");
        let warm = Measured {
            duration: std::time::Duration::from_secs(2),
            ..self.measured(stage, args, Pace::Closed)
        };
        stage.through_server(&warm, None).await?;
        let mut rounds = Vec::new();
        for round in 1..=args.rounds {
            eprintln!("round {round} of {}", args.rounds);
            let direct = stage.direct(args, Pace::Closed).await?;
            let posthorn = self.stretch(stage, args, Pace::Closed).await?;
            let log_per_second = stage
                .baseline
                .run(batches(self, &posthorn), args.duration())
                .await?;
            rounds.push(Round {
                direct_per_second: direct.per_second,
                direct_cpu_ms: direct.cpu_ms,
                posthorn,
                log_per_second,
            });
        }
        let half_load = self.half_load(stage, args, &rounds).await?;
        let (pending, dead_letters) = stage.reader.unfinished().await?;
        let verdicts = judge(self, &rounds, half_load.as_ref());
        Ok(Report {
            scenario: self.name,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            rounds,
            half_load,
            peak_memory: process::peak_memory(stage.server.pid())?,
            dead_tuples: stage.reader.dead_tuples().await?,
            pending,
            dead_letters,
            verdicts,
        })
    }

    fn measured(&self, stage: &Stage, args: &RunArgs, pace: Pace) -> Measured {
        Measured {
            keys: stage.keys.as_slice().into(),
            fan_out: self.fan_out,
            duration: args.duration(),
            connections: args.connections,
            pace,
        }
    }

    async fn stretch(&self, stage: &Stage, args: &RunArgs, pace: Pace) -> anyhow::Result<Stretch> {
        stage
            .through_server(&self.measured(stage, args, pace), None)
            .await
    }

    async fn half_load(
        &self,
        stage: &Stage,
        args: &RunArgs,
        rounds: &[Round],
    ) -> anyhow::Result<Option<HalfLoad>> {
        let reached = median(rounds.iter().map(|round| round.posthorn.load.per_second()));
        if reached < 1.0 {
            return Ok(None);
        }
        eprintln!("half load");
        let pace = Pace::Open {
            rate: reached / 2.0,
        };
        let direct = stage.direct(args, pace).await?;
        let posthorn = self.stretch(stage, args, pace).await?;
        Ok(Some(HalfLoad {
            rate: reached / 2.0,
            direct: direct.sink.end_to_end,
            posthorn,
        }))
    }
}

//! S1, S1b and S2: a steady load of 512-byte events from a hundred tenants, beside what it is compared with.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use http::Method;
use serde_json::Value;
use sqlx::{Connection, PgConnection};

use crate::{
    baseline::Baseline,
    client,
    cluster::Cluster,
    counters::Reader,
    judge::{batches, judge},
    load::{self, Load, Pace, Target},
    payload, process,
    program::{self, Program, Running},
    report::{HalfLoad, Report, Round, Stretch, median},
    sink::Count,
};

/// How long deliveries may stop coming before what is missing counts as lost: a lease, a retry and a half.
const STALL: Duration = Duration::from_secs(20);

/// What tells one scenario from another.
pub(crate) struct Scenario {
    name: &'static str,
    /// Endpoints that each event is for.
    pub(crate) fan_out: usize,
    /// Deliveries (events, where there are none) against `direct`: wanted, and by which the run fails.
    pub(crate) ratio: f64,
    pub(crate) alarm: f64,
}

/// S1.
pub(crate) const STEADY: Scenario = Scenario {
    name: "s1",
    fan_out: 1,
    ratio: 0.25,
    alarm: 0.20,
};
/// S1b.
pub(crate) const ACCEPT_ONLY: Scenario = Scenario {
    name: "s1b",
    fan_out: 0,
    ratio: 0.45,
    alarm: 0.0,
};
/// S2.
pub(crate) const FAN_OUT: Scenario = Scenario {
    name: "s2",
    fan_out: 10,
    ratio: 0.5,
    alarm: 0.0,
};

/// What a run may be told.
#[derive(Args)]
pub(crate) struct ScenarioArgs {
    /// The server's program.
    #[arg(long, env = "POSTHORN_BIN")]
    server_bin: PathBuf,
    /// The folder of PostgreSQL's programs.
    #[arg(long, env = "POSTHORN_PG_BIN")]
    pg_bin: PathBuf,
    /// Where the run's own folder is made; PostgreSQL's user must be able to walk there.
    #[arg(long, env = "POSTHORN_BENCH_DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// How long each stretch lasts.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How often direct, Posthorn and log take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Tenants, each with its own key and endpoints.
    #[arg(long, default_value_t = 100)]
    tenants: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 128)]
    connections: usize,
    /// Where the report goes as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Everything that a run has started.
struct Stage {
    // Dropped in this order: the server before its database.
    server: Running,
    sink: Running,
    reader: Reader,
    baseline: Baseline,
    keys: Arc<[String]>,
    cluster: Cluster,
}

/// Runs a scenario, prints the table, writes the JSON; fails when a gate is missed.
pub(crate) async fn run(scenario: &Scenario, args: &ScenarioArgs) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(scenario, args).await?;
    let report = stage.measure(scenario, args).await?;
    report.print();
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(if report.failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Stage {
    async fn set(scenario: &Scenario, args: &ScenarioArgs) -> anyhow::Result<Self> {
        eprintln!("starting PostgreSQL, server and sink");
        let cluster = Cluster::start(&args.pg_bin, &args.dir)?;
        for database in ["posthorn", "log"] {
            create_database(&cluster, database).await?;
        }
        Program::prepare(&args.server_bin, &cluster.url("log"))?;
        let program = Program::prepare(&args.server_bin, &cluster.url("posthorn"))?;
        let keys = program.tenants(args.tenants).await?;
        let server = program.serve(&cluster.folder().join("server.log")).await?;
        let sink = Running::sink()?;
        eprintln!(
            "making {} endpoints",
            args.tenants * scenario.fan_out.max(1)
        );
        for key in &keys {
            make_endpoints(scenario, server.address, sink.address, key).await?;
        }
        let reader = Reader::connect(&cluster.url("posthorn"), cluster.counts_statements).await?;
        let baseline = Baseline::connect(&cluster.url("log")).await?;
        Ok(Self {
            server,
            sink,
            reader,
            baseline,
            keys: keys.into(),
            cluster,
        })
    }

    async fn measure(&self, scenario: &Scenario, args: &ScenarioArgs) -> anyhow::Result<Report> {
        let duration = Duration::from_secs(args.seconds);
        eprintln!("warming up");
        self.through_server(scenario, args, Duration::from_secs(2), Pace::Closed)
            .await?;
        let mut rounds = Vec::new();
        for round in 1..=args.rounds {
            eprintln!("round {round} of {}", args.rounds);
            let (direct_per_second, _) = self.direct(args, duration, Pace::Closed).await?;
            let posthorn = self
                .through_server(scenario, args, duration, Pace::Closed)
                .await?;
            let log_per_second = self
                .baseline
                .run(batches(scenario, &posthorn), duration)
                .await?;
            rounds.push(Round {
                direct_per_second,
                posthorn,
                log_per_second,
            });
        }
        let half_load = self.half_load(scenario, args, &rounds).await?;
        let (pending, dead_letters) = self.reader.unfinished().await?;
        let verdicts = judge(scenario, &rounds, half_load.as_ref());
        Ok(Report {
            scenario: scenario.name,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            rounds,
            half_load,
            peak_memory: process::peak_memory(self.server.pid())?,
            dead_tuples: self.reader.dead_tuples().await?,
            pending,
            dead_letters,
            verdicts,
        })
    }

    /// The load straight to the sink: requests per second, and what the sink saw.
    async fn direct(
        &self,
        args: &ScenarioArgs,
        duration: Duration,
        pace: Pace,
    ) -> anyhow::Result<(f64, Count)> {
        self.reset_sink().await?;
        let target = Target::Sink {
            address: self.sink.address,
        };
        let loaded = load::send(&Load {
            target,
            duration,
            connections: args.connections,
            pace,
        })
        .await?;
        Ok((loaded.per_second(), self.count().await?))
    }

    async fn through_server(
        &self,
        scenario: &Scenario,
        args: &ScenarioArgs,
        duration: Duration,
        pace: Pace,
    ) -> anyhow::Result<Stretch> {
        self.reset_sink().await?;
        let before = self.reader.begin().await?;
        let cpu = (
            process::cpu(self.server.pid())?,
            process::cpu_with_children(self.cluster.pid())?,
        );
        let begin_us = payload::now_us();
        let target = Target::Server {
            address: self.server.address,
            keys: Arc::clone(&self.keys),
        };
        let loaded = load::send(&Load {
            target,
            duration,
            connections: args.connections,
            pace,
        })
        .await?;
        let expected = loaded.accepted * scenario.fan_out as u64;
        let sink = self.wait_for(expected).await?;
        let server_cpu = process::cpu(self.server.pid())?.saturating_sub(cpu.0);
        let postgres_cpu = process::cpu_with_children(self.cluster.pid())?.saturating_sub(cpu.1);
        let spent = self.reader.read().await?.since(before);
        let until_last =
            Duration::from_micros(sink.last_at_us.saturating_sub(begin_us)).as_secs_f64();
        let seconds = loaded.seconds.max(until_last);
        let per_event =
            |cpu: Duration| 1000.0 * load::rate(1, load::rate(loaded.accepted, cpu.as_secs_f64()));
        Ok(Stretch {
            load: loaded,
            sink,
            expected,
            lost: expected.saturating_sub(sink.unique),
            seconds,
            delivered_per_second: load::rate(sink.unique, seconds),
            server_cpu_ms: per_event(server_cpu),
            postgres_cpu_ms: per_event(postgres_cpu),
            spent,
        })
    }

    async fn half_load(
        &self,
        scenario: &Scenario,
        args: &ScenarioArgs,
        rounds: &[Round],
    ) -> anyhow::Result<Option<HalfLoad>> {
        let reached = median(rounds.iter().map(|round| round.posthorn.load.per_second()));
        if reached < 1.0 {
            return Ok(None);
        }
        eprintln!("half load");
        let (duration, rate) = (Duration::from_secs(args.seconds), reached / 2.0);
        let (_, direct) = self.direct(args, duration, Pace::Open { rate }).await?;
        let posthorn = self
            .through_server(scenario, args, duration, Pace::Open { rate })
            .await?;
        Ok(Some(HalfLoad {
            rate,
            direct: direct.end_to_end,
            posthorn,
        }))
    }

    /// Waits until every delivery has come, or none has for [`STALL`].
    async fn wait_for(&self, expected: u64) -> anyhow::Result<Count> {
        let (mut last, mut changed) = (self.count().await?, Instant::now());
        while last.unique < expected && changed.elapsed() < STALL {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let count = self.count().await?;
            if count.unique > last.unique {
                changed = Instant::now();
            }
            last = count;
        }
        Ok(last)
    }

    async fn count(&self) -> anyhow::Result<Count> {
        client::call(self.sink.address, Method::GET, "/count", None, "").await
    }

    async fn reset_sink(&self) -> anyhow::Result<()> {
        client::call::<Value>(self.sink.address, Method::POST, "/reset", None, "")
            .await
            .map(drop)
    }
}

async fn create_database(cluster: &Cluster, name: &'static str) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await?;
    let statement = match name {
        "log" => "CREATE DATABASE log",
        _ => "CREATE DATABASE posthorn",
    };
    sqlx::query(statement).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

/// Without fan-out, one endpoint that wants another type: matching is done, and finds nothing.
async fn make_endpoints(
    scenario: &Scenario,
    server: SocketAddr,
    sink: SocketAddr,
    key: &str,
) -> anyhow::Result<()> {
    if scenario.fan_out == 0 {
        return program::endpoint(server, key, &format!("http://{sink}/hook/0"), "bench.other")
            .await;
    }
    for place in 0..scenario.fan_out {
        program::endpoint(
            server,
            key,
            &format!("http://{sink}/hook/{place}"),
            payload::EVENT_TYPE,
        )
        .await?;
    }
    Ok(())
}

//! `posthorn-bench`: how fast Posthorn is, told beside what the same machine does without it.
//!
//! A scenario runs load, server, PostgreSQL and sink on one machine and prints what came of it as a table and as JSON. Times
//! of one machine mean nothing on another; the ratio to `direct` (the load straight to the sink, interleaved in the same run),
//! CPU, WAL and counts do.
//!
//! Guarantees: every event is counted, so that lost and doubled ones show; everything listens on the loopback, and what a run
//! started it ends. Does not: reach into the server; it is a client of its API, a reader of PostgreSQL's counters and of
//! `/proc` (so it runs on Linux). Neighbours: none; `cargo xtask bench` builds and calls it.

#![expect(
    clippy::disallowed_methods,
    reason = "measuring is reading clocks; nothing here decides the fate of an event"
)]

mod baseline;
mod client;
mod cluster;
mod counters;
mod hostile;
mod judge;
mod latency;
mod load;
mod payload;
mod process;
mod program;
mod report;
mod scenario;
mod sink;
mod stage;
mod trial;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// Measures Posthorn on this machine.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Without one: s1.
    #[command(subcommand)]
    what: Option<What>,
}

/// A scenario with what the environment says and nothing else.
#[derive(Parser)]
struct Defaults {
    #[command(flatten)]
    args: stage::RunArgs,
}

#[derive(Subcommand)]
enum What {
    /// Receive webhooks and count them: `GET /count`, `POST /reset`, anything else is a webhook.
    Sink {
        /// Where to listen; port 0 takes a free one and prints it.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Submit events to a running server.
    Load(load::LoadArgs),
    /// Every scenario, one after the other. With `--json a.json` the reports are `a-s1.json` and so on.
    All(trial::TrialArgs),
    /// Steady load, one endpoint for each event.
    #[command(alias = "S1")]
    S1(stage::RunArgs),
    /// As s1, but no endpoint matches: accepting alone.
    #[command(alias = "S1b")]
    S1b(stage::RunArgs),
    /// As s1, but each event goes to ten endpoints.
    #[command(alias = "S2")]
    S2(stage::RunArgs),
    /// A tenth of the endpoints fail three times before they take an event.
    #[command(alias = "S4")]
    S4(trial::TrialArgs),
    /// One endpoint of a hundred never answers.
    #[command(alias = "S5")]
    S5(trial::TrialArgs),
    /// One tenant submits twice what the machine can do.
    #[command(alias = "S6")]
    S6(trial::TrialArgs),
    /// A backlog is opened while fresh events arrive.
    #[command(alias = "S7")]
    S7(trial::TrialArgs),
    /// Many events and attempts are retained already.
    #[command(alias = "S8")]
    S8(trial::TrialArgs),
    /// A snapshot is held throughout.
    #[command(alias = "S9")]
    S9(trial::TrialArgs),
    /// Many deliveries wait for their time.
    #[command(alias = "S10")]
    S10(trial::TrialArgs),
    /// The server, then PostgreSQL, are killed in the middle.
    #[command(alias = "S11")]
    S11(trial::TrialArgs),
    /// A thousand deliveries go to receivers that do everything wrong.
    #[command(alias = "S12")]
    S12(trial::TrialArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    // Dropping the work ends the processes that it has started.
    tokio::select! {
        done = work(asked()) => done,
        stopped = stopped() => stopped.and_then(|()| bail!("stopped by a signal")),
    }
}

/// What the command line asks for.
fn asked() -> What {
    Cli::parse()
        .what
        .unwrap_or_else(|| What::S1(Defaults::parse_from(["posthorn-bench"]).args))
}

async fn work(what: What) -> anyhow::Result<ExitCode> {
    match what {
        What::Sink { listen } => sink::run(listen).await.map(|()| ExitCode::SUCCESS),
        What::Load(args) => load::run(args).await.map(|()| ExitCode::SUCCESS),
        What::All(args) => all(&args).await,
        What::S1(args) => scenario::run(&scenario::STEADY, &args).await,
        What::S1b(args) => scenario::run(&scenario::ACCEPT_ONLY, &args).await,
        What::S2(args) => scenario::run(&scenario::FAN_OUT, &args).await,
        What::S4(args) => trial::failing(&args).await,
        What::S5(args) => trial::hanging(&args).await,
        What::S6(args) => trial::flood(&args).await,
        What::S7(args) => trial::backlog(&args).await,
        What::S8(args) => trial::retained(&args).await,
        What::S9(args) => trial::snapshot(&args).await,
        What::S10(args) => trial::waiting(&args).await,
        What::S11(args) => trial::crash(&args).await,
        What::S12(args) => trial::hostile(&args).await,
    }
}

/// Fails when a scenario did.
async fn all(args: &trial::TrialArgs) -> anyhow::Result<ExitCode> {
    let mut worst = ExitCode::SUCCESS;
    for (name, scenario) in SCENARIOS {
        let mut args = args.clone();
        args.run.json = args.run.json.map(|path| beside(&path, name));
        let done = Box::pin(work(scenario(args))).await?;
        if done != ExitCode::SUCCESS {
            worst = done;
        }
    }
    Ok(worst)
}

/// A scenario by what any may be told.
type Asked = fn(trial::TrialArgs) -> What;

/// Each scenario and how it is asked for.
const SCENARIOS: [(&str, Asked); 12] = [
    ("s1", |args| What::S1(args.run)),
    ("s1b", |args| What::S1b(args.run)),
    ("s2", |args| What::S2(args.run)),
    ("s4", What::S4),
    ("s5", What::S5),
    ("s6", What::S6),
    ("s7", What::S7),
    ("s8", What::S8),
    ("s9", What::S9),
    ("s10", What::S10),
    ("s11", What::S11),
    ("s12", What::S12),
];

/// `a.json` as `a-s1.json`.
fn beside(path: &Path, name: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{name}.json"))
}

/// Waits for SIGINT or SIGTERM.
async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
    }
}

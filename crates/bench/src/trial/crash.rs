//! S11: the server, then PostgreSQL, end without warning in the middle of a load.

use std::{
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::Method;

use super::{Outcome, TrialArgs, count, warm_up};
use crate::{
    client,
    load::{self, Ids, Load, Pace, Target},
    report::{Bound, Verdict},
    stage::{EndpointSpec, Stage},
};

/// How long what was accepted may stay away before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(1);

/// S11. The load goes on whatever happens; what it was refused it does not count, and every id that was accepted must come.
pub(crate) async fn crash(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let run = &args.run;
    let one = |_| vec![EndpointSpec::at("/hook/0".to_owned())];
    let mut stage = Stage::set(run, one).await?;
    let reached = warm_up(&stage, run, 0).await?;
    stage.reset_sink().await?;
    let ids = Ids::default();
    let load = Load {
        target: Target::Server {
            address: stage.server.address,
            keys: stage.keys.as_slice().into(),
        },
        duration: 3 * run.duration(),
        connections: run.connections,
        pace: Pace::Open {
            rate: reached / 3.0,
        },
        accepted: Some(Arc::clone(&ids)),
    };
    let loading = tokio::spawn(async move { load::send(&load).await });
    tokio::time::sleep(run.duration()).await;
    eprintln!("killing the server");
    let killed = Instant::now();
    stage.server.kill()?;
    let log = stage.cluster.folder().join("server.log");
    stage.server = stage.program.serve_at(stage.server.address, &log).await?;
    let server_back = delivers_again(&stage, killed).await?;
    tokio::time::sleep(run.duration().saturating_sub(killed.elapsed())).await;
    eprintln!("killing PostgreSQL");
    let killed = Instant::now();
    stage.cluster.crash()?;
    let database_back = delivers_again(&stage, killed).await?;
    let loaded = loading.await??;
    let lost = missing(&stage, &ids).await?;
    drained(&stage).await?;
    let seen = stage.count().await?;
    let mut outcome = Outcome::new("s11", Vec::new());
    outcome.verdicts = vec![Verdict::new("lost events", count(lost), Bound::AtMost, 0.0).gate()];
    for (what, value) in [
        ("accepted", loaded.accepted),
        ("refused", loaded.refused),
        ("failed", loaded.failed),
        ("doubled", seen.duplicates),
    ] {
        outcome.notes.insert(what, count(value));
    }
    outcome.judge(
        "delivering after the server's end, s",
        server_back,
        Bound::AtMost,
        15.0,
    );
    outcome.judge(
        "delivering after PostgreSQL's end, s",
        database_back,
        Bound::AtMost,
        15.0,
    );
    outcome.tell(&stage, run).await
}

/// Seconds from `killed` until something new is delivered.
async fn delivers_again(stage: &Stage, killed: Instant) -> anyhow::Result<f64> {
    // What was on its way has come by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = stage.count().await?.received;
    while killed.elapsed() < PATIENCE && stage.count().await?.received == before {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(killed.elapsed().as_secs_f64())
}

/// Waits until what was sent and not on record, when either was killed, has been sent again, or the patience ends.
async fn drained(stage: &Stage) -> anyhow::Result<()> {
    let begin = Instant::now();
    while stage.reader.unfinished().await?.0 > 0 && begin.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// How many accepted events have not come, when none is missing any more or the patience ends.
async fn missing(stage: &Stage, ids: &Mutex<Vec<String>>) -> anyhow::Result<u64> {
    let ids = ids.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let body = serde_json::to_string(&ids)?;
    let begin = Instant::now();
    loop {
        let missing: u64 =
            client::call(stage.sink.address, Method::POST, "/missing", None, &body).await?;
        if missing == 0 || begin.elapsed() > PATIENCE {
            return Ok(missing);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

//! S12: a thousand deliveries go to receivers that do everything wrong, while the others' go on.

use std::{process::ExitCode, time::Duration};

use serde_json::json;

use super::{Outcome, Pair, TrialArgs, beside::judge_delay, count, load_of, warm_up};
use crate::{
    hostile::{Hostile, KINDS},
    load::Pace,
    process,
    report::Bound,
    stage::{EndpointSpec, Measured, Stage},
};

/// Tenants whose endpoints are all of them hostile, one of each kind.
const TENANTS: usize = 10;
/// Deliveries to them in each stretch, each tried once.
const DELIVERIES: usize = 1000;
/// How long an attempt may last, and a little.
const LIMIT: Duration = Duration::from_secs(17);
/// How long nothing is done before memory is looked at again.
const REST: Duration = Duration::from_secs(30);
/// By how much it may have grown, in MiB.
const GROWTH: f64 = 64.0;

pub(crate) async fn hostile(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let hostile = Hostile::begin()?;
    let at = hostile.address;
    let stage = Stage::set(&args.run, |place| endpoints(place, at)).await?;
    let reached = warm_up(&stage, &args.run, TENANTS).await?;
    let others = load_of(
        &stage,
        &args.run,
        TENANTS,
        Pace::Open {
            rate: reached / 2.0,
        },
    );
    let events = count((DELIVERIES / KINDS.len()) as u64);
    let rate = events / args.run.duration().as_secs_f64().max(1.0);
    let to_hostile = Measured {
        keys: stage.keys.iter().take(TENANTS).cloned().collect(),
        fan_out: 0,
        ..load_of(&stage, &args.run, 0, Pace::Open { rate })
    };
    let begun = process::memory(stage.server.pid())?;
    let mut pairs = Vec::new();
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        let alone = stage.through_server(&others, None).await?;
        let beside = stage.through_server(&others, Some(&to_hostile)).await?;
        pairs.push(Pair { alone, beside });
        // The next stretch alone is alone.
        tokio::time::sleep(LIMIT).await;
    }
    tokio::time::sleep(REST).await;
    let rested = process::memory(stage.server.pid())?;
    let mut outcome = Outcome::new("s12", pairs);
    judge_delay(&mut outcome);
    let rounds = count(args.run.rounds as u64);
    outcome.judge(
        "requests that hostile receivers got, of a round",
        count(hostile.requests()) / rounds.max(1.0),
        Bound::AtLeast,
        count(DELIVERIES as u64),
    );
    let growth = (count(rested) - count(begun)) / 1024.0 / 1024.0;
    outcome.judge(
        "memory after a rest, more than at the start, MiB",
        growth,
        Bound::AtMost,
        GROWTH,
    );
    outcome.tell(&stage, &args.run).await
}

fn endpoints(place: usize, hostile: std::net::SocketAddr) -> Vec<EndpointSpec> {
    if place >= TENANTS {
        return super::steady(place);
    }
    let once = json!({ "kind": "fixed", "delay_ms": 1000, "max_attempts": 1 });
    KINDS
        .map(|kind| EndpointSpec {
            retry_policy: Some(once.clone()),
            ..EndpointSpec::at(format!("http://{hostile}/{kind}/{place}"))
        })
        .to_vec()
}

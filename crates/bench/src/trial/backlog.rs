//! S7: what was held back is opened while fresh events arrive.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::ensure;
use serde_json::json;

use super::{Outcome, Pair, TrialArgs, count, load_of, millis, warm_up};
use crate::{
    load::{self, Pace},
    report::Bound,
    stage::{EndpointSpec, Measured, Stage},
};

/// Tenants whose endpoint was paused.
const PAUSED: usize = 20;

/// S7. The backlog is submitted while its endpoints are paused; then they are enabled beside an open loop of a quarter of
/// what is reached.
pub(crate) async fn backlog(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let run = &args.run;
    ensure!(run.tenants > PAUSED, "s7 needs more than {PAUSED} tenants");
    let rows = args.rows.unwrap_or(40_000);
    let stage = Stage::set(run, |place| {
        let aside = || vec![EndpointSpec::at(format!("/aside/{place}"))];
        if place < PAUSED {
            aside()
        } else {
            super::steady(place)
        }
    })
    .await?;
    let reached = warm_up(&stage, run, PAUSED).await?;
    let fresh = load_of(
        &stage,
        run,
        PAUSED,
        Pace::Open {
            rate: reached / 4.0,
        },
    );
    let alone = stage.through_server(&fresh, None).await?;
    stage
        .change(PAUSED, |_| json!({ "state": "paused" }))
        .await?;
    eprintln!("holding back {rows} deliveries");
    let held = hold_back(&stage, args, rows).await?;
    let begin = Instant::now();
    let opened = async {
        stage
            .change(PAUSED, |_| json!({ "state": "enabled" }))
            .await?;
        let drained = stage.wait_until(|count| count.aside, held).await?;
        anyhow::Ok((begin.elapsed(), drained.aside))
    };
    // The drain is counted from the sink's own beginning, which the stretch sets.
    let (beside, opened) = tokio::join!(stage.through_server(&fresh, None), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        opened.await
    });
    let (beside, (took, drained)) = (beside?, opened?);
    let mut outcome = Outcome::new("s7", vec![Pair { alone, beside }]);
    // The second before, and the one in which the change is waited for.
    let seconds = took.as_secs_f64() - 1.0;
    let rate = load::rate(drained, seconds);
    outcome.notes.insert("held back", count(held));
    outcome.notes.insert("drained per second", rate);
    outcome.judge(
        "left of the backlog",
        count(held.saturating_sub(drained)),
        Bound::AtMost,
        0.0,
    );
    outcome.judge(
        "drained against reached",
        rate / reached,
        Bound::AtLeast,
        0.7,
    );
    let p99 = outcome.median(|pair| millis(pair.beside.sink.end_to_end.p99_us));
    outcome.judge("fresh end to end p99, ms", p99, Bound::AtMost, 1000.0);
    outcome.tell(&stage, run).await
}

/// Submits for the paused endpoints until so many are held.
async fn hold_back(stage: &Stage, args: &TrialArgs, rows: u64) -> anyhow::Result<u64> {
    let load = Measured {
        keys: stage.keys.iter().take(PAUSED).cloned().collect(),
        duration: Duration::from_secs(1),
        ..load_of(stage, &args.run, PAUSED, Pace::Closed)
    };
    let mut held = 0;
    while held < rows {
        let accepted = stage.submit(&load).await?.accepted;
        ensure!(accepted > 0, "nothing is accepted for paused endpoints");
        held += accepted;
    }
    Ok(held)
}

//! S4, S5 and S6: some tenants' endpoints fail or hang, or one tenant floods, and the others should not notice.

use std::process::ExitCode;

use serde_json::json;

use super::{Outcome, Pair, TrialArgs, load_of, millis, warm_up};
use crate::{
    load::Pace,
    report::Bound,
    stage::{EndpointSpec, Measured, Stage},
};

/// How long failed deliveries of S4 wait, in milliseconds.
const RETRY_MS: u64 = 1000;

/// The first `aside` tenants have an endpoint that is counted apart, the others a measured one.
fn endpoints(place: usize, aside: usize) -> Vec<EndpointSpec> {
    if place >= aside {
        return super::steady(place);
    }
    vec![EndpointSpec {
        retry_policy: Some(json!({ "kind": "fixed", "delay_ms": RETRY_MS, "max_attempts": 5 })),
        ..EndpointSpec::at(calm(place))
    }]
}

fn calm(place: usize) -> String {
    format!("/aside/{place}")
}

/// The load of the first `tenants`.
fn aside(stage: &Stage, args: &TrialArgs, tenants: usize, pace: Pace) -> Measured {
    let keys = stage.keys.iter().take(tenants).cloned().collect();
    Measured {
        keys,
        ..load_of(stage, &args.run, tenants, pace)
    }
}

/// S4: a tenth of the tenants have endpoints that fail three times before they take an event.
pub(crate) async fn failing(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let tenth = args.run.tenants.div_ceil(10);
    let stage = Stage::set(&args.run, |place| endpoints(place, tenth)).await?;
    warm_up(&stage, &args.run, tenth).await?;
    let mut healthy = load_of(&stage, &args.run, tenth, Pace::Closed);
    healthy.connections = args.run.connections * 9 / 10;
    let mut others = aside(&stage, args, tenth, Pace::Closed);
    others.connections = args.run.connections.div_ceil(10);
    let (mut pairs, mut late) = (Vec::new(), Vec::new());
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        stage.point(tenth, calm).await?;
        let alone = stage.through_server(&healthy, Some(&others)).await?;
        stage
            .point(tenth, |place| format!("/fail/3/{RETRY_MS}/{place}"))
            .await?;
        let beside = stage.through_server(&healthy, Some(&others)).await?;
        let expected = beside.aside.map_or(0, |load| load.accepted);
        let count = stage.wait_until(|count| count.aside, expected).await?;
        late.push(millis(count.late.p99_us));
        pairs.push(Pair { alone, beside });
    }
    let mut outcome = Outcome::new("s4", pairs);
    let goodput = outcome
        .median(|pair| pair.beside.delivered_per_second / pair.alone.delivered_per_second.max(1.0));
    outcome.judge(
        "healthy goodput against none failing",
        goodput,
        Bound::AtLeast,
        0.95,
    );
    let late = crate::report::median(late);
    outcome.judge("retries late, p99, ms", late, Bound::AtMost, 1000.0);
    outcome.tell(&stage, &args.run).await
}

/// S5: of a hundred endpoints one never answers.
pub(crate) async fn hanging(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(&args.run, |place| endpoints(place, 1)).await?;
    let reached = warm_up(&stage, &args.run, 1).await?;
    let pace = Pace::Open {
        rate: reached / 2.0,
    };
    let others = load_of(&stage, &args.run, 1, pace);
    let one = Pace::Open {
        rate: reached / 200.0,
    };
    let one = aside(&stage, args, 1, one);
    let mut pairs = Vec::new();
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        stage.point(1, calm).await?;
        let alone = stage.through_server(&others, Some(&one)).await?;
        stage.point(1, |_| "/hang/0".to_owned()).await?;
        let beside = stage.through_server(&others, Some(&one)).await?;
        pairs.push(Pair { alone, beside });
    }
    let mut outcome = Outcome::new("s5", pairs);
    judge_delay(&mut outcome);
    outcome.tell(&stage, &args.run).await
}

/// S6: one tenant submits twice what the machine can do.
pub(crate) async fn flood(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(&args.run, |place| endpoints(place, 1)).await?;
    let reached = warm_up(&stage, &args.run, 1).await?;
    let pace = Pace::Open {
        rate: reached / 5.0,
    };
    let others = load_of(&stage, &args.run, 1, pace);
    let mut one = aside(
        &stage,
        args,
        1,
        Pace::Open {
            rate: reached * 2.0,
        },
    );
    one.connections = args.run.connections * 4;
    let mut pairs = Vec::new();
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        let alone = stage.through_server(&others, None).await?;
        let beside = stage.through_server(&others, Some(&one)).await?;
        let expected = beside.aside.map_or(0, |load| load.accepted);
        stage.wait_until(|count| count.aside, expected).await?;
        pairs.push(Pair { alone, beside });
    }
    let mut outcome = Outcome::new("s6", pairs);
    judge_delay(&mut outcome);
    outcome.tell(&stage, &args.run).await
}

/// The others' end to end may be half as slow again as alone, or 25 ms.
pub(super) fn judge_delay(outcome: &mut Outcome) {
    let alone = outcome.median(|pair| millis(pair.alone.sink.end_to_end.p99_us));
    let beside = outcome.median(|pair| millis(pair.beside.sink.end_to_end.p99_us));
    let wanted = (1.5 * alone).max(25.0);
    outcome.judge(
        "the others' end to end p99, ms",
        beside,
        Bound::AtMost,
        wanted,
    );
}

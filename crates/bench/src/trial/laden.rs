//! S8, S9 and S10: the database holds much already, or somebody's old snapshot keeps it from cleaning up.

use std::process::ExitCode;

use sqlx::{Connection, PgConnection};

use super::{Outcome, Pair, TrialArgs, load_of, steady, warm_up};
use crate::{
    load::Pace,
    report::{Bound, Stretch},
    stage::Stage,
};

/// Rows that one statement inserts.
const CHUNK: u64 = 50_000;

/// Events of the last minutes of today, each delivered, in the order of their ids.
const RETAINED: &str = "\
    WITH whose AS MATERIALIZED (
        SELECT row_number() OVER () - 1 AS place, count(*) OVER () AS many, tenant_id, id FROM endpoints
    ), made AS (
        INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload)
        SELECT w.tenant_id,
               (lpad(to_hex((extract(epoch FROM greatest(date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC',
                                                          now() - interval '10 min')) * 1000)::bigint + n / 100), 12, '0')
                || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text || 'x'), 1, 15))::uuid,
               0, 'bench.steady', ARRAY[w.id], 0, 512, convert_to(repeat('x', 512), 'UTF8')
        FROM generate_series($1::bigint, $2::bigint - 1) AS n
        JOIN whose AS w ON w.place = n % w.many
        RETURNING tenant_id, id, endpoints
    )
    INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, status, at, duration_ms, remote_address, config_seq)
    SELECT tenant_id, endpoints[1], id, 1, (1::bigint << 32), 'success', 200, now(), 1, '127.0.0.1:49152', 1
    FROM made";

/// Deliveries that failed once and are due tomorrow.
const WAITING: &str = "\
    WITH whose AS MATERIALIZED (
        SELECT row_number() OVER () - 1 AS place, count(*) OVER () AS many, tenant_id, id FROM endpoints
    )
    INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
    SELECT w.tenant_id, w.id,
           (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0')
            || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text || 'x'), 1, 15))::uuid,
           get_byte(uuid_send(w.id), 15), now() + interval '1 day' + n * interval '1 ms', 2, 1, 1, now() + interval '5 days', 'retry'
    FROM generate_series($1::bigint, $2::bigint - 1) AS n
    JOIN whose AS w ON w.place = n % w.many";

/// S8: millions of events and attempts are retained.
pub(crate) async fn retained(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    laden("s8", args, RETAINED, args.rows.unwrap_or(250_000)).await
}

/// S10: a million deliveries wait for their time.
pub(crate) async fn waiting(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    laden("s10", args, WAITING, args.rows.unwrap_or(200_000)).await
}

/// All stretches alone come first: what is inserted stays.
async fn laden(
    scenario: &'static str,
    args: &TrialArgs,
    statement: &'static str,
    rows: u64,
) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(&args.run, steady).await?;
    warm_up(&stage, &args.run, 0).await?;
    let alone = stretches(&stage, args).await?;
    eprintln!("inserting {rows} rows");
    let mut connection = PgConnection::connect(&stage.cluster.url("posthorn")).await?;
    for begin in (0..rows).step_by(usize::try_from(CHUNK)?) {
        sqlx::query(statement)
            .bind(i64::try_from(begin)?)
            .bind(i64::try_from((begin + CHUNK).min(rows))?)
            .execute(&mut connection)
            .await?;
    }
    sqlx::query("VACUUM ANALYZE")
        .execute(&mut connection)
        .await?;
    let beside = stretches(&stage, args).await?;
    let pairs = alone.into_iter().zip(beside);
    let pairs = pairs
        .map(|(alone, beside)| Pair { alone, beside })
        .collect();
    let mut outcome = Outcome::new(scenario, pairs);
    outcome
        .notes
        .insert("rows there before", super::count(rows));
    judge_ratio(&mut outcome, 0.90);
    outcome.tell(&stage, &args.run).await
}

async fn stretches(stage: &Stage, args: &TrialArgs) -> anyhow::Result<Vec<Stretch>> {
    let load = load_of(stage, &args.run, 0, Pace::Closed);
    let mut stretches = Vec::new();
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        stretches.push(stage.through_server(&load, None).await?);
    }
    Ok(stretches)
}

/// S9: a snapshot is held throughout, and nothing that died since can be cleaned up.
pub(crate) async fn snapshot(args: &TrialArgs) -> anyhow::Result<ExitCode> {
    let stage = Stage::set(&args.run, steady).await?;
    warm_up(&stage, &args.run, 0).await?;
    let load = load_of(&stage, &args.run, 0, Pace::Closed);
    let mut pairs = Vec::new();
    for round in 1..=args.run.rounds {
        eprintln!("round {round} of {}", args.run.rounds);
        let alone = stage.through_server(&load, None).await?;
        let mut holder = PgConnection::connect(&stage.cluster.url("posthorn")).await?;
        let mut held = holder
            .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .await?;
        sqlx::query("SELECT count(*) FROM nodes")
            .execute(&mut *held)
            .await?;
        let beside = stage.through_server(&load, None).await?;
        held.rollback().await?;
        pairs.push(Pair { alone, beside });
    }
    let mut outcome = Outcome::new("s9", pairs);
    judge_ratio(&mut outcome, 0.95);
    outcome.tell(&stage, &args.run).await
}

fn judge_ratio(outcome: &mut Outcome, wanted: f64) {
    let ratio = outcome
        .median(|pair| pair.beside.delivered_per_second / pair.alone.delivered_per_second.max(1.0));
    outcome.judge("deliveries against alone", ratio, Bound::AtLeast, wanted);
}

//! The statements of a record transaction. Keys are sorted, so that two recorders take row locks in one order.

mod attempts;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use posthorn_domain::id::ApplicationId;
use sqlx::{Postgres, Transaction};
use uuid::Uuid;

use self::attempts::Inserted;
pub(super) use self::attempts::Sending;
use super::fact::{Attempt, Consequence, DeliveryKey, Fact, Source};
use crate::database::{DatabaseError, TenantTransaction};

type Tx<'a> = Transaction<'a, Postgres>;

/// Keys as three arrays of one length.
#[derive(Default)]
struct Keys {
    tenants: Vec<Uuid>,
    endpoints: Vec<Uuid>,
    events: Vec<Uuid>,
}

impl Keys {
    fn push(&mut self, key: DeliveryKey) {
        self.tenants.push(key.tenant.uuid());
        self.endpoints.push(key.endpoint.uuid());
        self.events.push(key.event.uuid());
    }

    fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }
}

/// What a batch comes to for one delivery, after folding.
struct Folded<'a> {
    source: Source,
    attempt: &'a Attempt,
    consequence: Consequence,
    event_type: &'a str,
    application: Option<ApplicationId>,
}

/// Inserts the attempts, then applies what follows from those that this transaction inserted.
pub(super) async fn attempts_and_consequences(
    tx: &mut Tx<'_>,
    facts: &[Fact],
    sending: Sending,
) -> Result<(), DatabaseError> {
    let attempts: Vec<_> = facts.iter().filter_map(attempted).collect();
    if attempts.is_empty() {
        return Ok(());
    }
    let inserted = attempts::insert(tx, &attempts, sending).await?;
    let folded = fold(facts, &inserted);
    delivered(tx, &folded).await?;
    retry_pending(tx, &folded).await?;
    retry_fresh(tx, &folded).await?;
    dead_pending(tx, &folded).await?;
    dead_fresh(tx, &folded).await
}

/// Inserts an attempt from which nothing follows.
pub(super) async fn attempt_alone(
    tx: &mut TenantTransaction,
    key: DeliveryKey,
    attempt: &Attempt,
) -> Result<(), DatabaseError> {
    attempts::insert(tx, &[(key, attempt)], Sending::First).await?;
    Ok(())
}

fn attempted(fact: &Fact) -> Option<(DeliveryKey, &Attempt)> {
    match fact {
        Fact::Attempted { key, attempt, .. } => Some((*key, attempt)),
        Fact::Parked { .. } => None,
    }
}

/// Folds the facts about each delivery: a success wins, else the last.
fn fold<'a>(facts: &'a [Fact], inserted: &Inserted) -> BTreeMap<DeliveryKey, Folded<'a>> {
    let mut folded: BTreeMap<DeliveryKey, Folded<'a>> = BTreeMap::new();
    for fact in facts {
        let Fact::Attempted {
            key,
            attempt,
            source,
            consequence,
            event_type,
            application,
        } = fact
        else {
            continue;
        };
        if !inserted.has(*key, attempt) {
            continue;
        }
        let done = folded
            .get(key)
            .is_some_and(|earlier| matches!(earlier.consequence, Consequence::Delivered));
        if !done {
            let (source, consequence, application) = (*source, *consequence, *application);
            folded.insert(
                *key,
                Folded {
                    source,
                    attempt,
                    consequence,
                    event_type,
                    application,
                },
            );
        }
    }
    folded
}

fn int(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A success deletes the pending row and the dead letter, always.
///
/// Whoever lays a delivery in the dead letters meanwhile holds its pending row until the letter is there, and a statement sees
/// only what was there when it began: so of deliveries that came from a row, the rows are deleted first, by a
/// statement of their own, which waits.
async fn delivered(
    tx: &mut Tx<'_>,
    folded: &BTreeMap<DeliveryKey, Folded<'_>>,
) -> Result<(), DatabaseError> {
    let (mut keys, mut rows) = (Keys::default(), Keys::default());
    for (key, fold) in folded {
        if matches!(fold.consequence, Consequence::Delivered) {
            keys.push(*key);
            if fold.source == Source::Pending {
                rows.push(*key);
            }
        }
    }
    if keys.is_empty() {
        return Ok(());
    }
    if !rows.is_empty() {
        sqlx::query!(
            "DELETE FROM pending AS p
             USING unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS k (tenant_id, endpoint_id, event_id)
             WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = k.endpoint_id AND p.event_id = k.event_id",
            &rows.tenants,
            &rows.endpoints,
            &rows.events,
        )
        .execute(&mut **tx)
        .await?;
    }
    sqlx::query!(
        "WITH k AS MATERIALIZED (
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) AS k (tenant_id, endpoint_id, event_id)
         ), done AS (
             DELETE FROM pending AS p USING k
             WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = k.endpoint_id AND p.event_id = k.event_id
         )
         DELETE FROM dead_letters AS d USING k
         WHERE d.tenant_id = k.tenant_id AND d.endpoint_id = k.endpoint_id AND d.event_id = k.event_id",
        &keys.tenants,
        &keys.endpoints,
        &keys.events,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Columns of the retries from one source.
#[derive(Default)]
struct Retries {
    keys: Keys,
    shards: Vec<i16>,
    n: Vec<i32>,
    steps: Vec<i32>,
    after: Vec<f64>,
    ends_at: Vec<DateTime<Utc>>,
}

impl Retries {
    fn of(folded: &BTreeMap<DeliveryKey, Folded<'_>>, source: Source) -> Self {
        let mut retries = Self::default();
        for (key, fold) in folded {
            let Consequence::Retry(retry) = fold.consequence else {
                continue;
            };
            if fold.source == source {
                retries.keys.push(*key);
                retries.shards.push(i16::from(key.endpoint.shard()));
                retries.n.push(int(fold.attempt.n));
                retries.steps.push(int(retry.step));
                retries.after.push(retry.after.as_secs_f64());
                retries.ends_at.push(retry.ends_at);
            }
        }
        retries
    }
}

/// Moves a pending row only where its number is still the attempt's own.
async fn retry_pending(
    tx: &mut Tx<'_>,
    folded: &BTreeMap<DeliveryKey, Folded<'_>>,
) -> Result<(), DatabaseError> {
    let r = Retries::of(folded, Source::Pending);
    if r.keys.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE pending AS p
         SET n = k.n + 1, step = k.step, then_due = NULL, why = 'retry',
             due = LEAST(now() + make_interval(secs => k.after), p.ends_at)
         FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::integer[], $5::integer[], $6::double precision[])
             AS k (tenant_id, endpoint_id, event_id, n, step, after)
         WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = k.endpoint_id AND p.event_id = k.event_id AND p.n = k.n",
        &r.keys.tenants,
        &r.keys.endpoints,
        &r.keys.events,
        &r.n,
        &r.steps,
        &r.after,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Inserts a pending row only if there is none and nothing has ended the delivery; and, as for whatever becomes pending,
/// only if the event is above the floor of retention or kept beyond it ([`crate::housekeeping`], INV-2).
async fn retry_fresh(
    tx: &mut Tx<'_>,
    folded: &BTreeMap<DeliveryKey, Folded<'_>>,
) -> Result<(), DatabaseError> {
    let r = Retries::of(folded, Source::Fresh);
    if r.keys.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "WITH gate AS MATERIALIZED (
             SELECT floor FROM retention, pg_advisory_xact_lock_shared(hashtext('posthorn_gate')) FOR KEY SHARE OF retention
         )
         INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
         SELECT k.tenant_id, k.endpoint_id, k.event_id, k.shard,
                LEAST(now() + make_interval(secs => k.after), k.ends_at), k.n + 1, k.step, 1, k.ends_at, 'retry'
         FROM gate
         CROSS JOIN unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::smallint[], $5::integer[], $6::integer[], $7::double precision[],
                     $8::timestamptz[]) AS k (tenant_id, endpoint_id, event_id, shard, n, step, after, ends_at)
         LEFT JOIN LATERAL (SELECT 1 AS ended FROM attempts AS a
                            WHERE a.tenant_id = k.tenant_id AND a.endpoint_id = k.endpoint_id AND a.event_id = k.event_id
                              AND a.outcome <> 'failed' LIMIT 1) AS ended ON true
         LEFT JOIN LATERAL (SELECT 1 AS dead FROM dead_letters AS d
                            WHERE d.tenant_id = k.tenant_id AND d.endpoint_id = k.endpoint_id AND d.event_id = k.event_id
                            LIMIT 1) AS dead ON true
         WHERE ended.ended IS NULL AND dead.dead IS NULL
           AND (k.event_id > gate.floor OR EXISTS (SELECT 1 FROM kept_events AS e WHERE e.tenant_id = k.tenant_id AND e.id = k.event_id))
         ON CONFLICT DO NOTHING",
        &r.keys.tenants,
        &r.keys.endpoints,
        &r.keys.events,
        &r.shards,
        &r.n,
        &r.steps,
        &r.after,
        &r.ends_at,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Columns of the deaths from one source.
#[derive(Default)]
struct Deaths<'a> {
    keys: Keys,
    n: Vec<i32>,
    types: Vec<&'a str>,
    applications: Vec<Option<Uuid>>,
    causes: Vec<&'static str>,
}

impl<'a> Deaths<'a> {
    fn of(folded: &BTreeMap<DeliveryKey, Folded<'a>>, source: Source) -> Self {
        let mut deaths = Self::default();
        for (key, fold) in folded {
            let Consequence::Dead(cause) = fold.consequence else {
                continue;
            };
            if fold.source == source {
                deaths.keys.push(*key);
                deaths.n.push(int(fold.attempt.n));
                deaths.types.push(fold.event_type);
                deaths
                    .applications
                    .push(fold.application.map(ApplicationId::uuid));
                deaths.causes.push(cause.as_str());
            }
        }
        deaths
    }
}

/// A dead letter is written only if the pending row was still the attempt's own and no success is on record.
async fn dead_pending(
    tx: &mut Tx<'_>,
    folded: &BTreeMap<DeliveryKey, Folded<'_>>,
) -> Result<(), DatabaseError> {
    let d = Deaths::of(folded, Source::Pending);
    if d.keys.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "WITH died AS (
             DELETE FROM pending AS p
             USING unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::integer[], $5::text[], $6::uuid[], $7::text[])
                 AS k (tenant_id, endpoint_id, event_id, n, type, application_id, cause)
             WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = k.endpoint_id AND p.event_id = k.event_id AND p.n = k.n
             RETURNING p.tenant_id, p.endpoint_id, p.event_id, k.type, k.application_id, k.cause, p.replay_id
         )
         INSERT INTO dead_letters AS d (tenant_id, endpoint_id, event_id, type, application_id, cause, deaths, replay_id, died_at)
         SELECT died.tenant_id, died.endpoint_id, died.event_id, type, application_id, cause, 1, replay_id, now()
         FROM died
         LEFT JOIN LATERAL (SELECT 1 AS success FROM attempts AS a
                            WHERE a.tenant_id = died.tenant_id AND a.endpoint_id = died.endpoint_id
                              AND a.event_id = died.event_id AND a.outcome = 'success' LIMIT 1) AS success ON true
         WHERE success.success IS NULL
         ON CONFLICT (tenant_id, endpoint_id, event_id) DO UPDATE
         SET cause = excluded.cause, deaths = d.deaths + 1, replay_id = excluded.replay_id, died_at = excluded.died_at",
        &d.keys.tenants,
        &d.keys.endpoints,
        &d.keys.events,
        &d.n,
        &d.types as _,
        &d.applications as _,
        &d.causes as _,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// A first attempt that was the last: only if nobody else has the delivery and nothing has ended it.
async fn dead_fresh(
    tx: &mut Tx<'_>,
    folded: &BTreeMap<DeliveryKey, Folded<'_>>,
) -> Result<(), DatabaseError> {
    let d = Deaths::of(folded, Source::Fresh);
    if d.keys.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, application_id, cause, deaths, died_at)
         SELECT k.tenant_id, k.endpoint_id, k.event_id, k.type, k.application_id, k.cause, 1, now()
         FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::text[], $5::uuid[], $6::text[])
             AS k (tenant_id, endpoint_id, event_id, type, application_id, cause)
         LEFT JOIN LATERAL (SELECT 1 AS ended FROM attempts AS a
                            WHERE a.tenant_id = k.tenant_id AND a.endpoint_id = k.endpoint_id AND a.event_id = k.event_id
                              AND a.outcome <> 'failed' LIMIT 1) AS ended ON true
         LEFT JOIN LATERAL (SELECT 1 AS waits FROM pending AS p
                            WHERE p.tenant_id = k.tenant_id AND p.endpoint_id = k.endpoint_id AND p.event_id = k.event_id
                            LIMIT 1) AS waits ON true
         WHERE ended.ended IS NULL AND waits.waits IS NULL
         ON CONFLICT DO NOTHING",
        &d.keys.tenants,
        &d.keys.endpoints,
        &d.keys.events,
        &d.types as _,
        &d.applications as _,
        &d.causes as _,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Fresh deliveries that are not being sent become pending rows.
pub(super) async fn parked(tx: &mut Tx<'_>, facts: &[Fact]) -> Result<(), DatabaseError> {
    let mut rows: Vec<_> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Parked { key, parked } => Some((*key, *parked)),
            Fact::Attempted { .. } => None,
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(|(key, _)| *key);
    let mut keys = Keys::default();
    let (mut shards, mut due, mut ends_at, mut why) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (key, parked) in rows {
        keys.push(key);
        shards.push(i16::from(key.endpoint.shard()));
        due.push(parked.due);
        ends_at.push(parked.ends_at);
        why.push(parked.why.as_str());
    }
    sqlx::query!(
        "WITH gate AS MATERIALIZED (
             SELECT floor FROM retention, pg_advisory_xact_lock_shared(hashtext('posthorn_gate')) FOR KEY SHARE OF retention
         )
         INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
         SELECT k.tenant_id, k.endpoint_id, k.event_id, k.shard, CASE WHEN k.due THEN now() END, 1, 0, 1, k.ends_at, k.why
         FROM gate
         CROSS JOIN unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::smallint[], $5::boolean[], $6::timestamptz[], $7::text[])
             AS k (tenant_id, endpoint_id, event_id, shard, due, ends_at, why)
         LEFT JOIN LATERAL (SELECT 1 AS made FROM attempts AS a
                            WHERE a.tenant_id = k.tenant_id AND a.endpoint_id = k.endpoint_id AND a.event_id = k.event_id
                            LIMIT 1) AS made ON true
         WHERE made.made IS NULL
           AND (k.event_id > gate.floor OR EXISTS (SELECT 1 FROM kept_events AS e WHERE e.tenant_id = k.tenant_id AND e.id = k.event_id))
         ON CONFLICT DO NOTHING",
        &keys.tenants,
        &keys.endpoints,
        &keys.events,
        &shards,
        &due,
        &ends_at,
        &why as _,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

//! `log`: PostgreSQL alone, appending the rows that the server appends, in batches of the size that the server made.
//!
//! It is the most that any server could do that keeps what Posthorn keeps, in the way that Posthorn keeps it.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use sqlx::{PgPool, postgres::PgPoolOptions};
use uuid::Uuid;

use crate::payload;

/// Rows of one statement, and how much of it there is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batches {
    /// Events in each flush.
    pub(crate) events: usize,
    /// Attempts in each record batch.
    pub(crate) attempts: usize,
    /// Attempts for each event.
    pub(crate) fan_out: usize,
}

/// A database with the server's schema that nobody else uses.
pub(crate) struct Baseline {
    pool: PgPool,
}

/// One event with its endpoints.
#[derive(Clone, Copy)]
struct Fact {
    tenant: Uuid,
    event: Uuid,
    endpoint: Uuid,
}

impl Baseline {
    /// Connects as superuser: row-level security is not what is measured.
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self {
            pool: PgPoolOptions::new().max_connections(2).connect(url).await?,
        })
    }

    /// Appends for so long; returns events per second, each with its attempts.
    pub(crate) async fn run(&self, batches: Batches, duration: Duration) -> anyhow::Result<f64> {
        let (flushed, mut to_record) = tokio::sync::mpsc::channel::<Vec<Fact>>(1);
        let begin = Instant::now();
        let flushing = async {
            while begin.elapsed() < duration {
                let facts: Vec<_> = (0..batches.events.max(1)).map(|_| Fact::new()).collect();
                self.flush(&facts).await?;
                if flushed.send(facts).await.is_err() {
                    break;
                }
            }
            drop(flushed);
            anyhow::Ok(())
        };
        let recording = async {
            let (mut events, mut waiting) = (0, Vec::new());
            while let Some(facts) = to_record.recv().await {
                events += facts.len() as u64;
                waiting.extend(
                    facts
                        .into_iter()
                        .flat_map(|fact| std::iter::repeat_n(fact, batches.fan_out)),
                );
                while waiting.len() >= batches.attempts.max(1) {
                    let batch: Vec<_> = waiting.drain(..batches.attempts.max(1)).collect();
                    self.record(&batch).await?;
                }
            }
            self.record(&waiting).await?;
            anyhow::Ok(events)
        };
        let ((), events) = tokio::try_join!(flushing, recording)?;
        Ok(crate::load::rate(events, begin.elapsed().as_secs_f64()))
    }

    async fn flush(&self, facts: &[Fact]) -> anyhow::Result<()> {
        let payload = payload::payload(payload::now_us()).into_bytes();
        sqlx::query(
            "INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload) \
             SELECT t, i, 1, $5, ARRAY[e], 0, octet_length(p), p \
             FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[]) AS r (t, i, e, p)",
        )
        .bind(facts.iter().map(|fact| fact.tenant).collect::<Vec<_>>())
        .bind(facts.iter().map(|fact| fact.event).collect::<Vec<_>>())
        .bind(facts.iter().map(|fact| fact.endpoint).collect::<Vec<_>>())
        .bind(vec![payload; facts.len()])
        .bind(payload::EVENT_TYPE)
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    async fn record(&self, facts: &[Fact]) -> anyhow::Result<()> {
        if facts.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, status, at, duration_ms, \
                                   remote_address, config_seq) \
             SELECT t, e, i, 1, (1::bigint << 32) + (x & 4294967295), 'success', 200, now(), 1, $5, 1 \
             FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bigint[]) AS r (t, e, i, x)",
        )
        .bind(facts.iter().map(|fact| fact.tenant).collect::<Vec<_>>())
        .bind(facts.iter().map(|fact| fact.endpoint).collect::<Vec<_>>())
        .bind(facts.iter().map(|fact| fact.event).collect::<Vec<_>>())
        .bind(facts.iter().map(|_| random()).collect::<Vec<_>>())
        .bind(std::net::SocketAddr::new(IpAddr::from([127, 0, 0, 1]), 49_152).to_string())
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

impl Fact {
    fn new() -> Self {
        // A hundred tenants with an endpoint each, as in the scenario.
        let place = u128::try_from(random().rem_euclid(100)).unwrap_or(0);
        Self {
            tenant: Uuid::from_u128(place),
            event: Uuid::now_v7(),
            endpoint: Uuid::from_u128(place << 64),
        }
    }
}

fn random() -> i64 {
    let (_, low) = Uuid::now_v7().as_u64_pair();
    i64::from_ne_bytes(low.to_ne_bytes())
}

//! PostgreSQL's own counters, read before and after a run.

use anyhow::Context;
use serde::Serialize;
use sqlx::{PgPool, Row, postgres::PgPoolOptions};

/// Counters of a cluster at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    wal_bytes: i64,
    transactions: i64,
    /// None where PostgreSQL does not count them.
    statements: Option<i64>,
    event_flushes: Option<i64>,
    record_batches: Option<i64>,
}

/// What a run added to them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Spent {
    /// Bytes of WAL.
    pub(crate) wal_bytes: u64,
    /// Transactions, committed or not.
    pub(crate) transactions: u64,
    /// Statements, if PostgreSQL counts them.
    pub(crate) statements: Option<u64>,
    /// Statements that inserted events.
    pub(crate) event_flushes: Option<u64>,
    /// Statements that inserted attempts.
    pub(crate) record_batches: Option<u64>,
}

impl Counters {
    /// What has been added since `before`.
    pub(crate) fn since(self, before: Self) -> Spent {
        let added = |now: i64, then: i64| u64::try_from(now - then).unwrap_or(0);
        let added_if = |now: Option<i64>, then: Option<i64>| Some(added(now?, then?));
        Spent {
            wal_bytes: added(self.wal_bytes, before.wal_bytes),
            transactions: added(self.transactions, before.transactions),
            statements: added_if(self.statements, before.statements),
            event_flushes: added_if(self.event_flushes, before.event_flushes),
            record_batches: added_if(self.record_batches, before.record_batches),
        }
    }
}

/// Reads counters of one database.
pub(crate) struct Reader {
    pool: PgPool,
    counts_statements: bool,
}

impl Reader {
    /// Connects as superuser.
    pub(crate) async fn connect(url: &str, counts_statements: bool) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect(url)
            .await
            .context("connecting to read counters")?;
        if counts_statements {
            sqlx::query("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
                .execute(&pool)
                .await?;
        }
        Ok(Self {
            pool,
            counts_statements,
        })
    }

    /// Reads them. A checkpoint goes first, so that full page images do not fall into one run and not into another.
    pub(crate) async fn begin(&self) -> anyhow::Result<Counters> {
        sqlx::query("CHECKPOINT").execute(&self.pool).await?;
        self.read().await
    }

    /// Reads them.
    pub(crate) async fn read(&self) -> anyhow::Result<Counters> {
        let row = sqlx::query(
            "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint, \
                    (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database())",
        )
        .fetch_one(&self.pool)
        .await?;
        let (statements, event_flushes, record_batches) = self.statements().await?;
        Ok(Counters {
            wal_bytes: row.try_get(0)?,
            transactions: row.try_get(1)?,
            statements,
            event_flushes,
            record_batches,
        })
    }

    async fn statements(&self) -> anyhow::Result<(Option<i64>, Option<i64>, Option<i64>)> {
        if !self.counts_statements {
            return Ok((None, None, None));
        }
        let row = sqlx::query(
            "SELECT coalesce(sum(calls), 0)::bigint, \
                    coalesce(sum(calls) FILTER (WHERE query ~* 'insert into events'), 0)::bigint, \
                    coalesce(sum(calls) FILTER (WHERE query ~* 'insert into attempts'), 0)::bigint \
             FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_one(&self.pool)
        .await?;
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    }

    /// Dead row versions over all tables.
    pub(crate) async fn dead_tuples(&self) -> anyhow::Result<u64> {
        let row =
            sqlx::query("SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables")
                .fetch_one(&self.pool)
                .await?;
        Ok(u64::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0))
    }

    /// Rows of `pending`, and dead letters: after a run without faults there are none.
    pub(crate) async fn unfinished(&self) -> anyhow::Result<(u64, u64)> {
        let row = sqlx::query(
            "SELECT (SELECT count(*) FROM pending), (SELECT count(*) FROM dead_letters)",
        )
        .fetch_one(&self.pool)
        .await?;
        let count = |column: usize| -> anyhow::Result<u64> {
            Ok(u64::try_from(row.try_get::<i64, _>(column)?).unwrap_or(0))
        };
        Ok((count(0)?, count(1)?))
    }
}

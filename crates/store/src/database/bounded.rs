//! Statements with a deadline on this side, too (INV-11).
//!
//! PostgreSQL bounds its own statements, but not a connection on which nobody answers any more. Every statement of the engine
//! that is sent through [`Bounded`] is given up a little later than PostgreSQL would have given it up, its connection with it;
//! what it came to is unknown. Steps that bound themselves as a whole (flush, record, reading for sending) use a bare connection.

use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{self, Stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use posthorn_domain::limits::STEP;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{
    Connection as _, Describe, Either, Error, Execute, Executor, PgConnection, PgPool, Postgres,
    SqlStr, Transaction,
};

use super::answered::{answered, is_unanswered, silence};

type Answer<'e, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'e>>;
type Answers<'e, T> = Pin<Box<dyn Stream<Item = Result<T, Error>> + Send + 'e>>;

/// Where one statement is sent.
#[derive(Debug)]
pub(crate) enum Bounded<'c> {
    /// On a connection of this pool, which bounds the wait for one itself.
    Pool(&'c PgPool),
    /// On this connection, unless it is lost.
    Own(&'c mut PgConnection, &'c mut Lost),
}

/// Whether a connection was given up: nothing more is sent on it.
#[derive(Debug, Default)]
pub(crate) struct Lost(bool);

/// A connection outside the pools whose statements all have a deadline.
#[derive(Debug)]
pub(crate) struct BoundedConnection {
    connection: PgConnection,
    lost: Lost,
}

impl BoundedConnection {
    pub(super) fn new(connection: PgConnection) -> Self {
        Self {
            connection,
            lost: Lost::default(),
        }
    }

    /// For one statement.
    pub(crate) fn bounded(&mut self) -> Bounded<'_> {
        Bounded::Own(&mut self.connection, &mut self.lost)
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<BoundedTransaction<'_>, Error> {
        let Self { connection, lost } = self;
        lost.refuse()?;
        let begun = answered(STEP, connection.begin()).await;
        let transaction = lost.noted(begun)?;
        Ok(BoundedTransaction { transaction, lost })
    }
}

/// A transaction whose statements all have a deadline. Dropped, it is rolled back.
pub(crate) struct BoundedTransaction<'c> {
    transaction: Transaction<'c, Postgres>,
    lost: &'c mut Lost,
}

impl BoundedTransaction<'_> {
    /// For one statement.
    pub(crate) fn bounded(&mut self) -> Bounded<'_> {
        Bounded::Own(&mut self.transaction, self.lost)
    }

    /// Commits. Given up, the outcome is unknown.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let committed = answered(STEP, self.transaction.commit()).await;
        self.lost.noted(committed)
    }
}

impl Lost {
    fn refuse(&self) -> Result<(), Error> {
        if self.0 {
            Err(silence().into())
        } else {
            Ok(())
        }
    }

    fn noted<T>(&mut self, answer: Result<T, Error>) -> Result<T, Error> {
        self.0 = answer.as_ref().is_err_and(is_unanswered);
        answer
    }
}

/// A connection for one statement.
enum Held<'c> {
    Pooled(PoolConnection<Postgres>),
    Own(&'c mut PgConnection, &'c mut Lost),
}

impl Held<'_> {
    fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Pooled(connection) => connection,
            Self::Own(connection, _) => connection,
        }
    }

    /// One that was given up leaves its pool at once: asking it whether it lives would cost its place there some seconds more.
    fn after<T>(self, answer: Result<T, Error>) -> Result<T, Error> {
        match self {
            Self::Own(_, lost) => lost.noted(answer),
            Self::Pooled(connection) => {
                if answer.as_ref().is_err_and(is_unanswered) {
                    drop(connection.detach());
                }
                answer
            }
        }
    }
}

impl<'c> Bounded<'c> {
    async fn held(self) -> Result<Held<'c>, Error> {
        match self {
            Self::Pool(pool) => pool.acquire().await.map(Held::Pooled),
            Self::Own(connection, lost) => {
                lost.refuse()?;
                Ok(Held::Own(connection, lost))
            }
        }
    }

    async fn rows<'q, E>(self, query: E) -> Result<Vec<Either<PgQueryResult, PgRow>>, Error>
    where
        E: 'q + Execute<'q, Postgres>,
    {
        let mut held = self.held().await?;
        let rows = answered(STEP, held.connection().fetch_many(query).try_collect()).await;
        held.after(rows)
    }
}

impl<'c> Executor<'c> for Bounded<'c> {
    type Database = Postgres;

    /// All rows are there before the first is handed out.
    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Answers<'e, Either<PgQueryResult, PgRow>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        stream::once(self.rows(query))
            .map_ok(|rows| stream::iter(rows.into_iter().map(Ok)))
            .try_flatten()
            .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> Answer<'e, Option<PgRow>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async move {
            let mut held = self.held().await?;
            let row = answered(STEP, held.connection().fetch_optional(query)).await;
            held.after(row)
        })
    }

    fn prepare_with<'e>(self, sql: SqlStr, parameters: &'e [PgTypeInfo]) -> Answer<'e, PgStatement>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let mut held = self.held().await?;
            let statement = answered(STEP, held.connection().prepare_with(sql, parameters)).await;
            held.after(statement)
        })
    }

    fn describe<'e>(self, sql: SqlStr) -> Answer<'e, Describe<Postgres>>
    where
        'c: 'e,
    {
        Box::pin(async move {
            let mut held = self.held().await?;
            let described = answered(STEP, held.connection().describe(sql)).await;
            held.after(described)
        })
    }
}

//! Rows with keys: answering those that lost one, and finding out which key a flush had to wait for.

use posthorn_domain::limits;

use super::{Lane, PAUSE};
use crate::accept::AcceptError;
use crate::accept::flush::Row;
use crate::accept::keys::{self, Standing};
use crate::database::{DatabaseError, answered};

impl Lane {
    /// Answers the rows that lost a key: their event, or another, is in the log by an earlier request.
    pub(super) async fn settle_keys(&mut self, rows: Vec<Row>) -> Vec<Row> {
        if rows.iter().all(|row| row.new.keys.is_none()) {
            return rows;
        }
        let Some(connection) = self.connection.as_mut() else {
            return rows;
        };
        let settled = answered(limits::FLUSH_WAIT, keys::settle(connection, &rows)).await;
        let mut standings = match settled {
            Ok(standings) => standings,
            Err(error) => {
                self.gone(&error, rows.len());
                self.connection = None;
                self.clock.sleep(PAUSE).await;
                return rows;
            }
        };
        let mut left = Vec::new();
        for row in rows {
            match standings.remove(&row.id.uuid()) {
                Some(Standing::First(accepted)) => {
                    self.forget(&row);
                    let _gone = row.reply.send(Ok(accepted));
                }
                Some(Standing::Refused(error)) => self.turn_away(vec![row], error),
                Some(Standing::Free) | None => left.push(row),
            }
        }
        left
    }

    /// Nothing of these rows was written by this round: another flush was taking one of their keys, and took its time.
    /// Rows without keys do not wait for it, the others find out by halves which it was, and what a first flush still
    /// under way may hold itself is asked for until it can be had.
    pub(super) async fn contest(&mut self, rows: Vec<Row>, error: &DatabaseError) -> Vec<Vec<Row>> {
        if rows.iter().all(|row| row.new.keys.is_none()) {
            return self.without_database(rows, error).await;
        }
        let now = self.clock.monotonic();
        let (mut keyed, plain): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.new.keys.is_some());
        if keyed.iter().all(|row| row.contested.is_none()) {
            tracing::warn!(%error, rows = keyed.len(), "a flush had to wait for another one's keys");
        }
        for row in &mut keyed {
            row.contested.get_or_insert(now);
        }
        let (doubtful, mut certain): (Vec<_>, Vec<_>) =
            keyed.into_iter().partition(|row| row.doubtful);
        let overdue = |row: &Row| {
            row.contested
                .is_some_and(|since| now.duration_since(since) > limits::KEY_CONTEST)
        };
        if (certain.len() == 1 && doubtful.is_empty() && plain.is_empty())
            || certain.iter().any(overdue)
        {
            self.turn_away(std::mem::take(&mut certain), AcceptError::KeyInUse);
        }
        if certain.is_empty() && plain.is_empty() {
            self.clock.sleep(PAUSE).await;
        }
        let rest = certain.split_off(certain.len() / 2);
        vec![plain, certain, rest, doubtful]
    }
}

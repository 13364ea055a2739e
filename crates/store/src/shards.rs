//! Shards: who sends the pending rows of each of 256 slots.
//!
//! Every node that sends has a part of them, ceil(256 / nodes that send), and takes free ones up to it. A shard is free
//! when nobody owns it or its owner's stream is closed; it never changes hands otherwise, so a node that has more than its
//! part gives some back. It first stops sending their rows, and gives a shard back only when none of its
//! deliveries is under way or waits to be recorded: so without a fault nothing is sent twice (INV-6).
//!
//! Guarantees that two open streams never own the same shard. Does not decide what a delivery's home means for it:
//! that is the worker's part.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use sqlx::{Postgres, Transaction};

use crate::clock::Clock;
use crate::database::{Database, DatabaseError};
use crate::lease::give_way;
use crate::stream::{Sending, StreamKeeper};

/// The shards that this node owns. Cheap to clone.
#[derive(Clone)]
pub struct Shards {
    keeper: Arc<StreamKeeper>,
    kept: Arc<ArcSwap<Kept>>,
}

/// What is kept, and by which stream: a stream that another node closed owns nothing any more, whoever has opened the
/// next one meanwhile.
#[derive(Default)]
struct Kept {
    stream: Option<i64>,
    shards: Arc<Vec<i16>>,
}

impl Shards {
    /// None yet.
    #[must_use]
    pub fn new(keeper: Arc<StreamKeeper>) -> Self {
        Self {
            keeper,
            kept: Arc::default(),
        }
    }

    /// The shards that the present stream owned at its last renewal, but for those that it is giving back.
    #[must_use]
    pub fn owned(&self) -> Arc<Vec<i16>> {
        let kept = self.kept.load();
        let present = self.keeper.present().map(|stream| stream.id());
        if kept.stream == present {
            Arc::clone(&kept.shards)
        } else {
            Arc::default()
        }
    }

    /// Whether the pending rows of this endpoint are this node's to send.
    #[must_use]
    pub fn owns(&self, endpoint: EndpointId) -> bool {
        self.owned()
            .binary_search(&i16::from(endpoint.shard()))
            .is_ok()
    }

    /// The same, and whether the lease lets a request begin now.
    #[must_use]
    pub fn may_begin(&self, endpoint: EndpointId, clock: &Clock) -> bool {
        let present = self.keeper.present();
        present.is_some_and(|stream| stream.may_begin(clock)) && self.owns(endpoint)
    }

    /// From here on this node gives back what it owns, and takes no more.
    pub fn leave(&self) {
        self.keeper.send_no_more();
    }

    /// Whether this node sends what it accepts.
    #[must_use]
    pub fn sending(&self) -> Sending {
        self.keeper.sending()
    }

    /// Those of these shards that the stream does not know as its own yet.
    #[must_use]
    pub fn new_among(&self, shards: &[i16]) -> Vec<i16> {
        let known = self.owned();
        let new = shards
            .iter()
            .filter(|shard| known.binary_search(shard).is_err());
        new.copied().collect()
    }

    /// The stream keeps these, in ascending order. Answers whether that is less than before.
    #[must_use]
    pub fn keep(&self, stream: i64, shards: Vec<i16>) -> bool {
        let before = self.owned();
        let fewer = before
            .iter()
            .any(|shard| shards.binary_search(shard).is_err());
        self.kept.store(Arc::new(Kept {
            stream: Some(stream),
            shards: Arc::new(shards),
        }));
        fewer
    }
}

/// What a stream owns, and what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// The shards that it owns, in ascending order.
    pub owned: Vec<i16>,
    /// How many it should own at most.
    pub part: usize,
    /// For how long no other stream has lived, and so sent anything; `None` where there was none.
    pub alone: Option<Duration>,
}

struct Look {
    owned: Vec<i16>,
    sends: bool,
    nodes: i64,
    free: bool,
    alone: Option<f64>,
}

impl Look {
    fn share(self) -> Share {
        let nodes = usize::try_from(self.nodes).unwrap_or(1).max(1);
        let part = if self.sends {
            limits::SHARDS.div_ceil(nodes)
        } else {
            0
        };
        let alone = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).ok();
        Share {
            owned: self.owned,
            part,
            alone: self.alone.and_then(alone),
        }
    }
}

/// Takes free shards up to the stream's part; answers what it owns then.
///
/// # Errors
/// When the database does not answer, or another node was taking some for longer than [`limits::SHARING_LOCK_WAIT`]; tried again
/// at the next renewal.
pub async fn take(database: &Database, stream: i64) -> Result<Share, DatabaseError> {
    let mut tx = database.lease_tx().await?;
    let found = look(&mut tx, stream).await?;
    let free = found.free;
    let mut share = found.share();
    if free && share.owned.len() < share.part {
        give_way(&mut tx).await?;
        // One node at a time, each with a fresh look: an update that waited for another's would not ask again whether the
        // new owner lives, and take the shards from it while it believes that it has them.
        sqlx::query!("SELECT pg_advisory_xact_lock(hashtext('posthorn_claim_shards'))")
            .execute(&mut *tx)
            .await?;
        let room = share.part - share.owned.len();
        take_free(&mut tx, stream, room).await?;
        share = look(&mut tx, stream).await?.share();
    }
    tx.commit().await?;
    Ok(share)
}

async fn look(tx: &mut Transaction<'_, Postgres>, stream: i64) -> Result<Look, DatabaseError> {
    sqlx::query_as!(
        Look,
        r#"SELECT ARRAY(SELECT shard FROM shards WHERE owner = $1 ORDER BY shard) AS "owned!",
                  EXISTS (SELECT 1 FROM nodes WHERE stream = $1 AND state = 'open' AND sends) AS "sends!",
                  (SELECT count(*) FROM nodes WHERE state = 'open' AND sends) AS "nodes!",
                  EXISTS (SELECT 1 FROM shards
                          WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.stream = shards.owner AND nodes.state = 'open')) AS "free!",
                  (SELECT extract(epoch FROM clock_timestamp() - max(lease_until))::float8 FROM nodes
                   WHERE stream <> $1) AS alone"#,
        stream,
    )
    .fetch_one(&mut **tx)
    .await
    .map_err(DatabaseError::from)
}

async fn take_free(
    tx: &mut Transaction<'_, Postgres>,
    stream: i64,
    room: usize,
) -> Result<(), DatabaseError> {
    sqlx::query!(
        "UPDATE shards SET owner = $1
         WHERE shard IN (SELECT s.shard FROM shards AS s
                         WHERE NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.stream = s.owner AND nodes.state = 'open')
                         ORDER BY s.shard
                         LIMIT $2)
           AND EXISTS (SELECT 1 FROM nodes WHERE nodes.stream = $1 AND nodes.state = 'open' AND nodes.sends)",
        stream,
        i64::try_from(room).unwrap_or(0),
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Gives shards back, those that the stream still owns. Nothing of theirs may be under way.
///
/// # Errors
/// When the database does not answer.
pub async fn give_back(
    database: &Database,
    stream: i64,
    shards: &[i16],
) -> Result<(), DatabaseError> {
    sqlx::query!(
        "UPDATE shards SET owner = NULL WHERE owner = $1 AND shard = ANY ($2)",
        stream,
        shards,
    )
    .execute(database.lease())
    .await?;
    Ok(())
}

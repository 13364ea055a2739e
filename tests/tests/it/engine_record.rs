//! Record: what a batch may change, told by the rows before and after (INV-5).

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use posthorn_domain::delivery::{Cause, ErrorKind, Trigger, Why};
use posthorn_domain::id::{EndpointId, EventId};
use posthorn_store::clock::Clock;
use posthorn_store::entropy::Entropy;
use posthorn_store::record::{
    Attempt, AttemptError, Consequence, DeliveryKey, Fact, Parked, RecordError, RecordWriter,
    Retry, Source,
};
use posthorn_tests::engine::{AMPLE, Node, Runs};
use posthorn_tests::proxy::{Loss, Lost};
use posthorn_tests::receiver::Reply;
use posthorn_tests::wait::until;
use sqlx::Connection as _;

use crate::engine_scene::Scene;

impl Scene {
    fn writer(&self) -> RecordWriter {
        RecordWriter::new(self.database.pools(1, 1))
    }

    /// A delivery that nothing is known of yet.
    fn fresh_key(&self) -> DeliveryKey {
        let now = Clock::start().now();
        DeliveryKey {
            tenant: self.tenant,
            endpoint: EndpointId::mint(now, Entropy.bytes()),
            event: EventId::mint(now, Entropy.bytes()),
        }
    }
}

/// Locks that somebody waits for: as of now, inside a transaction too.
const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted AND (database IS NULL OR database = (SELECT oid FROM pg_database WHERE datname = current_database()))";

fn end() -> DateTime<Utc> {
    Clock::start().now() + TimeDelta::days(5)
}

/// The `n`th attempt, and what follows from it.
fn attempted(key: DeliveryKey, n: u32, source: Source, consequence: Consequence) -> Fact {
    let success = matches!(consequence, Consequence::Delivered);
    Fact::Attempted {
        key,
        attempt: Box::new(Attempt {
            n,
            nonce: u32::from_be_bytes(Entropy.bytes()),
            success,
            status: Some(if success { 200 } else { 500 }),
            at: Clock::start().now(),
            duration: Duration::from_millis(7),
            trigger: Trigger::Schedule,
            replay: None,
            remote_address: None,
            error: (!success).then(|| AttemptError {
                kind: ErrorKind::Status,
                detail: "the endpoint answered 500".to_owned(),
            }),
            response: None,
            config_seq: 1,
        }),
        source,
        consequence,
        event_type: "order.paid".to_owned(),
        application: None,
    }
}

fn failed(key: DeliveryKey, n: u32, source: Source) -> Fact {
    let retry = Retry {
        step: n,
        after: Duration::from_mins(1),
        ends_at: end(),
    };
    attempted(key, n, source, Consequence::Retry(retry))
}

fn delivered(key: DeliveryKey, n: u32, source: Source) -> Fact {
    attempted(key, n, source, Consequence::Delivered)
}

fn dead(key: DeliveryKey, n: u32, source: Source) -> Fact {
    attempted(key, n, source, Consequence::Dead(Cause::Exhausted))
}

fn parked(key: DeliveryKey, due: bool) -> Fact {
    let parked = Parked {
        why: Why::Capacity,
        due,
        ends_at: end(),
    };
    Fact::Parked { key, parked }
}

/// INV-5.
#[tokio::test]
async fn engine_record_of_the_same_facts_again_adds_no_attempt() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let facts = [failed(key, 1, Source::Fresh)];
    writer.record(&facts).await.unwrap();
    writer.record(&facts).await.unwrap();
    assert_eq!(scene.rows.attempts(key).await.len(), 1);
}

/// INV-5: the row has moved on since; what is recorded again must not bring it back.
#[tokio::test]
async fn engine_record_of_the_same_facts_again_does_not_bring_back_what_was_delivered_since() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let first = [failed(key, 1, Source::Fresh)];
    writer.record(&first).await.unwrap();
    writer
        .record(&[delivered(key, 2, Source::Pending)])
        .await
        .unwrap();
    writer.record(&first).await.unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-5: a dead letter's deaths count failures for good, not the times that one was recorded.
#[tokio::test]
async fn engine_record_of_the_same_death_again_counts_it_once() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    let death = [dead(key, 2, Source::Pending)];
    writer.record(&death).await.unwrap();
    writer.record(&death).await.unwrap();
    assert_eq!(scene.rows.dead_letter(key).await.unwrap().deaths, 1);
}

/// INV-5.
#[tokio::test]
async fn engine_record_moves_a_pending_row_on_by_one() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer
        .record(&[failed(key, 2, Source::Pending)])
        .await
        .unwrap();
    let row = scene.rows.pending(key).await.unwrap();
    assert_eq!((row.n, row.step), (3, 2));
}

/// INV-5: compare-and-set on the attempt's own number.
#[tokio::test]
async fn engine_record_of_a_stale_attempt_does_not_move_the_pending_row() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer
        .record(&[failed(key, 2, Source::Pending)])
        .await
        .unwrap();
    let before = scene.rows.pending(key).await;
    writer
        .record(&[failed(key, 2, Source::Pending)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, before);
}

/// INV-5.
#[tokio::test]
async fn engine_record_of_a_stale_last_attempt_writes_no_dead_letter() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer
        .record(&[failed(key, 2, Source::Pending)])
        .await
        .unwrap();
    writer
        .record(&[dead(key, 2, Source::Pending)])
        .await
        .unwrap();
    assert_eq!(scene.rows.dead_letter(key).await, None);
}

/// INV-5.
#[tokio::test]
async fn engine_record_of_a_success_deletes_the_pending_row_whatever_its_number() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer
        .record(&[failed(key, 2, Source::Pending)])
        .await
        .unwrap();
    writer
        .record(&[delivered(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-5.
#[tokio::test]
async fn engine_record_of_a_success_deletes_the_dead_letter() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer.record(&[dead(key, 1, Source::Fresh)]).await.unwrap();
    writer
        .record(&[delivered(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.dead_letter(key).await, None);
}

/// INV-5: delivered, and for ever.
#[tokio::test]
async fn engine_record_of_a_failed_first_attempt_after_a_success_inserts_nothing() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[delivered(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-5: a success and a failure of one delivery in one batch, in either order, is a success.
#[tokio::test]
async fn engine_record_folds_a_failure_after_a_success_in_the_same_batch() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let facts = [
        delivered(key, 1, Source::Fresh),
        failed(key, 1, Source::Fresh),
    ];
    writer.record(&facts).await.unwrap();
    let kept = (
        scene.rows.attempts(key).await.len(),
        scene.rows.pending(key).await,
    );
    assert_eq!(kept, (2, None));
}

/// INV-5: a verdict ended the delivery.
#[tokio::test]
async fn engine_record_of_a_failed_first_attempt_after_a_verdict_inserts_nothing() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    scene
        .rows
        .run(
            "WITH gone AS (DELETE FROM pending RETURNING *)
             INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, at, duration_ms, trigger, config_seq)
             SELECT tenant_id, endpoint_id, event_id, n, n::bigint << 32, 'cancelled', now(), 0, NULL, 1 FROM gone",
        )
        .await;
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-5: the row that is there is somebody's; its number stays.
#[tokio::test]
async fn engine_record_of_a_failed_first_attempt_leaves_an_existing_pending_row() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer.record(&[parked(key, true)]).await.unwrap();
    let before = scene.rows.pending(key).await;
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, before);
}

/// INV-5.
#[tokio::test]
async fn engine_record_of_a_failed_first_attempt_after_a_death_inserts_nothing() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer.record(&[dead(key, 1, Source::Fresh)]).await.unwrap();
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-5: a death that is told by a late first attempt does not overtake whoever has the delivery.
#[tokio::test]
async fn engine_record_of_a_fatal_first_attempt_writes_no_dead_letter_beside_a_pending_row() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer.record(&[parked(key, true)]).await.unwrap();
    writer.record(&[dead(key, 1, Source::Fresh)]).await.unwrap();
    assert_eq!(scene.rows.dead_letter(key).await, None);
}

/// INV-5: what was sent meanwhile is not parked as unsent.
#[tokio::test]
async fn engine_record_parks_no_delivery_that_was_attempted() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[delivered(key, 1, Source::Fresh)])
        .await
        .unwrap();
    writer.record(&[parked(key, false)]).await.unwrap();
    assert_eq!(scene.rows.pending(key).await, None);
}

/// INV-13: the batch is refused as a whole, and says so.
#[tokio::test]
async fn engine_record_refuses_a_batch_with_a_text_that_the_database_cannot_hold() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let refused = writer.record(&[unstorable(key)]).await;
    assert!(matches!(refused, Err(RecordError::Refused(_))));
}

/// INV-2: without the texts that a stranger wrote, it is recorded.
#[tokio::test]
async fn engine_record_takes_a_refused_fact_without_its_texts() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let bare = unstorable(key).without_texts();
    writer.record(&[bare]).await.unwrap();
    assert_eq!(scene.rows.outcomes(key).await, ["failed"]);
}

/// A failure whose words hold a NUL, which no PostgreSQL text can.
fn unstorable(key: DeliveryKey) -> Fact {
    let mut fact = failed(key, 1, Source::Fresh);
    if let Fact::Attempted { attempt, .. } = &mut fact
        && let Some(error) = &mut attempt.error
    {
        "a\0b".clone_into(&mut error.detail);
    }
    fact
}

/// INV-13, INV-2: through the recorder's own loop; the refused row stops nobody.
#[tokio::test]
async fn engine_record_keeps_the_siblings_of_a_row_that_the_database_refuses() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let (recorder, recording) = posthorn_worker::Recorder::new(
        scene.writer(),
        std::sync::Arc::clone(&node.dispatcher),
        Clock::start(),
    );
    let keys = [scene.fresh_key(), scene.fresh_key(), scene.fresh_key()];
    for fact in [
        delivered(keys[0], 1, Source::Fresh),
        unstorable(keys[1]),
        delivered(keys[2], 1, Source::Fresh),
    ] {
        let unrecorded = posthorn_worker::Unrecorded {
            fact,
            fresh: None,
            place: None,
            held: true,
        };
        recorder.record(unrecorded).await;
    }
    drop(recorder);
    recording.run().await;
    let mut outcomes = Vec::new();
    for key in keys {
        outcomes.extend(scene.rows.outcomes(key).await);
    }
    assert_eq!(outcomes, ["success", "failed", "success"]);
}

/// INV-13, INV-2: through the recorder's own loop; the others do not wait until the row is free, and then it is recorded, too.
#[tokio::test]
async fn engine_record_of_what_another_transaction_holds_keeps_no_other_result_waiting() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let (recorder, recording) = posthorn_worker::Recorder::new(
        scene.writer(),
        std::sync::Arc::clone(&node.dispatcher),
        Clock::start(),
    );
    let keys: Vec<_> = (0..9).map(|_| scene.fresh_key()).collect();
    let first: Vec<_> = keys
        .iter()
        .map(|key| failed(*key, 1, Source::Fresh))
        .collect();
    scene.writer().record(&first).await.unwrap();
    let mut other = scene.database.superuser().await;
    let mut holding = other.begin().await.unwrap();
    sqlx::query("SELECT FROM pending WHERE event_id = $1 FOR UPDATE")
        .bind(keys[4].event.uuid())
        .execute(&mut *holding)
        .await
        .unwrap();
    for key in keys {
        let unrecorded = posthorn_worker::Unrecorded {
            fact: delivered(key, 2, Source::Pending),
            fresh: None,
            place: None,
            held: true,
        };
        recorder.record(unrecorded).await;
    }
    let running = tokio::spawn(recording.run());
    let successes = async || {
        let count = "SELECT count(*) FROM attempts WHERE outcome = 'success'";
        scene.rows.number(count).await
    };
    until("the others to be on record", AMPLE, async || {
        (successes().await == 8).then_some(())
    })
    .await;
    holding.rollback().await.unwrap();
    drop(recorder);
    running.await.unwrap();
    assert_eq!(successes().await, 9);
}

/// INV-11, INV-13: the rows of a transaction whose client nobody hears any more are soon free for whoever took them over.
#[tokio::test]
async fn engine_record_goes_on_soon_when_another_recorder_fell_silent_in_its_transaction() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    writer
        .record(&[failed(key, 1, Source::Fresh)])
        .await
        .unwrap();
    let proxy = scene.database.proxy().await;
    let mut silent = RecordWriter::new(scene.database.pools_through(&proxy));
    proxy.lose(Loss {
        marker: "UPDATE pending AS p".into(),
        request: "COMMIT".into(),
        lost: Lost::Everything,
    });
    let fact = failed(key, 2, Source::Pending);
    let lost = tokio::spawn(async move { silent.record(&[fact]).await });
    proxy.lost(1).await;
    let fact = [failed(key, 2, Source::Pending)];
    let soon = Duration::from_secs(10);
    until("the row to be free", soon, async || {
        writer.record(&fact).await.ok()
    })
    .await;
    assert_eq!(scene.rows.pending(key).await.unwrap().n, 3);
    lost.abort();
}

/// INV-6: the commit's answer is lost, the batch is sent again, and nothing happens twice.
#[tokio::test]
async fn engine_record_of_a_batch_whose_commit_was_not_confirmed_changes_nothing_the_second_time() {
    let scene = Scene::begin().await;
    scene
        .receiver
        .script("/hook", Reply::status(500).body("needle-51c0"));
    let endpoint = scene.endpoint("/hook").await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-51c0".into(),
        request: "COMMIT".into(),
        lost: Lost::Answer,
    });
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    proxy.lost(1).await;
    node.settled().await;
    let row = scene.rows.pending(key).await.unwrap();
    assert_eq!((scene.rows.attempts(key).await.len(), row.n), (1, 2));
}

/// INV-2: the commit never arrived; the result is recorded all the same.
#[tokio::test]
async fn engine_record_sends_a_batch_again_whose_commit_was_lost_on_the_way() {
    let scene = Scene::begin().await;
    scene
        .receiver
        .script("/hook", Reply::status(500).body("needle-51c0"));
    let endpoint = scene.endpoint("/hook").await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-51c0".into(),
        request: "COMMIT".into(),
        lost: Lost::Request,
    });
    let key = scene.key(&endpoint, node.accept(scene.tenant, "{}").await.id);
    proxy.lost(1).await;
    scene.receiver.wait_for("/hook", 1, AMPLE).await;
    node.settled().await;
    assert_eq!(scene.rows.outcomes(key).await, ["failed"]);
}

/// INV-2, INV-5: its end came while the request was under way. What was delivered is not left in the dead letters.
#[tokio::test]
async fn engine_record_of_a_success_waits_for_whoever_lays_its_row_in_the_dead_letters() {
    let scene = Scene::begin().await;
    let (mut writer, key) = (scene.writer(), scene.fresh_key());
    let failed = [failed(key, 1, Source::Fresh)];
    writer.record(&failed).await.unwrap();
    scene.rows.run("BEGIN").await;
    scene
        .rows
        .run(
            "WITH died AS (DELETE FROM pending RETURNING *)
         INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
         SELECT tenant_id, endpoint_id, event_id, 'order.paid', 'expired', 1, now() FROM died",
        )
        .await;
    let success = [delivered(key, 2, Source::Pending)];
    let recording = writer.record(&success);
    let expiring = async {
        until("the recorder to wait", AMPLE, || async {
            (scene.rows.number(WAITING).await > 0).then_some(())
        })
        .await;
        scene.rows.run("COMMIT").await;
    };
    let (recorded, ()) = tokio::join!(recording, expiring);
    recorded.unwrap();
    assert!(scene.rows.dead_letter(key).await.is_none());
    assert_eq!(scene.rows.outcomes(key).await, ["failed", "success"]);
}

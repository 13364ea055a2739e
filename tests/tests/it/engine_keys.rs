//! Keys of events against a real database: one event and one answer, however often it is submitted.

use std::time::Duration;

use futures_util::future::join_all;
use posthorn_domain::id::TenantId;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::limits;
use posthorn_domain::uid::Uid;
use posthorn_store::accept::{AcceptError, Accepted, EventKeys, NewEvent};
use posthorn_tests::engine::{AMPLE, Node, Runs, event};
use posthorn_tests::proxy::{Loss, Lost, Way};
use posthorn_tests::wait::until;
use posthorn_worker::Expiry;
use sqlx::{Connection as _, Executor as _};

use crate::engine_scene::Scene;

/// A submission whose whole body is its payload.
fn keyed(tenant: TenantId, payload: &str, key: Option<&str>, uid: Option<&str>) -> NewEvent {
    let key = key.map(|key| IdempotencyKey::parse(key.as_bytes()).unwrap());
    let uid = uid.map(|uid| Uid::parse(uid).unwrap());
    NewEvent {
        keys: EventKeys::of("POST /v1/events", key, uid, || {
            BodyHash::of(payload.as_bytes())
        }),
        ..event(tenant, payload.to_owned())
    }
}

/// Submits an event under the key `k`.
async fn under_k(node: &Node, scene: &Scene, payload: &str) -> Result<Accepted, AcceptError> {
    let new = keyed(scene.tenant, payload, Some("k"), None);
    node.acceptor.accept(new).await
}

impl Scene {
    async fn events_written(&self) -> i64 {
        self.rows.number("SELECT count(*) FROM events").await
    }

    /// Keys without their event: won in vain, and left behind.
    async fn keys_left_behind(&self) -> i64 {
        self.rows
            .number("SELECT count(*) FROM idempotency_keys WHERE event_id NOT IN (SELECT id FROM events)")
            .await
    }
}

/// E01.
#[tokio::test]
async fn engine_keys_give_the_first_answer_to_the_same_event_again() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let node = scene.node(Runs::AcceptOnly).await;
    let first = under_k(&node, &scene, "{}").await.unwrap();
    let again = under_k(&node, &scene, "{}").await.unwrap();
    assert_eq!(
        again,
        Accepted {
            replayed: true,
            ..first
        }
    );
    assert_eq!((first.replayed, scene.events_written().await), (false, 1));
}

/// E01, E07.
#[tokio::test]
async fn engine_keys_refuse_another_body_and_write_nothing() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let accept = |payload, key, uid| node.acceptor.accept(keyed(scene.tenant, payload, key, uid));
    let first = accept("1", Some("k"), Some("u")).await.unwrap();
    assert_eq!(
        accept("2", Some("k"), None).await,
        Err(AcceptError::KeyReused)
    );
    assert_eq!(
        accept("2", None, Some("u")).await,
        Err(AcceptError::UidReused)
    );
    assert_eq!(
        accept("1", Some("k"), Some("u")).await.unwrap().id,
        first.id
    );
    assert_eq!(scene.events_written().await, 1);
}

/// A uid is no Idempotency-Key, though both read the same.
#[tokio::test]
async fn engine_keys_of_one_kind_do_not_stand_for_the_other() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    for (key, uid) in [(Some("same"), None), (None, Some("same"))] {
        let new = keyed(scene.tenant, key.unwrap_or("uid"), key, uid);
        assert!(!node.acceptor.accept(new).await.unwrap().replayed);
    }
    assert_eq!(scene.events_written().await, 2);
}

/// E04, E07; INV-9.
#[tokio::test]
async fn engine_keys_are_each_tenants_own() {
    let scene = Scene::begin().await;
    let other = scene.tenants.tenant().await;
    let node = scene.node(Runs::AcceptOnly).await;
    for tenant in [scene.tenant, other] {
        let new = keyed(tenant, "{}", Some("k"), Some("u"));
        assert!(!node.acceptor.accept(new).await.unwrap().replayed);
    }
    assert_eq!(scene.events_written().await, 2);
}

/// E02: all of them are in one batch, and then in two nodes' batches at once.
#[tokio::test]
async fn engine_keys_of_many_callers_at_once_write_one_event() {
    let scene = Scene::begin().await;
    scene.endpoint("/hook").await;
    let nodes = [scene.node(Runs::All).await, scene.node(Runs::All).await];
    for (round, (key, uid)) in [
        (Some("k"), None),
        (None, Some("u")),
        (Some("both"), Some("both")),
    ]
    .into_iter()
    .enumerate()
    {
        let asking = (0..50).map(|n| {
            let new = keyed(scene.tenant, "{}", key, uid);
            nodes[n % 2].acceptor.accept(new)
        });
        let answers = join_all(asking).await;
        let mut ids: Vec<_> = answers.iter().map(|a| a.unwrap().id).collect();
        ids.dedup();
        let first = answers.iter().filter(|a| !a.unwrap().replayed).count();
        assert_eq!((ids.len(), first), (1, 1));
        assert_eq!(
            scene.events_written().await,
            i64::try_from(round).unwrap() + 1
        );
    }
    scene.receiver.wait_for("/hook", 3, AMPLE).await;
    for node in &nodes {
        node.settled().await;
    }
    assert_eq!(scene.receiver.requests().len(), 3);
}

/// An event is written only with all its keys, and what it won in vain is free again.
#[tokio::test]
async fn engine_keys_leave_nothing_behind_where_one_of_two_is_lost() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let accept = |payload, key, uid| node.acceptor.accept(keyed(scene.tenant, payload, key, uid));
    accept("1", None, Some("u")).await.unwrap();
    let lost = accept("2", Some("k"), Some("u")).await;
    assert_eq!(lost, Err(AcceptError::UidReused));
    let left = scene
        .rows
        .number("SELECT count(*) FROM idempotency_keys WHERE route <> 'uid'")
        .await;
    assert_eq!(left, 0);
    assert!(!accept("3", Some("k"), None).await.unwrap().replayed);
}

/// Rows whose keys cross each other's, in batches of two nodes at once.
#[tokio::test]
async fn engine_keys_that_cross_leave_every_answer_in_the_log_and_no_key_without_its_event() {
    let scene = Scene::begin().await;
    let nodes = [
        scene.node(Runs::AcceptOnly).await,
        scene.node(Runs::AcceptOnly).await,
    ];
    for round in 0..20 {
        let asking = (0..24).map(|n| {
            let key = format!("k{round}-{}", n % 4);
            let uid = format!("u{round}-{}", n % 3);
            let new = keyed(scene.tenant, "{}", Some(&key), Some(&uid));
            nodes[n % 2].acceptor.accept(new)
        });
        for answer in join_all(asking).await {
            answer.unwrap();
        }
    }
    // Of each round's twelve pairs at most three can have a key and a uid of their own.
    let events = scene.events_written().await;
    assert!((20..=60).contains(&events), "{events}");
    let keys = scene
        .rows
        .number("SELECT count(*) FROM idempotency_keys")
        .await;
    assert_eq!((keys, scene.keys_left_behind().await), (2 * events, 0));
}

/// E06.
#[tokio::test]
async fn engine_keys_that_expired_are_taken_anew() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let first = under_k(&node, &scene, "1").await.unwrap();
    scene
        .rows
        .run("UPDATE idempotency_keys SET expires_at = now()")
        .await;
    let second = under_k(&node, &scene, "2").await.unwrap();
    assert!(!second.replayed && second.id != first.id);
    assert_eq!(
        under_k(&node, &scene, "1").await,
        Err(AcceptError::KeyReused)
    );
}

/// E06: many at once take a key that has expired.
#[tokio::test]
async fn engine_keys_that_expired_are_taken_anew_by_one_of_many() {
    let scene = Scene::begin().await;
    let nodes = [
        scene.node(Runs::AcceptOnly).await,
        scene.node(Runs::AcceptOnly).await,
    ];
    under_k(&nodes[0], &scene, "1").await.unwrap();
    scene
        .rows
        .run("UPDATE idempotency_keys SET expires_at = now()")
        .await;
    let asking = (0..50).map(|n| under_k(&nodes[n % 2], &scene, "2"));
    let answers = join_all(asking).await;
    let first = answers.iter().filter(|a| !a.unwrap().replayed).count();
    assert_eq!((first, scene.events_written().await), (1, 2));
}

/// The flush that took it lost another key, and its node died before it could say so.
#[tokio::test]
async fn engine_keys_whose_event_is_absent_count_as_unused() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let first = under_k(&node, &scene, "1").await.unwrap();
    scene.rows.run("DELETE FROM events").await;
    let second = under_k(&node, &scene, "2").await.unwrap();
    assert!(!second.replayed && second.id != first.id);
    assert_eq!(scene.keys_left_behind().await, 0);
}

/// An event that outlived its partition still has its keys.
#[tokio::test]
async fn engine_keys_of_an_event_that_was_kept_still_stand_for_it() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let first = under_k(&node, &scene, "1").await.unwrap();
    scene
        .rows
        .run("INSERT INTO kept_events SELECT * FROM events")
        .await;
    scene.rows.run("DELETE FROM events").await;
    assert_eq!(under_k(&node, &scene, "1").await.unwrap().id, first.id);
}

/// INV-1: the answer of the flush is lost; the event has its keys, and its caller the first answer.
#[tokio::test]
async fn engine_keys_are_the_events_own_though_the_answer_of_its_flush_was_lost() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    for lost in [Lost::Answer, Lost::Request] {
        let uid = format!("{lost:?}");
        let new = || keyed(scene.tenant, "\"needle-7f3a\"", Some(&uid), Some(&uid));
        proxy.lose(Loss {
            marker: "needle-7f3a".into(),
            request: "".into(),
            lost,
        });
        let accepted = node.acceptor.accept(new()).await.unwrap();
        let again = until("the database to be back", AMPLE, async || {
            node.acceptor.accept(new()).await.ok()
        })
        .await;
        assert_eq!(
            (accepted.replayed, again.replayed, again.id),
            (false, true, accepted.id)
        );
    }
    assert_eq!(scene.events_written().await, 2);
}

/// INV-2: what was answered under a lost flush is delivered, once.
#[tokio::test]
async fn engine_keys_deliver_an_event_once_though_the_answer_of_its_flush_was_lost() {
    let scene = Scene::begin().await;
    let endpoint = scene.endpoint("/hook").await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.lose(Loss {
        marker: "needle-7f3a".into(),
        request: "".into(),
        lost: Lost::Answer,
    });
    let new = || keyed(scene.tenant, "\"needle-7f3a\"", Some("k"), None);
    let (one, other) = tokio::join!(node.acceptor.accept(new()), node.acceptor.accept(new()));
    assert_eq!(one.unwrap().id, other.unwrap().id);
    let requests = scene.receiver.wait_for("/hook", 1, AMPLE).await;
    node.settled().await;
    assert!(requests.len() == 1 && endpoint.signed(&requests[0]));
}

/// INV-13: whoever takes a key and stands still keeps nobody but those with the same key.
#[tokio::test]
async fn engine_keys_that_another_flush_holds_stall_nobody_else() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    let mut other = scene.database.superuser().await;
    let mut held = other.begin().await.unwrap();
    held.execute(sqlx::AssertSqlSafe(format!(
        "INSERT INTO idempotency_keys (tenant_id, route, key, event_id, body_hash, expires_at)
         VALUES ('{}', 'POST /v1/events', 'k', gen_random_uuid(), decode(repeat('00', 32), 'hex'), now() + interval '1 day')",
        scene.tenant.uuid()
    )))
    .await
    .unwrap();
    let free = ["a", "b", "c"].map(|key| keyed(scene.tenant, "{}", Some(key), None));
    let (blocked, plain, free) = tokio::time::timeout(Duration::from_secs(4), async {
        tokio::join!(
            under_k(&node, &scene, "{}"),
            node.submit(scene.tenant, "{}"),
            join_all(free.map(|new| node.acceptor.accept(new)))
        )
    })
    .await
    .expect("nobody waits for the key that is held");
    assert_eq!(blocked, Err(AcceptError::KeyInUse));
    assert!(plain.is_ok() && free.iter().all(Result::is_ok));
    held.rollback().await.unwrap();
    assert!(!under_k(&node, &scene, "{}").await.unwrap().replayed);
}

/// INV-2: a caller that was answered with an earlier event leaves no id open behind it.
#[tokio::test]
async fn engine_keys_leave_no_id_open_that_was_not_written() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    under_k(&node, &scene, "1").await.unwrap();
    under_k(&node, &scene, "1").await.unwrap();
    under_k(&node, &scene, "2").await.unwrap_err();
    assert!(node.keeper.present().unwrap().open().is_empty());
}

/// INV-12: a key does not bring back the endpoints of an older configuration.
#[tokio::test]
async fn engine_keys_of_an_event_that_is_matched_again_are_taken_once() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene.endpoint("/new").await;
    let first = under_k(&node, &scene, "{}").await.unwrap();
    let again = under_k(&node, &scene, "{}").await.unwrap();
    assert_eq!((first.deliveries_count, again.deliveries_count), (1, 1));
    assert_eq!(scene.events_written().await, 1);
}

/// A node whose stream was closed carries its rows over, keys and all.
#[tokio::test]
async fn engine_keys_are_carried_over_into_the_next_stream() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::WithoutLease).await;
    scene
        .close_as_another(node.keeper.present().unwrap().id())
        .await;
    let first = under_k(&node, &scene, "{}").await.unwrap();
    let again = under_k(&node, &scene, "{}").await.unwrap();
    assert_eq!((first.replayed, again.id), (false, first.id));
}

/// E06: deleted only when no flush can still be looking at it.
#[tokio::test]
async fn engine_keys_are_deleted_some_time_after_they_expired() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    for key in ["old", "fresh", "over"] {
        let new = keyed(scene.tenant, key, Some(key), None);
        node.acceptor.accept(new).await.unwrap();
    }
    let expiry = Expiry::new(node.database.clone());
    assert_eq!(expiry.run_once().await.keys, 0);
    scene
        .rows
        .run("UPDATE idempotency_keys SET expires_at = now() WHERE key = 'over'")
        .await;
    scene
        .rows
        .run("UPDATE idempotency_keys SET expires_at = now() - interval '2 minutes' WHERE key = 'old'")
        .await;
    assert!(limits::EXPIRE_AFTER < Duration::from_mins(2));
    assert_eq!(expiry.run_once().await.keys, 1);
    let left = scene
        .rows
        .number("SELECT count(*) FROM idempotency_keys WHERE key IN ('fresh', 'over')")
        .await;
    assert_eq!(left, 2);
}

/// INV-11: batch after batch, until there is no more.
#[tokio::test]
async fn engine_keys_are_deleted_in_batches_until_none_is_left() {
    let scene = Scene::begin().await;
    let node = scene.node(Runs::AcceptOnly).await;
    scene
        .rows
        .run(
            "INSERT INTO idempotency_keys (tenant_id, route, key, event_id, body_hash, expires_at)
             SELECT gen_random_uuid(), 'uid', n::text, gen_random_uuid(), decode(repeat('00', 32), 'hex'), now() - interval '1 hour'
             FROM generate_series(1, 5000) AS n",
        )
        .await;
    let deleted = Expiry::new(node.database.clone()).run_once().await;
    assert_eq!((deleted.keys, scene.keys_left_behind().await), (5000, 0));
}

/// A flush that is stalled on its way takes its keys when it gets there.
#[tokio::test]
async fn engine_keys_wait_for_a_database_that_stands_still() {
    let scene = Scene::begin().await;
    let proxy = scene.database.proxy().await;
    let node = Node::start(scene.database.pools_through(&proxy), Runs::All).await;
    proxy.set(Way::Stalled);
    let (one, other, ()) = tokio::join!(
        under_k(&node, &scene, "{}"),
        under_k(&node, &scene, "{}"),
        async { proxy.set(Way::Open) }
    );
    assert_eq!(one.unwrap().id, other.unwrap().id);
    assert_eq!(scene.events_written().await, 1);
}

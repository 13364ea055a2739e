//! Replay: a dead letter becomes due again, and what becomes of it then.

use posthorn_domain::id::DeliveryId;
use posthorn_domain::retry::RetryPolicy;
use posthorn_store::record::DeliveryKey;
use posthorn_store::replay::{ReplayError, replay_dead_letter};
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::engine::{Node, Runs};
use posthorn_tests::receiver::{Reply, Script};

use crate::engine_scene::Scene;

impl Scene {
    /// A delivery that died at its only attempt; its receiver goes on as `then` says.
    async fn dead(&self, node_runs: Runs, then: Reply) -> (Node, DeliveryKey) {
        let script = Script::first(1, Reply::status(500)).then(then);
        self.receiver.script("/hook", script);
        let endpoint = self
            .tenants
            .endpoint_with(self.tenant, &self.receiver.url("/hook"), |new| {
                new.retry_policy = RetryPolicy::Fixed {
                    delay_ms: 1000,
                    max_attempts: 1,
                };
            })
            .await;
        let node = self.node(node_runs).await;
        let key = self.key(&endpoint, node.accept(self.tenant, "{}").await.id);
        self.attempted(&node, "/hook", 1).await;
        (node, key)
    }

    async fn replay(&self, node: &Node, key: DeliveryKey) -> Result<(), ReplayError> {
        let scope = TenantScope::new_authenticated(key.tenant, Actor::COMMAND_LINE);
        let id = DeliveryId {
            event: key.event,
            endpoint: key.endpoint,
        };
        replay_dead_letter(&node.database, scope, id)
            .await
            .map(drop)
    }

    async fn replayed(&self, node: &Node, key: DeliveryKey) {
        self.replay(node, key).await.unwrap();
        node.due.run_once().await;
        self.attempted(node, "/hook", 2).await;
    }
}

/// INV-4.
#[tokio::test]
async fn engine_replay_sends_the_same_webhook_id() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    scene.replayed(&node, key).await;
    let requests = scene.receiver.requests_to("/hook");
    assert_eq!(
        requests[1].header("webhook-id"),
        Some(key.event.to_string().as_str())
    );
}

/// INV-5: numbers count for ever, and what asked for an attempt is told.
#[tokio::test]
async fn engine_replay_goes_on_counting_attempts() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    scene.replayed(&node, key).await;
    let attempts = scene.rows.attempts(key).await;
    let told: Vec<_> = attempts
        .iter()
        .map(|row| (row.n, row.outcome.as_str(), row.trigger.as_str()))
        .collect();
    assert_eq!(told, [(1, "failed", "schedule"), (2, "success", "replay")]);
}

/// INV-5.
#[tokio::test]
async fn engine_replay_that_succeeds_removes_the_dead_letter() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    scene.replayed(&node, key).await;
    let left = (
        scene.rows.dead_letter(key).await,
        scene.rows.pending(key).await,
    );
    assert_eq!(left, (None, None));
}

/// INV-5.
#[tokio::test]
async fn engine_replay_leaves_the_dead_letter_until_it_has_ended() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    scene.replay(&node, key).await.unwrap();
    assert_eq!(scene.rows.dead_letter(key).await.unwrap().deaths, 1);
}

/// INV-2.
#[tokio::test]
async fn engine_replay_that_fails_for_good_raises_the_deaths() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(500)).await;
    scene.replayed(&node, key).await;
    assert_eq!(scene.rows.dead_letter(key).await.unwrap().deaths, 2);
}

/// INV-6: asking twice sends once.
#[tokio::test]
async fn engine_replay_is_refused_while_the_delivery_is_retrying() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    scene.replay(&node, key).await.unwrap();
    let again = scene.replay(&node, key).await;
    assert!(matches!(again, Err(ReplayError::Retrying)));
}

/// INV-9.
#[tokio::test]
async fn engine_replay_finds_no_dead_letter_of_another_tenant() {
    let scene = Scene::begin().await;
    let (node, key) = scene.dead(Runs::All, Reply::status(200)).await;
    let stranger = DeliveryKey {
        tenant: scene.tenants.tenant().await,
        ..key
    };
    let answer = scene.replay(&node, stranger).await;
    assert!(matches!(answer, Err(ReplayError::NotFound)));
}

//! What most tests of the whole program begin with: a node, a tenant, a receiver.

use std::time::Duration;

use posthorn_tests::program::{At, Client, Installation, Node};
use posthorn_tests::receiver::{Received, Receiver};
use posthorn_tests::wait::until;
use serde_json::{Value, json};

/// Longer than anything takes that is not about time.
pub(crate) const AMPLE: Duration = Duration::from_secs(20);

/// A node, a tenant's caller and a receiver.
pub(crate) struct Stage {
    pub(crate) installation: Installation,
    pub(crate) node: Node,
    pub(crate) api: Client,
    pub(crate) receiver: Receiver,
}

impl Stage {
    /// A fresh database, where endpoints on the loopback are allowed.
    pub(crate) async fn set() -> Self {
        Self::of(Installation::new().await).await
    }

    /// A node on an installation, with a tenant.
    pub(crate) async fn of(installation: Installation) -> Self {
        let node = installation.serve().await;
        Self::around(installation, node).await
    }

    /// A tenant and a receiver for a node that runs.
    pub(crate) async fn around(installation: Installation, node: Node) -> Self {
        let tenant = installation.tenant("Acme").await;
        let api = node.client(&tenant.key);
        known(&api).await;
        Self {
            api,
            receiver: Receiver::start().await.unwrap(),
            installation,
            node,
        }
    }

    /// A caller for another tenant.
    pub(crate) async fn stranger(&self) -> Client {
        let tenant = self.installation.tenant("Stranger").await;
        let api = self.node.client(&tenant.key);
        known(&api).await;
        api
    }

    /// An endpoint on a path of the receiver, with attempts that follow one another at this distance.
    pub(crate) async fn endpoint(&self, path: &str, delay_ms: u64, max_attempts: u32) -> Value {
        self.api
            .endpoint(&json!({
                "url": self.receiver.url(path),
                "retry_policy": {"kind": "fixed", "delay_ms": delay_ms, "max_attempts": max_attempts},
            }))
            .await
    }

    /// The requests to a path, once there are so many.
    pub(crate) async fn arrived(&self, path: &str, count: usize) -> Vec<Received> {
        self.receiver.wait_for(path, count, AMPLE).await
    }

    /// The one delivery of an event, once it is in this state.
    pub(crate) async fn delivery(&self, event: &str, state: &str) -> Value {
        until(&format!("a delivery that is {state}"), AMPLE, async || {
            let event = self
                .api
                .get(&format!("/v1/events/{event}"))
                .await
                .expect(200);
            let [delivery] = event.list("/deliveries") else {
                panic!("one endpoint, one delivery: {event}")
            };
            (delivery.text("/state") == state).then(|| delivery.clone())
        })
        .await
    }

    /// The dead letters, once there are so many.
    pub(crate) async fn dead_letters(&self, count: usize) -> Vec<Value> {
        until("dead letters", AMPLE, async || {
            let letters = self.api.get("/v1/dead-letters").await.expect(200);
            let letters = letters.list("/data");
            (letters.len() == count).then(|| letters.to_vec())
        })
        .await
    }
}

/// Waits until the node knows the key: the command line tells the database, and the node looks there.
pub(crate) async fn known(api: &Client) {
    until("the key to be known", AMPLE, async || {
        (api.get("/v1/events").await.status != 401).then_some(())
    })
    .await;
}

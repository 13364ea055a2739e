//! Master keys change while nodes run: everything that is sealed is sealed anew, and the old key can go.

use std::time::Duration;

use posthorn_domain::compat::{Compat, CompatForm, CompatKind, CompatSecret};
use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_tests::program::{Answer, At, Client, Node};
use posthorn_tests::receiver::Received;
use reqwest::Method;
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage};

const RING: &str = "POSTHORN_MASTER_KEYS";
const COMPAT: &str = "It's a Secret to Everybody";

/// What every sealed thing of the database was sealed with.
const SEALED_WITH: &str = "SELECT DISTINCT k FROM (
    SELECT key_id AS k FROM endpoint_secrets
    UNION ALL SELECT headers_key_id FROM endpoints
    UNION ALL SELECT compat_key_id FROM endpoints
    UNION ALL SELECT key_id FROM idempotent_answers) AS sealed ORDER BY k";

const KNOWN: &str = "SELECT key_id FROM master_key_probe ORDER BY key_id";

fn id(key: &str) -> String {
    key.split(':').next().unwrap().to_owned()
}

impl Stage {
    /// A new key, and the rings in which it is first with the old one behind, and alone.
    async fn new_key(&self) -> (String, String, String) {
        let key = self.installation.run(&["keys", "generate"]).await;
        let key = key.text("/key");
        let both = format!("{key},{}", self.installation.master_keys());
        (id(&key), both, key)
    }

    /// Another node in place of this one, with these master keys.
    async fn replace(&mut self, ring: &str) {
        self.node.ask_to_end();
        self.node.ended(AMPLE).await;
        let node: Node = self.installation.serve_with(RING, ring).await;
        self.api = self.api.through(node.address());
        crate::stage::known(&self.api).await;
        self.node = node;
    }
}

/// Makes an endpoint with a key, the same each time.
async fn keyed(api: &Client, url: &str) -> Answer {
    let signing = json!({ "compat": { "kind": "github", "secret": COMPAT } });
    let body = json!({ "url": url, "headers": { "x-own": "own" }, "signing": signing });
    let request = api
        .request(Method::POST, "/v1/endpoints")
        .header("content-type", "application/json")
        .header("idempotency-key", "k")
        .body(body.to_string());
    Client::sent(request).await
}

/// Everything that is sealed serves: the secrets sign, and the header is sent.
fn assert_whole(request: &Received, made: &Value) {
    let header = |name| request.header(name).unwrap();
    let timestamp = header("webhook-timestamp").parse().unwrap();
    let shared = [VerifyingKey::parse(&made.text("/secret")).unwrap()];
    assert!(verify(
        header("webhook-signature"),
        &shared,
        header("webhook-id"),
        timestamp,
        &request.body
    ));
    let compat = Compat {
        form: CompatForm::new(CompatKind::Github, None).unwrap(),
        secret: CompatSecret::parse(COMPAT).unwrap(),
    };
    assert_eq!(
        header("x-hub-signature-256"),
        compat.sign(timestamp, &request.body)
    );
    assert_eq!(header("x-own"), "own");
}

/// INV-10.
#[tokio::test]
async fn everything_is_sealed_anew_beside_a_running_node_and_the_old_key_can_leave_the_ring() {
    let mut stage = Stage::set().await;
    let (new, both, alone) = stage.new_key().await;
    let old = id(stage.installation.master_keys());
    let url = stage.receiver.url("/ok");
    let made = keyed(&stage.api, &url).await.expect(201);

    stage.replace(&both).await;
    let rotated = stage.installation.run_under(&["keys", "rotate"], &both);
    let rotated = rotated.await.unwrap();
    for (what, count) in [
        ("secrets", 1),
        ("headers", 1),
        ("compats", 1),
        ("answers", 1),
    ] {
        assert_eq!(rotated.get(what), Some(&json!(count)), "{what}: {rotated}");
    }
    assert_eq!(rotated.get("freed"), Some(&json!([old])));
    let sealed_with = stage.installation.query(SEALED_WITH).await;
    assert_eq!(sealed_with, [new.as_str()]);
    stage.api.submit("a.b", b"{}").await;
    assert_whole(&stage.arrived("/ok", 1).await[0], &made);

    stage.replace(&alone).await;
    stage.api.submit("a.b", b"{}").await;
    assert_whole(&stage.arrived("/ok", 2).await[1], &made);
    let again = keyed(&stage.api, &url).await;
    assert_eq!(again.expect(201), made);
    assert_eq!(again.header("idempotency-replayed"), "true");

    let refused = stage
        .installation
        .run_under(&["keys", "rotate"], stage.installation.master_keys());
    let refused = refused.await.unwrap_err();
    assert!(refused.contains(&format!("`{new}`")), "{refused}");
}

/// INV-10: what a node could not open is not sealed, and no key is let go of that a node seals with.
#[tokio::test]
async fn nothing_is_sealed_anew_while_a_node_seals_with_another_key() {
    let stage = Stage::set().await;
    let (_, both, _) = stage.new_key().await;
    let old = id(stage.installation.master_keys());
    let made = keyed(&stage.api, &stage.receiver.url("/ok")).await;
    let refused = stage.installation.run_under(&["keys", "rotate"], &both);
    let refused = refused.await.unwrap_err();
    assert!(
        refused.contains(&format!("seals with the master key `{old}`")),
        "{refused}"
    );
    for asked in [SEALED_WITH, KNOWN] {
        assert_eq!(stage.installation.query(asked).await, [old.as_str()]);
    }
    stage.api.submit("a.b", b"{}").await;
    let requests = stage.receiver.wait_for("/ok", 1, Duration::from_secs(20));
    assert_whole(&requests.await[0], &made.expect(201));
}

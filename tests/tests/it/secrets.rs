//! Signing secrets through the real program: changed while requests are on their way.

use chrono::{DateTime, Utc};
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature::sign;
use posthorn_tests::program::{Answer, At, Client, Node};
use posthorn_tests::receiver::Received;
use posthorn_tests::wait::until;
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage};

/// The signature that a secret gives to a request, worked out again.
fn signature(request: &Received, secret: &str) -> String {
    let secret = SigningSecret::parse(secret).unwrap();
    let (id, timestamp) = (
        request.header("webhook-id").unwrap(),
        request.header("webhook-timestamp").unwrap(),
    );
    sign(&secret, id, timestamp.parse().unwrap(), &request.body)
}

impl Stage {
    async fn rotate(&self, endpoint: &Value, request: &Value) -> Answer {
        let path = format!("/v1/endpoints/{}/rotate-secret", endpoint.text("/id"));
        self.api.post(&path, request.to_string()).await
    }

    /// A second node, and its caller.
    async fn beside(&self) -> (Node, Client) {
        let node = self.installation.serve().await;
        let api = self.api.through(node.address());
        crate::stage::known(&api).await;
        (node, api)
    }

    /// When the one attempt of an event was sent, once that is on record.
    async fn sent_at(&self, event: &str) -> DateTime<Utc> {
        let path = format!("/v1/attempts?event_id={event}");
        let sent_at = until("the attempt to be on record", AMPLE, async || {
            let attempts = self.api.get(&path).await.expect(200);
            attempts
                .list("/data")
                .first()
                .map(|one| one.text("/sent_at"))
        });
        sent_at.await.parse().unwrap()
    }
}

/// INV-4; B08.
#[tokio::test]
async fn after_a_rotation_both_secrets_verify_with_one_space_between_the_new_first() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/ok", 100, 3).await;
    let rotated = stage.rotate(&made, &json!({})).await.expect(200);
    stage.api.submit("a.b", b"{\"n\": 1}").await;
    let request = stage.arrived("/ok", 1).await.remove(0);
    let [new, old] = [&rotated, &made].map(|answer| signature(&request, &answer.text("/secret")));
    assert_eq!(
        request.header("webhook-signature"),
        Some(format!("{new} {old}").as_str())
    );
}

/// INV-4; B09: whichever node sends, and however old its configuration is by then.
#[tokio::test]
async fn an_old_secret_signs_until_the_promised_time_and_not_after_on_every_node() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/ok", 100, 3).await;
    let (_second, other) = stage.beside().await;
    let rotated = stage.rotate(&made, &json!({ "overlap_s": 2 })).await;
    let rotated = rotated.expect(200);
    let retires_at: DateTime<Utc> = rotated.text("/old/0/retires_at").parse().unwrap();
    let (mut before, mut after) = (0, 0);
    until("both sides of the end of the overlap", AMPLE, async || {
        for api in [&stage.api, &other] {
            let id = api.submit("a.b", b"{}").await;
            let sent_at = stage.sent_at(&id).await;
            let requests = stage.receiver.requests_to("/ok");
            let request = requests
                .iter()
                .find(|request| request.header("webhook-id") == Some(&id))
                .unwrap();
            let [new, old] =
                [&rotated, &made].map(|answer| signature(request, &answer.text("/secret")));
            let (wanted, side) = if sent_at < retires_at {
                (format!("{new} {old}"), &mut before)
            } else {
                (new, &mut after)
            };
            *side += 1;
            assert_eq!(
                request.header("webhook-signature"),
                Some(wanted.as_str()),
                "sent at {sent_at}, promised until {retires_at}"
            );
        }
        (before >= 2 && after >= 4).then_some(())
    })
    .await;
}

/// INV-4; B09: with an overlap of 0 the old secret signs nothing any more, and is nowhere.
#[tokio::test]
async fn an_old_secret_without_an_overlap_is_never_used_again_on_any_node() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/ok", 100, 3).await;
    let (_second, other) = stage.beside().await;
    let rotated = stage.rotate(&made, &json!({ "overlap_s": 0 })).await;
    let rotated = rotated.expect(200);
    for api in [&stage.api, &other] {
        api.submit("a.b", b"{}").await;
    }
    for request in stage.arrived("/ok", 2).await {
        let new = signature(&request, &rotated.text("/secret"));
        assert_eq!(request.header("webhook-signature"), Some(new.as_str()));
    }
    let left = stage
        .installation
        .query("SELECT kind FROM endpoint_secrets")
        .await;
    assert_eq!(left, ["v1"]);
}

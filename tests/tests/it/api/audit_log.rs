//! The audit log, as a caller sees it: each change has its entry, and no secret is in any.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Method;
use http::header::CONTENT_TYPE;
use posthorn_domain::scope::Scope;
use serde_json::{Value, json};

use super::dead_letters::dead_letter;
use super::{Api, Program, text};

const LOG: &str = "/v1/audit-log";
const ONE: &str = "/v1/endpoints/uid:one";

/// What must never be read in an entry.
const HEADER_VALUE: &str = "canary-in-a-header";
const GIVEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

impl Program<'_> {
    /// The log, oldest first.
    async fn log(&self, filter: &str) -> Vec<Value> {
        let page = self.get(&format!("{LOG}?order=asc{filter}")).await;
        page.expect(200)["data"].as_array().unwrap().clone()
    }
}

fn actions(log: &[Value]) -> Vec<String> {
    log.iter().map(|entry| text(entry, "action")).collect()
}

/// INV-10: each change of an endpoint, and each reading of its secrets, with who did it.
#[tokio::test]
async fn every_change_of_an_endpoint_is_on_record_with_who_made_it_and_without_a_secret() {
    let api = Api::start().await;
    let program = api.program().await;
    let fields = json!({ "uid": "one", "headers": { "X-Key": HEADER_VALUE }, "secret": GIVEN });
    let made = program.endpoint(fields).await;
    let id = text(&made, "id");
    let changes = json!({ "description": "new", "headers": { "X-Key": "canary-in-a-header-2" } });
    program.patch(ONE, &changes).await.expect(200);
    let rotate = format!("{ONE}/rotate-secret");
    let rotated = program.post(&rotate, &json!({ "overlap_s": 60 })).await;
    program.get(&format!("{ONE}/secrets")).await.expect(200);
    program.delete(ONE).await.expect(204);
    let log = program.log(&format!("&target={id}")).await;
    assert_eq!(
        actions(&log),
        [
            "endpoint.created",
            "endpoint.updated",
            "endpoint.secret_rotated",
            "endpoint.secrets_read",
            "endpoint.deleted"
        ]
    );
    for entry in &log {
        assert_eq!(entry["actor"]["kind"], "api_key");
        assert!(text(&entry["actor"], "id").starts_with("key_"));
        assert_eq!(entry["target"], id);
    }
    let key = json!({ "sealed_with": "test" });
    let headers = json!({ "x-key": key });
    assert_eq!(log[0]["before"], Value::Null);
    assert_eq!(log[0]["after"]["url"], "http://127.0.0.1:9/hook");
    assert_eq!(log[0]["after"]["headers"], headers);
    assert_eq!(
        (&log[1]["before"], &log[1]["after"]),
        (
            &json!({ "description": "", "headers": headers }),
            &json!({ "description": "new", "headers": headers })
        )
    );
    assert_eq!(
        log[2]["after"],
        json!({ "scheme": "v1", "sealed_with": "test", "overlap_s": 60 })
    );
    assert_eq!(log[4]["before"]["description"], "new");
    assert_eq!(log[4]["after"], Value::Null);
    let all = Value::from(log).to_string();
    for secret in ["canary", GIVEN, &text(&rotated.json(), "secret")] {
        assert!(!secret.is_empty() && !all.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn a_tenants_log_begins_with_its_own_making_and_has_replays() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    program
        .call(Method::POST, &format!("/v1/dead-letters/{id}/replay"), None)
        .await
        .expect(202);
    let log = program.log("").await;
    let kinds: Vec<_> = log
        .iter()
        .map(|entry| text(&entry["actor"], "kind"))
        .collect();
    assert_eq!(
        actions(&log),
        [
            "tenant.created",
            "api_key.created",
            "endpoint.created",
            "dead_letter.replayed"
        ]
    );
    assert_eq!(
        kinds,
        ["command_line", "command_line", "api_key", "api_key"]
    );
    assert_eq!(log[3]["target"], id);
}

/// What was not changed is not on record as changed: an entry stands and falls with its change.
#[tokio::test]
async fn a_change_that_is_refused_or_changes_nothing_leaves_no_entry() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    program.endpoint(json!({ "uid": "two" })).await;
    let before = program.log("").await;
    let taken = program.patch(ONE, &json!({ "uid": "two" })).await;
    taken.refuses(409, "uid_taken");
    program.patch(ONE, &json!({})).await.expect(200);
    let same = program.patch(ONE, &json!({ "uid": "one" })).await;
    same.expect(200);
    let rotate = format!("{ONE}/rotate-secret");
    let rotated = program.post(&rotate, &json!({ "scheme": "v1a" })).await;
    rotated.refuses(422, "secret_invalid");
    program.delete("/v1/endpoints/uid:none").await.expect(404);
    let replay = format!(
        "/v1/dead-letters/{}/replay",
        "dlv_".to_owned() + &"0".repeat(52)
    );
    program.call(Method::POST, &replay, None).await.expect(404);
    assert_eq!(program.log("").await, before);
}

/// The address is the listener's word, which knows which proxies to believe.
#[tokio::test]
async fn an_entry_has_the_address_that_the_change_came_from() {
    let api = Api::start().await;
    let program = api.program().await;
    let peer: SocketAddr = "[2001:db8::7]:50000".parse().unwrap();
    let request = program
        .request(Method::POST, "/v1/endpoints")
        .header(CONTENT_TYPE, "application/json")
        .extension(ConnectInfo(peer))
        .body(Body::from(r#"{"url":"http://127.0.0.1:9/hook"}"#))
        .unwrap();
    api.send(request).await.expect(201);
    let log = program.log("").await;
    assert_eq!(log.last().unwrap()["ip"], "2001:db8::7");
}

/// INV-9.
#[tokio::test]
async fn the_log_is_one_tenants_and_needs_its_own_scope() {
    let api = Api::start().await;
    let (program, stranger) = (api.program().await, api.program().await);
    let made = program.endpoint(json!({})).await;
    let of_it = format!("&target={}", text(&made, "id"));
    assert_eq!(program.log(&of_it).await.len(), 1);
    assert_eq!(stranger.log(&of_it).await, [Value::Null; 0]);
    let reader = api
        .program_of(program.tenant, &[Scope::EndpointsRead])
        .await;
    reader.get(LOG).await.refuses(403, "scope_missing");
}

#[tokio::test]
async fn the_log_is_walked_both_ways_and_narrowed_by_thing_and_time() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for place in 0..9 {
        let change = json!({ "description": place.to_string() });
        program.patch(ONE, &change).await.expect(200);
    }
    assert_eq!(program.walk(&format!("{LOG}?limit=4")).await.len(), 12);
    let log = program.log("").await;
    let (third, id) = (text(&log[5], "at"), text(&log[5], "target"));
    let since = program.log(&format!("&since={third}")).await;
    let until = program.log(&format!("&until={third}")).await;
    assert_eq!(since, log[5..]);
    assert_eq!(until, log[..5]);
    let walked = program.walk(&format!("{LOG}?limit=3&target={id}")).await;
    assert_eq!(walked.len(), 10);
    for target in ["", "x", "ep_%00", "key_é"] {
        let refused = program.get(&format!("{LOG}?target={target}")).await;
        refused.refuses(422, "parameter_invalid");
    }
}

//! Who calls: keys, scopes, and tenants that are strangers to one another (INV-9).

use std::time::Duration;

use posthorn_tests::program::{At, Client};
use posthorn_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use super::{assert_problem, nothing_listed};
use crate::stage::{Stage, known};

/// INV-10; E22.
#[tokio::test]
async fn a_revoked_key_is_refused_within_a_second_while_it_is_in_use() {
    let stage = Stage::set().await;
    let tenant = stage.installation.tenant("Gone soon").await;
    let api = stage.node.client(&tenant.key);
    known(&api).await;
    stage
        .installation
        .run(&["key", "revoke", &tenant.key_id])
        .await;
    until(
        "the key to be refused",
        Duration::from_secs(1),
        async || {
            let answer = api.get("/v1/events").await;
            (answer.status == 401).then(|| assert_problem(&answer, 401, "unauthenticated"))
        },
    )
    .await;
    stage.api.get("/v1/events").await.expect(200);
}

/// E26, and one answer to whatever is wrong with a key.
#[tokio::test]
async fn every_wrong_key_gets_the_same_answer() {
    let stage = Stage::set().await;
    let good = stage.installation.tenant("Good").await.key;
    known(&stage.node.client(&good)).await;
    let with = |name: &str, value: &str| {
        stage
            .node
            .client("")
            .request(Method::GET, "/v1/events")
            .header(name, value)
    };
    let lower = Client::sent(with("AUTHORIZATION", &format!("bearer {good}"))).await;
    lower.expect(200);
    let mut seen = Vec::new();
    let other = if good.ends_with('x') { 'y' } else { 'x' };
    let altered = format!("Bearer {}{other}", &good[..good.len() - 1]);
    for value in [
        "Bearer",
        "Basic abc",
        "Bearer ph_live_nothing",
        altered.as_str(),
        "Bearer é",
    ] {
        let answer = Client::sent(with("authorization", value)).await;
        let mut problem = assert_problem(&answer, 401, "unauthenticated");
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        problem["request_id"] = Value::Null;
        seen.push(problem);
    }
    seen.dedup();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

/// The scopes of a key, one missing at a time.
#[tokio::test]
async fn a_key_without_the_scope_is_told_which() {
    let stage = Stage::set().await;
    let tenant = stage.installation.tenant("Narrow").await;
    let key = [
        "key",
        "create",
        "--tenant",
        &tenant.id,
        "--scopes",
        "events:read",
    ];
    let key = stage.installation.run(&key).await.text("/key");
    let api = stage.node.client(&key);
    known(&api).await;
    for (method, path, scope) in [
        (Method::POST, "/v1/events", "events:write"),
        (Method::POST, "/v1/endpoints", "endpoints:write"),
        (Method::GET, "/v1/endpoints", "endpoints:read"),
    ] {
        let answer = Client::sent(api.request(method, path)).await;
        let problem = assert_problem(&answer, 403, "scope_missing");
        assert!(problem.text("/detail").contains(scope), "{problem}");
    }
}

/// INV-9; E18, E20: whatever belongs to another tenant is not there, byte for byte.
#[tokio::test]
async fn another_tenants_things_are_answered_like_things_that_never_were() {
    let stage = Stage::set().await;
    stage
        .receiver
        .script("/down", posthorn_tests::receiver::Reply::status(500));
    let endpoint = stage.endpoint("/down", 100, 1).await.text("/id");
    let event = stage.api.submit("a.b", b"1").await;
    let delivery = stage.delivery(&event, "dead").await;
    let (delivery, attempt) = (delivery.text("/id"), delivery.text("/last_attempt/id"));
    let stranger = stage.stranger().await;

    let routes = [
        (Method::GET, format!("/v1/events/{event}")),
        (Method::GET, format!("/v1/events/{event}/payload")),
        (Method::GET, format!("/v1/endpoints/{endpoint}")),
        (Method::PATCH, format!("/v1/endpoints/{endpoint}")),
        (Method::DELETE, format!("/v1/endpoints/{endpoint}")),
        (Method::GET, format!("/v1/deliveries/{delivery}")),
        (Method::GET, format!("/v1/attempts/{attempt}")),
        (Method::GET, format!("/v1/dead-letters/{delivery}")),
        (Method::POST, format!("/v1/dead-letters/{delivery}/replay")),
        (Method::GET, format!("/v1/deliveries?event_id={event}")),
        (Method::GET, format!("/v1/attempts?event_id={event}")),
        (Method::GET, format!("/v1/attempts?endpoint_id={endpoint}")),
        (
            Method::GET,
            format!("/v1/dead-letters?endpoint_id={endpoint}"),
        ),
    ];
    for (method, path) in routes {
        let foreign = asked(&stranger, &method, &path).await;
        // The same ids but for a digit of each: nobody's.
        let unknown = path
            .replace(&event[8..12], "0000")
            .replace(&endpoint[8..12], "0000");
        assert_ne!(unknown, path);
        let unknown = asked(&stranger, &method, &unknown).await;
        assert_eq!(foreign, unknown, "{method} {path}");
        assert!(
            foreign.0 == 404 || foreign.1.list("/data").is_empty(),
            "{method} {path}"
        );
    }
    for list in ["/v1/events", "/v1/endpoints", "/v1/dead-letters"] {
        nothing_listed(&stranger, list).await;
    }
    let kept = stage
        .api
        .get(&format!("/v1/endpoints/{endpoint}"))
        .await
        .expect(200);
    assert_eq!(kept.text("/state"), "enabled");
    assert_eq!(
        stage.receiver.requests().len(),
        1,
        "the stranger's replay sent nothing"
    );
}

/// Status and body, but for what names the request.
async fn asked(api: &Client, method: &Method, path: &str) -> (u16, Value) {
    let mut request = api.request(method.clone(), path);
    if *method == Method::PATCH {
        request = request
            .header("content-type", "application/json")
            .body("{\"state\":\"disabled\"}");
    }
    let answer = Client::sent(request).await;
    let mut body = answer.json();
    if let Some(id) = body.get_mut("request_id") {
        *id = Value::Null;
    }
    (answer.status, body)
}

/// INV-9; E17: equal types, equal URLs, two tenants.
#[tokio::test]
async fn an_event_never_reaches_another_tenants_endpoint() {
    let stage = Stage::set().await;
    let other = stage.stranger().await;
    let mine = stage.endpoint("/mine", 100, 3).await;
    let url = stage.receiver.url("/others");
    let theirs = other.endpoint(&json!({"url": url})).await;
    assert_ne!(mine.text("/secret"), theirs.text("/secret"), "B18");
    let (mut of_mine, mut of_theirs) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        of_mine.push(stage.api.submit("a.b", b"1").await);
        of_theirs.push(other.submit("a.b", b"2").await);
    }
    for (path, ids) in [("/mine", of_mine), ("/others", of_theirs)] {
        let requests = stage.arrived(path, ids.len()).await;
        assert_eq!(requests.len(), ids.len());
        for request in requests {
            assert!(
                ids.iter()
                    .any(|id| request.header("webhook-id") == Some(id))
            );
        }
    }
}

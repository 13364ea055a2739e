//! Secrets of endpoints: changed, and read again by who may.

use axum::body::Body;
use chrono::{DateTime, TimeDelta, Utc};
use http::Method;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use posthorn_domain::scope::Scope;
use serde_json::{Value, json};

use super::{Api, text};

const ONE: &str = "/v1/endpoints/uid:one";
const ROTATE: &str = "/v1/endpoints/uid:one/rotate-secret";
const SECRETS: &str = "/v1/endpoints/uid:one/secrets";
const GIVEN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_rotation_makes_a_secret_and_keeps_the_old_one_for_a_day() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program.endpoint(json!({ "uid": "one" })).await;
    let answer = program.call(Method::POST, ROTATE, None).await;
    let rotated = answer.expect(200);
    assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
    assert!(text(&rotated, "secret").starts_with("whsec_"));
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(
        (&rotated["scheme"], &rotated["public_key"]),
        (&json!("v1"), &json!(null))
    );
    let retires_at = time(&rotated["old"][0]["retires_at"]);
    let overlap = retires_at - time(&rotated["created_at"]);
    assert!((TimeDelta::hours(24) - overlap).abs() < TimeDelta::seconds(5));

    let answer = program.get(SECRETS).await;
    let secrets = answer.expect(200);
    assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
    let [new, old] = secrets["data"].as_array().unwrap().as_slice() else {
        panic!("{secrets}")
    };
    assert_eq!(
        (&new["secret"], &new["retires_at"]),
        (&rotated["secret"], &json!(null))
    );
    assert_eq!(
        (&old["secret"], time(&old["retires_at"])),
        (&made["secret"], retires_at)
    );
}

/// INV-10.
#[tokio::test]
async fn an_old_secret_is_not_told_by_a_rotation_and_none_by_any_other_read() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program.endpoint(json!({ "uid": "one" })).await;
    let rotated = program.post(ROTATE, &json!({})).await;
    rotated.expect(200);
    let told = String::from_utf8_lossy(&rotated.bytes).into_owned();
    assert_eq!(told.matches("whsec_").count(), 1, "{told}");
    assert!(!told.contains(&text(&made, "secret")));
    for path in [ONE, "/v1/endpoints"] {
        let shown = program.get(path).await;
        assert!(!String::from_utf8_lossy(&shown.bytes).contains("whsec_"));
    }
    let scopes = [Scope::EndpointsRead, Scope::EndpointsWrite];
    let other = api.program_of(program.tenant, &scopes).await;
    other.get(SECRETS).await.refuses(403, "scope_missing");
}

#[tokio::test]
async fn a_given_secret_is_taken_in_its_canonical_form_and_for_its_scheme_alone() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for (request, code, pointer) in [
        (json!({ "secret": "abc" }), "secret_invalid", "/secret"),
        (
            json!({ "secret": format!("{GIVEN}\n") }),
            "secret_invalid",
            "/secret",
        ),
        (
            json!({ "secret": format!("whsk_{}", "A".repeat(86) + "==") }),
            "secret_invalid",
            "/secret",
        ),
        (
            json!({ "secret": GIVEN, "scheme": "v1a" }),
            "secret_invalid",
            "/secret",
        ),
        (json!({ "scheme": "v1a" }), "secret_invalid", "/scheme"),
        (json!({ "scheme": "v2" }), "field_invalid", "/scheme"),
        (
            json!({ "overlap_s": 604_801 }),
            "field_invalid",
            "/overlap_s",
        ),
        (json!({ "overlap_s": -1 }), "field_invalid", "/overlap_s"),
        (json!({ "overlap": 5 }), "field_unknown", "/overlap"),
    ] {
        let refused = program.post(ROTATE, &request).await.refuses(422, code);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{request}");
    }
    let request = json!({ "secret": GIVEN, "overlap_s": 604_800 });
    let rotated = program.post(ROTATE, &request).await.expect(200);
    assert_eq!(rotated["secret"], GIVEN);
    // Once more would make two signatures that are the same.
    let again = program.post(ROTATE, &request).await;
    let refused = again.refuses(422, "secret_invalid");
    assert_eq!(refused["errors"][0]["pointer"], "/secret");
}

#[tokio::test]
async fn five_old_secrets_may_sign_and_a_rotation_without_overlap_always_may_be() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for _ in 0..5 {
        program.post(ROTATE, &json!({})).await.expect(200);
    }
    let before = program.get(SECRETS).await.expect(200);
    program
        .post(ROTATE, &json!({ "overlap_s": 1 }))
        .await
        .refuses(409, "too_many_old_secrets");
    assert_eq!(program.get(SECRETS).await.expect(200), before);
    let rotated = program.post(ROTATE, &json!({ "overlap_s": 0 })).await;
    assert_eq!(rotated.expect(200)["old"].as_array().unwrap().len(), 5);

    let over = "UPDATE endpoint_secrets SET retires_at = now() WHERE retires_at IS NOT NULL";
    api.rows.run(over).await;
    let rotated = program.post(ROTATE, &json!({})).await.expect(200);
    assert_eq!(rotated["old"].as_array().unwrap().len(), 1);
    let kept = "SELECT count(*) FROM endpoint_secrets";
    assert_eq!(api.rows.number(kept).await, 2, "what is over is removed");
}

#[tokio::test]
async fn a_rotation_with_a_key_is_made_once_and_its_answer_given_again_byte_for_byte() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let rotate = async || {
        let request = program
            .request(Method::POST, ROTATE)
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", "k");
        api.send(request.body(Body::from("{}")).unwrap()).await
    };
    let (first, second) = (rotate().await, rotate().await);
    first.expect(200);
    assert_eq!(first.bytes, second.bytes);
    assert_eq!(second.headers["idempotency-replayed"], "true");
    let secrets = program.get(SECRETS).await.expect(200);
    assert_eq!(secrets["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn of_two_schemes_the_one_that_is_named_changes_and_a_private_key_is_never_read() {
    let api = Api::start().await;
    let program = api.program().await;
    let both = json!({ "uid": "one", "signing": { "schemes": ["v1", "v1a"] } });
    let made = program.endpoint(both).await;
    let refused = program.post(ROTATE, &json!({})).await;
    let refused = refused.refuses(422, "field_missing");
    assert_eq!(refused["errors"][0]["pointer"], "/scheme");
    let rotated = program.post(ROTATE, &json!({ "scheme": "v1a" })).await;
    let rotated = rotated.expect(200);
    assert!(text(&rotated, "public_key").starts_with("whpk_"));
    assert_eq!(rotated["secret"], json!(null));
    let answer = program.get(SECRETS).await;
    let secrets = answer.expect(200);
    let keys: Vec<_> = secrets["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|secret| secret["scheme"] == "v1a")
        .map(|secret| secret["public_key"].clone())
        .collect();
    assert_eq!(
        keys,
        [rotated["public_key"].clone(), made["public_key"].clone()]
    );
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("whsk_"));
}

#[tokio::test]
async fn rotations_at_once_follow_one_another_and_one_secret_is_in_force() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let rotations = (0..4).map(|_| {
        let program = &program;
        async move { program.post(ROTATE, &json!({})).await.expect(200) }
    });
    futures_util::future::join_all(rotations).await;
    let secrets = program.get(SECRETS).await.expect(200);
    let secrets = secrets["data"].as_array().unwrap();
    let retiring: Vec<_> = secrets
        .iter()
        .map(|secret| !secret["retires_at"].is_null())
        .collect();
    assert_eq!(retiring, [false, true, true, true, true]);
}

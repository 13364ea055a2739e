//! Bodies of a wrong shape: every fault of one at its place, and never a value of it.

use http::Method;
use serde_json::{Map, Value, json};

use super::{Api, Program, text};

/// Stands where a secret may stand.
const CANARY: &str = "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
/// The same as a number.
const NUMBER: u64 = 8_675_309_867_530_986_753;

/// Method, path and the schema of the body of every operation that takes fields.
fn operations() -> Vec<(Method, String, Value)> {
    let document: Value = serde_json::from_str(&posthorn_api::openapi_json()).unwrap();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            if method != Method::POST && method != Method::PATCH || path.ends_with("/raw") {
                continue;
            }
            let mut schema =
                operation["requestBody"]["content"]["application/json"]["schema"].clone();
            if let Some(members) = schema["anyOf"].as_array() {
                schema = members
                    .iter()
                    .find(|member| member["$ref"].is_string())
                    .unwrap()
                    .clone();
            }
            let described = text(&schema, "$ref");
            let described = document.pointer(described.trim_start_matches('#'));
            found.push((
                method,
                path.clone(),
                described.cloned().unwrap_or(json!({})),
            ));
        }
    }
    assert_eq!(found.len(), 7);
    found
}

/// What may stand where something else should: the canary by itself and inside other things.
fn shapes() -> [Value; 8] {
    [
        json!(CANARY),
        json!(NUMBER),
        json!([CANARY]),
        json!([[CANARY], NUMBER]),
        json!({ "x": CANARY }),
        json!({ "kind": CANARY, "name": CANARY, "secret": [CANARY] }),
        json!({ "kind": "fixed", "delay_ms": CANARY, "max_attempts": NUMBER }),
        json!({ "compat": { "kind": CANARY, "header": CANARY, "secret": CANARY }, "schemes": CANARY }),
    ]
}

/// A body without fault, but for what is put in.
fn sound(path: &str) -> Map<String, Value> {
    let sound = match path {
        "/v1/events" => json!({ "type": "a.b", "payload": 1 }),
        "/v1/endpoints" => json!({ "url": "http://127.0.0.1:9/hook" }),
        "/v1/api-keys" => json!({ "name": "a", "scopes": ["events:read"] }),
        _ => json!({}),
    };
    sound.as_object().unwrap().clone()
}

/// INV-10. Names of fields are told, and what is taken is given back as it always is; no refusal repeats a value.
#[tokio::test]
async fn no_refusal_repeats_a_value_of_the_body_whatever_its_shape() {
    let api = Api::start().await;
    let program = api.administrator().await;
    let uid = text(&program.endpoint(json!({})).await, "id");
    let mut refused = 0;
    for (method, path, schema) in operations() {
        let to = path.replace(
            "{id}",
            if path.contains("endpoints") {
                &uid
            } else {
                "dlv_0"
            },
        );
        let properties = schema["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        let mut bodies: Vec<String> = shapes().iter().map(Value::to_string).collect();
        bodies.push(format!("{{\"{CANARY}"));
        bodies.push(CANARY.to_owned());
        for name in properties.keys().map(String::as_str).chain(["unheard_of"]) {
            for shape in shapes() {
                let mut body = sound(&path);
                body.insert(name.to_owned(), shape.clone());
                bodies.push(Value::Object(body).to_string());
                bodies.push(format!("{{\"{name}\":{shape},\"{name}\":{shape}}}"));
            }
        }
        for body in bodies {
            let answer = program
                .call(method.clone(), &to, Some(body.clone().into_bytes()))
                .await;
            // Nobody is there who would send a test that is well asked for.
            if answer.status.is_success() || answer.status == 503 {
                continue;
            }
            assert!(
                answer.status.is_client_error(),
                "{method} {to} {body}: {}",
                answer.status
            );
            let told = format!(
                "{:?} {}",
                answer.headers,
                String::from_utf8_lossy(&answer.bytes)
            );
            for canary in [CANARY, &NUMBER.to_string(), "8.675309", "Y2FuYXJ5"] {
                assert!(!told.contains(canary), "{method} {to} {body}: {told}");
            }
            refused += 1;
        }
    }
    assert!(refused > 300, "{refused}");
}

#[tokio::test]
async fn faults_of_shape_and_of_meaning_are_told_together_with_whole_pointers() {
    let api = Api::start().await;
    let program = api.program().await;
    let uid = text(&program.endpoint(json!({})).await, "id");
    let pointers = async |program: &Program<'_>, method: Method, path: &str, body: Value| {
        let answer = program
            .call(method, path, Some(body.to_string().into_bytes()))
            .await;
        let refused = answer.expect(422);
        assert!(refused.get("detail").is_none(), "{refused}");
        let errors = refused["errors"].as_array().unwrap().clone();
        errors
            .iter()
            .map(|error| text(error, "pointer"))
            .collect::<Vec<_>>()
    };
    let endpoint = json!({
        "url": 7,
        "urll": "x",
        "uid": "a b",
        "event_types": ["a.*", "a b"],
        "timeout_ms": 1,
        "retry_policy": { "kind": "exponential", "base_ms": 1000, "factor": 2, "cap_ms": 10, "max_attempts": 3 },
        "signing": { "compat": { "kind": "svix" } },
        "secret": "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    });
    let mut told = pointers(&program, Method::POST, "/v1/endpoints", endpoint).await;
    told.sort();
    assert_eq!(
        told,
        [
            "/event_types/1",
            "/retry_policy/cap_ms",
            "/secret",
            "/signing/compat/kind",
            "/timeout_ms",
            "/uid",
            "/url",
            "/urll",
        ]
    );
    let patch =
        json!({ "url": "ftp://x", "state": "on", "rate_limit": { "per_second": "x", "burst": 0 } });
    let told = pointers(
        &program,
        Method::PATCH,
        &format!("/v1/endpoints/{uid}"),
        patch,
    )
    .await;
    assert_eq!(
        told,
        [
            "/rate_limit/burst",
            "/rate_limit/per_second",
            "/state",
            "/url"
        ]
    );
    let event = json!({ "type": "a b", "metadata": [], "occurred_at": "now" });
    let told = pointers(&program, Method::POST, "/v1/events", event).await;
    assert_eq!(told, ["/metadata", "/payload", "/type", "/occurred_at"]);
    let rotation = json!({ "secret": "x", "overlap_s": -1 });
    let path = format!("/v1/endpoints/{uid}/rotate-secret");
    let told = pointers(&program, Method::POST, &path, rotation).await;
    assert_eq!(told, ["/overlap_s", "/secret"]);
}

#[tokio::test]
async fn a_refusal_leaves_out_what_it_has_nothing_to_say_about() {
    let api = Api::start().await;
    let program = api.program().await;
    let refused = program
        .get("/v1/nothing")
        .await
        .refuses(404, "route_not_found");
    assert!(refused.get("detail").is_none(), "{refused}");
    let refused = program
        .post("/v1/events", &json!({ "type": 1, "payload": 1 }))
        .await;
    let refused = refused.refuses(422, "field_invalid");
    assert_eq!(refused["detail"], "/type must be a string, not a number");
    assert_eq!(refused["errors"][0]["detail"], refused["detail"]);
}

#[tokio::test]
async fn every_header_that_is_refused_is_told_at_its_own_place() {
    let api = Api::start().await;
    let program = api.program().await;
    let uid = text(&program.endpoint(json!({})).await, "id");
    let headers = json!({ "Host": "x", "a/b~c": "x", "X-Bad": "a\nb", "X-Good": "1" });
    let made = json!({ "url": "http://127.0.0.1:9/", "headers": headers });
    let event = json!({ "type": "a.b", "payload": 1, "headers": headers });
    let path = format!("/v1/endpoints/{uid}");
    for refused in [
        program.post("/v1/endpoints", &made).await,
        program.patch(&path, &json!({ "headers": headers })).await,
        program.post("/v1/events", &event).await,
    ] {
        let refused = refused.refuses(422, "header_invalid");
        let errors = refused["errors"].as_array().unwrap().iter();
        let pointers: Vec<_> = errors.map(|error| text(error, "pointer")).collect();
        assert_eq!(
            pointers,
            ["/headers/Host", "/headers/X-Bad", "/headers/a~1b~0c"]
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_told_how_large_it_may_be() {
    let api = Api::start().await;
    let program = api.program().await;
    let large = json!({ "url": "x".repeat(1024 * 1024) });
    let refused = program.post("/v1/endpoints", &large).await;
    let refused = refused.refuses(413, "body_too_large");
    assert_eq!(
        refused["detail"],
        "the body of this request has at most 1048576 bytes"
    );
}

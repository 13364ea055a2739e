//! Objects of a body: what is written as one, and nothing else.

use http::Method;
use serde_json::json;

use super::Api;

const EVENTS: &str = "/v1/events";

/// E15: fields by their order alone are nobody's contract, in no object of a body.
#[tokio::test]
async fn an_array_is_not_taken_for_an_object() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let url = "http://127.0.0.1:9/hook";
    let (events, endpoints) = ((Method::POST, EVENTS), (Method::POST, "/v1/endpoints"));
    let patch = (Method::PATCH, "/v1/endpoints/uid:one");
    for ((method, path), body, pointer) in [
        (&events, json!(["a.b", { "id": 1 }]), ""),
        (
            &events,
            json!({ "type": "a.b", "payload": 1, "metadata": [["shop", "7"]] }),
            "/metadata",
        ),
        (
            &events,
            json!({ "type": "a.b", "payload": 1, "headers": [["x-a", "b"]] }),
            "/headers",
        ),
        (&endpoints, json!([null, url]), ""),
        (
            &endpoints,
            json!({ "url": url, "retry_policy": ["fixed", 1000, 3] }),
            "/retry_policy",
        ),
        (
            &endpoints,
            json!({ "url": url, "signing": [["v1"]] }),
            "/signing",
        ),
        (
            &endpoints,
            json!({ "url": url, "headers": [["x-a", "b"]] }),
            "/headers",
        ),
        (&patch, json!([null, url]), ""),
        (
            &patch,
            json!({ "retry_policy": ["fixed", 1000, 3] }),
            "/retry_policy",
        ),
        (&patch, json!({ "signing": [["v1"]] }), "/signing"),
        (&patch, json!({ "metadata": [["shop", "7"]] }), "/metadata"),
    ] {
        let sent = body.to_string().into_bytes();
        let answer = program.call(method.clone(), path, Some(sent)).await;
        let problem = answer.expect(422);
        assert_eq!(
            problem["errors"][0]["pointer"], pointer,
            "{body}: {problem}"
        );
    }
    let made = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM endpoints)";
    assert_eq!(api.rows.number(made).await, 1);
}

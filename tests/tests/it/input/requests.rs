//! Paths, methods, fields and parameters that are not there.

use posthorn_tests::program::Client;
use reqwest::Method;
use serde_json::json;

use super::{assert_problem, nothing_listed, pointers};
use crate::stage::Stage;

/// E15: a field that is not enforced is named and refused, never stored and ignored.
#[tokio::test]
async fn an_unknown_field_or_parameter_is_named() {
    let stage = Stage::set().await;
    for field in ["urll", "filter", "application", "operational"] {
        let endpoint = json!({"url": stage.receiver.url("/"), field: null});
        let answer = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
        let problem = assert_problem(&answer, 422, "field_unknown");
        assert_eq!(pointers(&problem), [format!("/{field}")]);
    }
    for field in ["application", "idempotency_key", "data"] {
        let event = json!({"type": "a.b", "payload": 1, field: "x"});
        let answer = stage.api.post("/v1/events", event.to_string()).await;
        let problem = assert_problem(&answer, 422, "field_unknown");
        assert_eq!(pointers(&problem), [format!("/{field}")]);
    }
    let answer = stage.api.get("/v1/events?typ=a.b").await;
    assert_eq!(
        pointers(&assert_problem(&answer, 422, "parameter_unknown")),
        ["?typ"]
    );
    nothing_listed(&stage.api, "/v1/endpoints").await;
    nothing_listed(&stage.api, "/v1/events").await;
}

/// E16, E25.
#[tokio::test]
async fn unknown_paths_and_methods_are_refused_in_the_same_form() {
    let stage = Stage::set().await;
    for path in ["/v1/nothing", "/v1/events/", "/v1//events", "/v2/events"] {
        assert_problem(&stage.api.get(path).await, 404, "route_not_found");
    }
    let put = Client::sent(stage.api.request(Method::PUT, "/v1/events")).await;
    assert_problem(&put, 405, "method_not_allowed");
    let allowed: Vec<&str> = put.header("allow").split(',').map(str::trim).collect();
    assert!(
        allowed.contains(&"GET") && allowed.contains(&"POST"),
        "{allowed:?}"
    );
    let head = Client::sent(stage.api.request(Method::HEAD, "/v1/events")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let options = Client::sent(stage.api.request(Method::OPTIONS, "/v1/events")).await;
    assert_eq!((options.status, options.body.len()), (204, 0));
}

/// E13: a limit is a number in its range, or refused.
#[tokio::test]
async fn a_limit_that_is_none_is_refused() {
    let stage = Stage::set().await;
    for limit in ["0", "-1", "1000000000", "abc", "10abc", "", "1&limit=2"] {
        let answer = stage.api.get(&format!("/v1/events?limit={limit}")).await;
        assert_problem(&answer, 422, "parameter_invalid");
    }
}

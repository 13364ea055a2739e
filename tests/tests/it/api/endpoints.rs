//! Endpoints: made, changed, deleted.

use http::header::LOCATION;
use serde_json::{Value, json};

use super::{Api, text};

const ENDPOINTS: &str = "/v1/endpoints";

#[tokio::test]
async fn a_secret_is_shown_when_the_endpoint_is_made_and_not_again() {
    let api = Api::start().await;
    let program = api.program().await;
    let given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let made = program.endpoint(json!({ "secret": given })).await;
    assert_eq!(made["secret"], given);
    let generated = program.endpoint(json!({})).await;
    assert!(text(&generated, "secret").starts_with("whsec_"));
    let shown = program
        .get(&format!("{ENDPOINTS}/{}", text(&made, "id")))
        .await;
    assert!(!String::from_utf8_lossy(&shown.bytes).contains("whsec_"));
}

#[tokio::test]
async fn an_endpoint_that_signs_with_a_key_pair_is_given_its_public_half_alone() {
    let api = Api::start().await;
    let made = api
        .program()
        .await
        .endpoint(json!({ "signing": { "schemes": ["v1a"] } }))
        .await;
    assert!(text(&made, "public_key").starts_with("whpk_"));
    assert_eq!(made["secret"], Value::Null);
}

/// INV-10.
#[tokio::test]
async fn secrets_and_header_values_lie_sealed() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program
        .endpoint(json!({ "headers": { "x-api-key": "canary-value" } }))
        .await;
    assert_eq!(made["headers"], json!({ "x-api-key": { "set": true } }));
    let plain = "SELECT (SELECT count(*) FROM endpoints e WHERE strpos(e::text, 'canary') > 0
                          OR position('canary'::bytea IN headers_sealed) > 0)
                      + (SELECT count(*) FROM endpoint_secrets s WHERE position('whsec'::bytea IN sealed) > 0)
                      + (SELECT count(*) FROM endpoint_versions v WHERE strpos(v::text, 'canary') > 0)";
    assert_eq!(api.rows.number(plain).await, 0);
}

#[tokio::test]
async fn a_made_endpoint_has_its_defaults_and_says_where_it_is() {
    let api = Api::start().await;
    let program = api.program().await;
    let answer = program
        .post(ENDPOINTS, &json!({ "url": "http://127.0.0.1:9/a" }))
        .await;
    let made = answer.expect(201);
    assert_eq!(
        answer.headers[LOCATION],
        format!("{ENDPOINTS}/{}", text(&made, "id"))
    );
    assert_eq!(made["event_types"], json!(["**"]));
    assert_eq!(
        made["retry_policy"],
        json!({ "kind": "preset", "name": "standard" })
    );
    assert_eq!(made["retry_delays_ms"][0], 5_000);
    assert_eq!(
        (&made["max_age_s"], &made["timeout_ms"]),
        (&json!(432_000), &json!(15_000))
    );
    assert_eq!(
        (&made["state"], &made["keep_responses"]),
        (&json!("enabled"), &json!("failures"))
    );
    assert_eq!(made["body"], "payload");
    assert_eq!(made["health"]["status"], "ok");
    let read = program
        .get(&format!("{ENDPOINTS}/{}", text(&made, "id")))
        .await
        .expect(200);
    assert!(made.as_object().unwrap().iter().all(|(name, value)| {
        ["secret", "public_key"].contains(&name.as_str()) || read[name] == *value
    }));
}

#[tokio::test]
async fn fields_that_are_not_built_or_not_there_are_refused_and_named() {
    let api = Api::start().await;
    let program = api.program().await;
    for field in [
        "urll",
        "filter",
        "application",
        "operational",
        "dead_letter_replay_after_s",
    ] {
        let refused = program
            .post(
                ENDPOINTS,
                &json!({ "url": "http://127.0.0.1:9/", field: null }),
            )
            .await;
        let refused = refused.refuses(422, "field_unknown");
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"));
    }
}

#[tokio::test]
async fn null_is_refused_where_it_means_nothing() {
    let api = Api::start().await;
    let program = api.program().await;
    for field in [
        "description",
        "event_types",
        "headers",
        "retry_policy",
        "timeout_ms",
        "fatal_statuses",
        "signing",
        "state",
        "secret",
    ] {
        let refused = program
            .post(
                ENDPOINTS,
                &json!({ "url": "http://127.0.0.1:9/", field: null }),
            )
            .await;
        let refused = refused.refuses(422, "field_invalid");
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"));
    }
    program
        .post(ENDPOINTS, &json!({ "url": null }))
        .await
        .refuses(422, "field_invalid");
}

#[tokio::test]
async fn every_wrong_field_is_told_at_once() {
    let api = Api::start().await;
    let body = json!({ "url": "ftp://x/", "event_types": ["a..b"], "timeout_ms": 5, "headers": { "Host": "x" }, "uid": "evt_1" });
    let refused = api
        .program()
        .await
        .post(ENDPOINTS, &body)
        .await
        .refuses(422, "invalid_request");
    let codes: Vec<_> = refused["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| text(fault, "code"))
        .collect();
    for code in [
        "url_invalid",
        "event_type_pattern_invalid",
        "field_invalid",
        "header_invalid",
        "uid_invalid",
    ] {
        assert!(codes.contains(&code.to_owned()), "{code} in {codes:?}");
    }
}

#[tokio::test]
async fn a_rate_is_set_changed_number_by_number_and_lifted_by_null() {
    let api = Api::start().await;
    let program = api.program().await;
    let fields = json!({ "uid": "one", "rate_limit": { "per_second": 0.5 }, "max_in_flight": 3 });
    program.endpoint(fields).await;
    for (change, rate, in_flight) in [
        (
            json!({}),
            json!({ "per_second": 0.5, "burst": 1 }),
            json!(3),
        ),
        (
            json!({ "rate_limit": { "burst": 7 } }),
            json!({ "per_second": 0.5, "burst": 7 }),
            json!(3),
        ),
        (
            json!({ "rate_limit": { "per_second": 10, "burst": null }, "max_in_flight": null }),
            json!({ "per_second": 10.0, "burst": 1 }),
            json!(null),
        ),
        (json!({ "rate_limit": null }), json!(null), json!(null)),
    ] {
        program
            .patch("/v1/endpoints/uid:one", &change)
            .await
            .expect(200);
        let read = program.get("/v1/endpoints/uid:one").await.expect(200);
        assert_eq!(
            (&read["rate_limit"], &read["max_in_flight"]),
            (&rate, &in_flight),
            "after {change}"
        );
    }
}

#[tokio::test]
async fn a_limit_out_of_its_range_is_refused_on_create_and_on_change() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let burst = json!({ "burst": 5 });
    let whole = json!({ "url": "http://127.0.0.1:9/", "rate_limit": burst });
    let change = json!({ "rate_limit": burst });
    for refused in [
        program.post(ENDPOINTS, &whole).await,
        program.patch("/v1/endpoints/uid:one", &change).await,
    ] {
        let refused = refused.refuses(422, "field_missing");
        assert_eq!(refused["errors"][0]["pointer"], "/rate_limit/per_second");
    }
    for (limit, pointer) in [
        (
            json!({ "rate_limit": { "per_second": 0.009 } }),
            "/rate_limit/per_second",
        ),
        (
            json!({ "rate_limit": { "per_second": 10_001 } }),
            "/rate_limit/per_second",
        ),
        (
            json!({ "rate_limit": { "per_second": 1, "burst": 0 } }),
            "/rate_limit/burst",
        ),
        (json!({ "max_in_flight": 0 }), "/max_in_flight"),
        (json!({ "max_in_flight": 1_001 }), "/max_in_flight"),
    ] {
        let mut whole = limit.clone();
        whole["url"] = json!("http://127.0.0.1:9/");
        let made = program.post(ENDPOINTS, &whole).await;
        let made = made.refuses(422, "field_invalid");
        let changed = program.patch("/v1/endpoints/uid:one", &limit).await;
        let changed = changed.refuses(422, "field_invalid");
        for refused in [made, changed] {
            assert_eq!(refused["errors"][0]["pointer"], pointer, "{limit}");
        }
    }
    for unlike in [
        json!(5),
        json!([5, 1]),
        json!({ "per_second": 1, "per_minute": 5 }),
    ] {
        let change = json!({ "rate_limit": unlike });
        assert_eq!(
            program.patch("/v1/endpoints/uid:one", &change).await.status,
            422,
            "{change}"
        );
    }
}

/// INV-8, the same on create and change.
#[tokio::test]
async fn a_forbidden_address_is_refused_on_create_and_on_change() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for host in [
        "10.0.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:10.0.0.1]",
        "[fd00:ec2::254]",
        "0.0.0.0",
        "192.168.1.1:8080",
    ] {
        let body = json!({ "url": format!("http://{host}/") });
        program
            .post(ENDPOINTS, &body)
            .await
            .refuses(422, "target_forbidden");
        program
            .patch("/v1/endpoints/uid:one", &body)
            .await
            .refuses(422, "target_forbidden");
    }
}

#[tokio::test]
async fn a_change_merges_and_null_brings_the_default_back() {
    let api = Api::start().await;
    let program = api.program().await;
    let fields = json!({ "uid": "one", "description": "old", "timeout_ms": 2000, "metadata": { "a": "1", "b": "2" },
        "headers": { "X-One": "1", "x-two": "2" }, "fatal_statuses": [400], "retry_policy": { "kind": "fixed", "delay_ms": 1000, "max_attempts": 3 } });
    program.endpoint(fields).await;
    let change = json!({ "metadata": { "a": null, "c": "3" }, "headers": { "x-one": null, "x-three": "3" }, "timeout_ms": null,
        "fatal_statuses": null, "description": null, "retry_policy": null });
    program
        .patch("/v1/endpoints/uid:one", &change)
        .await
        .expect(200);
    let read = program.get("/v1/endpoints/uid:one").await.expect(200);
    assert_eq!(read["metadata"], json!({ "b": "2", "c": "3" }));
    assert_eq!(
        read["headers"],
        json!({ "x-two": { "set": true }, "x-three": { "set": true } })
    );
    assert_eq!(
        (&read["timeout_ms"], &read["description"]),
        (&json!(15_000), &json!(""))
    );
    assert_eq!(
        (&read["fatal_statuses"], &read["retry_policy"]["name"]),
        (&json!([]), &json!("standard"))
    );
}

#[tokio::test]
async fn an_empty_change_changes_nothing() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let before = program.get("/v1/endpoints/uid:one").await.expect(200);
    program
        .patch("/v1/endpoints/uid:one", &json!({}))
        .await
        .expect(200);
    assert_eq!(
        program.get("/v1/endpoints/uid:one").await.expect(200),
        before
    );
}

#[tokio::test]
async fn changes_at_once_lose_nothing() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    let changes = (0..20).map(|n| {
        let change = json!({ "metadata": { format!("k{n:02}"): "v" } });
        let program = &program;
        async move {
            program
                .patch("/v1/endpoints/uid:one", &change)
                .await
                .status
                .as_u16()
        }
    });
    let statuses = futures_util::future::join_all(changes).await;
    assert_eq!(statuses, vec![200; 20]);
    let read = program.get("/v1/endpoints/uid:one").await.expect(200);
    assert_eq!(read["metadata"].as_object().unwrap().len(), 20);
}

#[tokio::test]
async fn a_uid_is_taken_until_its_endpoint_is_deleted() {
    let api = Api::start().await;
    let program = api.program().await;
    let (first, second) = (
        json!({ "url": "http://127.0.0.1:9/", "uid": "one" }),
        json!({ "uid": "one" }),
    );
    program.post(ENDPOINTS, &first).await.expect(201);
    program
        .post(ENDPOINTS, &first)
        .await
        .refuses(409, "uid_taken");
    program.endpoint(json!({ "uid": "two" })).await;
    let refused = program.patch("/v1/endpoints/uid:two", &second).await;
    let refused = refused.refuses(409, "uid_taken");
    assert_eq!(refused["errors"][0]["pointer"], "/uid");
    program.delete("/v1/endpoints/uid:one").await.expect(204);
    program
        .delete("/v1/endpoints/uid:one")
        .await
        .refuses(404, "not_found");
    program
        .patch("/v1/endpoints/uid:two", &second)
        .await
        .expect(200);
}

/// INV-12.
#[tokio::test]
async fn a_change_is_in_force_for_the_next_event() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for (state, matched) in [("disabled", false), ("paused", true), ("enabled", true)] {
        program
            .patch("/v1/endpoints/uid:one", &json!({ "state": state }))
            .await
            .expect(200);
        assert_eq!(
            program.event("order.paid").await["matched"],
            json!(matched),
            "{state}"
        );
    }
    program.delete("/v1/endpoints/uid:one").await.expect(204);
    assert_eq!(program.event("order.paid").await["matched"], json!(false));
}

#[tokio::test]
async fn endpoints_are_walked_both_ways() {
    let api = Api::start().await;
    let program = api.program().await;
    for _ in 0..5 {
        program.endpoint(json!({})).await;
    }
    assert_eq!(program.walk("/v1/endpoints?limit=2").await.len(), 5);
}

#[tokio::test]
async fn the_form_of_a_body_is_set_changed_and_read_back() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program.endpoint(json!({ "body": "standard" })).await;
    let path = format!("{ENDPOINTS}/{}", text(&made, "id"));
    let read = program.get(&path).await.expect(200);
    let listed = program.get(ENDPOINTS).await.expect(200);
    for endpoint in [&made, &read, &listed["data"][0]] {
        assert_eq!(endpoint["body"], "standard");
    }
    for (change, body) in [
        (json!({ "description": "x" }), "standard"),
        (json!({ "body": null }), "payload"),
        (json!({ "body": "standard" }), "standard"),
        (json!({ "body": "payload" }), "payload"),
    ] {
        let changed = program.patch(&path, &change).await.expect(200);
        assert_eq!(changed["body"], body, "{change}");
    }
    for body in [
        json!("Standard"),
        json!(""),
        json!("envelope"),
        json!(1),
        json!(["payload"]),
    ] {
        let fields = json!({ "url": "http://127.0.0.1:9/", "body": body });
        for answer in [
            program.post(ENDPOINTS, &fields).await,
            program.patch(&path, &json!({ "body": body })).await,
        ] {
            let refused = answer.refuses(422, "field_invalid");
            assert_eq!(refused["errors"][0]["pointer"], "/body");
        }
    }
    let fields = json!({ "url": "http://127.0.0.1:9/", "body": null });
    let refused = program.post(ENDPOINTS, &fields).await;
    refused.refuses(422, "field_invalid");
}

//! Events: accepted, read, listed.

use http::Method;
use http::header::{
    CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS,
};
use posthorn_domain::scope::Scope;
use serde_json::json;

use super::{Api, ids, text};

#[tokio::test]
async fn an_accepted_event_can_be_read_at_once() {
    let api = Api::start().await;
    let program = api.program().await;
    let endpoint = program.endpoint(json!({})).await;
    let body = json!({
        "type": "order.paid", "payload": { "id": 1 }, "metadata": { "shop": "7" }, "occurred_at": "2026-01-31T10:30:00.5+01:00",
    });
    let accepted = program.post("/v1/events", &body).await.expect(202);
    assert_eq!(
        (&accepted["matched"], &accepted["deliveries_count"]),
        (&json!(true), &json!(1))
    );
    let event = program
        .get(&format!("/v1/events/{}", text(&accepted, "id")))
        .await
        .expect(200);
    assert_eq!(event["accepted_at"], accepted["accepted_at"]);
    assert_eq!(event["occurred_at"], "2026-01-31T09:30:00.500000Z");
    assert_eq!(event["metadata"], json!({ "shop": "7" }));
    assert_eq!(event["deliveries"][0]["endpoint_id"], endpoint["id"]);
    assert_eq!(event["deliveries"][0]["state"], "waiting");
}

#[tokio::test]
async fn the_first_and_the_last_time_that_can_be_written_are_given_back() {
    let api = Api::start().await;
    let program = api.program().await;
    for at in ["0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"] {
        let body = json!({ "type": "order.paid", "payload": 1, "occurred_at": at });
        let accepted = program.post("/v1/events", &body).await.expect(202);
        let event = program
            .get(&format!("/v1/events/{}", text(&accepted, "id")))
            .await
            .expect(200);
        assert_eq!(event["occurred_at"], at);
    }
    let body =
        json!({ "type": "order.paid", "payload": 1, "occurred_at": "9999-12-31T23:59:59-00:01" });
    let refused = program
        .post("/v1/events", &body)
        .await
        .refuses(422, "field_invalid");
    assert_eq!(refused["errors"][0]["pointer"], "/occurred_at");
}

#[tokio::test]
async fn an_event_that_nobody_wants_says_so() {
    let api = Api::start().await;
    let program = api.program().await;
    program
        .endpoint(json!({ "event_types": ["order.*"] }))
        .await;
    for event_type in ["order", "order.paid.twice", "Order.paid", "invoice.paid"] {
        assert_eq!(
            program.event(event_type).await["matched"],
            json!(false),
            "{event_type}"
        );
    }
    assert_eq!(program.event("order.paid").await["matched"], json!(true));
}

/// INV-3.
#[tokio::test]
async fn a_payload_is_read_back_byte_for_byte() {
    let api = Api::start().await;
    let program = api.program().await;
    let long = format!(r#"{{"a":1.0,"z":"{}"}}"#, "\u{1f600}".repeat(5_000));
    for payload in [
        r#"{"a":9007199254740993,"b":50755254975729665,"c":8202522731445525542,"d":18446744073709551616}"#,
        r#"{"a":1.0,"b":1e3,"c":-0,"d":1E400,"e":-1.7976931348623157e+308,"f":1.10,"g":1E-7}"#,
        r#"{"b":1,"a":2,"cc":0,"c":{},"b":3}"#,
        r#"{"t":"\ud800"}"#,
        r#"{"t":"a\u0000b"}"#,
        r#""hi""#,
        "null",
        "{\r\n\t\"a\" : [ ]\n}",
        long.as_str(),
    ] {
        let body = format!(r#"{{"type":"order.paid", "payload" : {payload} }}"#);
        let accepted = program
            .call(Method::POST, "/v1/events", Some(body.into_bytes()))
            .await
            .expect(202);
        let read = program
            .get(&format!("/v1/events/{}/payload", text(&accepted, "id")))
            .await;
        assert_eq!(String::from_utf8_lossy(&read.bytes), payload);
    }
}

#[tokio::test]
async fn a_payload_is_served_as_a_file_that_no_browser_runs() {
    let api = Api::start().await;
    let program = api.program().await;
    let event = text(&program.event("order.paid").await, "id");
    let headers = program
        .get(&format!("/v1/events/{event}/payload"))
        .await
        .headers;
    assert_eq!(headers[CONTENT_TYPE], "application/octet-stream");
    assert_eq!(headers[X_CONTENT_TYPE_OPTIONS], "nosniff");
    assert!(
        headers[CONTENT_DISPOSITION]
            .to_str()
            .unwrap()
            .starts_with("attachment")
    );
    assert!(
        headers[CONTENT_SECURITY_POLICY]
            .to_str()
            .unwrap()
            .contains("sandbox")
    );
}

#[tokio::test]
async fn a_payload_needs_a_scope_of_its_own() {
    let api = Api::start().await;
    let writer = api.program().await;
    let event = text(&writer.event("order.paid").await, "id");
    let reader = api.program_of(writer.tenant, &[Scope::EventsRead]).await;
    reader.get(&format!("/v1/events/{event}")).await.expect(200);
    reader
        .get(&format!("/v1/events/{event}/payload"))
        .await
        .refuses(403, "scope_missing");
}

#[tokio::test]
async fn a_walk_gives_every_event_once_though_others_arrive() {
    let api = Api::start().await;
    let program = api.program().await;
    let mut before = Vec::new();
    for _ in 0..7 {
        before.insert(0, text(&program.event("order.paid").await, "id"));
    }
    let mut page = program.get("/v1/events?limit=2").await.expect(200);
    let mut walked = ids(&page);
    while let Some(cursor) = page["next_cursor"].as_str() {
        program.event("order.late").await;
        page = program
            .get(&format!("/v1/events?limit=2&cursor={cursor}"))
            .await
            .expect(200);
        walked.extend(ids(&page));
    }
    assert_eq!(walked, before);
}

#[tokio::test]
async fn lists_are_walked_both_ways_in_both_orders() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({})).await;
    let mut events = Vec::new();
    for _ in 0..6 {
        events.push(text(&program.event("order.paid").await, "id"));
    }
    assert_eq!(program.walk("/v1/events?limit=3&order=asc").await, events);
    events.reverse();
    assert_eq!(program.walk("/v1/events?limit=3").await, events);
    assert_eq!(program.walk("/v1/events?limit=4").await, events);
}

#[tokio::test]
async fn a_window_is_half_open_to_the_microsecond() {
    let api = Api::start().await;
    let program = api.program().await;
    let mut events = Vec::new();
    for _ in 0..4 {
        events.push(program.event("order.paid").await);
    }
    let at = |n: usize| text(&events[n], "accepted_at");
    let listed = |since: usize, until: usize| {
        format!(
            "/v1/events?order=asc&since={}&until={}",
            at(since),
            at(until)
        )
    };
    for (since, until) in [(0, 3), (1, 3), (1, 2), (2, 2), (3, 1)] {
        let expected: Vec<_> = events
            .iter()
            .filter(|event| (at(since)..at(until)).contains(&text(event, "accepted_at")))
            .collect();
        let found = ids(&program.get(&listed(since, until)).await.expect(200));
        assert_eq!(
            found,
            expected
                .into_iter()
                .map(|event| text(event, "id"))
                .collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a_cursor_serves_only_the_list_that_gave_it() {
    let api = Api::start().await;
    let (program, stranger) = (api.program().await, api.program().await);
    for _ in 0..2 {
        program.event("order.paid").await;
    }
    let cursor = text(
        &program.get("/v1/events?limit=1").await.expect(200),
        "next_cursor",
    );
    for path in [
        "/v1/events?order=asc&",
        "/v1/endpoints?",
        "/v1/events?since=2020-01-01T00:00:00Z&",
    ] {
        program
            .get(&format!("{path}cursor={cursor}"))
            .await
            .refuses(422, "cursor_invalid");
    }
    stranger
        .get(&format!("/v1/events?cursor={cursor}"))
        .await
        .refuses(422, "cursor_invalid");
    let bent = format!(
        "{}{}",
        &cursor[..cursor.len() - 1],
        if cursor.ends_with('A') { 'B' } else { 'A' }
    );
    program
        .get(&format!("/v1/events?cursor={bent}"))
        .await
        .refuses(422, "cursor_invalid");
}

#[tokio::test]
async fn an_events_deliveries_are_listed_by_endpoint() {
    let api = Api::start().await;
    let program = api.program().await;
    for _ in 0..5 {
        program.endpoint(json!({})).await;
    }
    let event = text(&program.event("order.paid").await, "id");
    assert_eq!(
        program
            .walk(&format!("/v1/deliveries?event_id={event}&limit=2"))
            .await
            .len(),
        5
    );
}

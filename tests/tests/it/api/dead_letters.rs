//! Dead letters: listed, read, replayed.

use serde_json::{Value, json};

use super::{Api, Program, ids, text};

/// Every open delivery failed once and is laid in the dead letters, a millisecond after the one before.
pub(super) const LAY_ALL: &str = "
    WITH laid AS (
        INSERT INTO dead_letters (tenant_id, endpoint_id, event_id, type, cause, deaths, died_at)
        SELECT e.tenant_id, x.endpoint_id, e.id, e.type, 'exhausted', 1,
               now() + row_number() OVER (ORDER BY e.id, x.endpoint_id) * interval '1 millisecond'
        FROM events e CROSS JOIN unnest(e.endpoints) AS x (endpoint_id)
        RETURNING tenant_id, endpoint_id, event_id
    )
    INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, status, at, duration_ms, trigger, error_kind,
                          response_headers, response_body, response_size, response_cut, config_seq)
    SELECT laid.tenant_id, laid.endpoint_id, laid.event_id, 1, (1::bigint << 32) + 7, 'failed', 500, now(), 12, NULL, 'status',
           '[[\"x-a\",\"b\"]]', 'oh no'::bytea, 5, false, ep.config_seq
    FROM laid JOIN endpoints ep ON ep.tenant_id = laid.tenant_id AND ep.id = laid.endpoint_id";

/// The only dead letter of a program with an endpoint `one`.
pub(super) async fn dead_letter(program: &Program<'_>) -> String {
    program
        .endpoint(json!({ "uid": "one", "max_age_s": 600 }))
        .await;
    program.event("order.paid").await;
    program.api.rows.run(LAY_ALL).await;
    ids(&program.get("/v1/dead-letters").await.expect(200)).remove(0)
}

fn replay(id: &str) -> String {
    format!("/v1/dead-letters/{id}/replay")
}

#[tokio::test]
async fn a_dead_letter_tells_why_and_what_was_tried() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    let letter = program
        .get(&format!("/v1/dead-letters/{id}"))
        .await
        .expect(200);
    assert_eq!(
        (&letter["cause"], &letter["attempt_count"]),
        (&json!("exhausted"), &json!(1))
    );
    assert_eq!(letter["last_attempt"]["status"], 500);
    let delivery = program
        .get(&format!("/v1/deliveries/{id}"))
        .await
        .expect(200);
    assert_eq!(
        (&delivery["state"], &delivery["attempts"][0]["n"]),
        (&json!("dead"), &json!(1))
    );
}

#[tokio::test]
async fn an_attempt_shows_its_request_and_its_answer() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    let attempts = program
        .get(&format!("/v1/deliveries/{id}"))
        .await
        .expect(200);
    let id = text(&attempts["attempts"][0], "id");
    let attempt = program.get(&format!("/v1/attempts/{id}")).await.expect(200);
    assert_eq!(attempt["request"]["url"], "http://127.0.0.1:9/hook");
    assert_eq!(
        attempt["response"]["headers"],
        json!([{ "name": "x-a", "value": "b" }])
    );
    assert_eq!(
        attempt["response"]["body"],
        json!({ "text": "oh no", "base64": null, "bytes": 5, "cut": false })
    );
    let reader = api
        .program_of(program.tenant, &[posthorn_domain::scope::Scope::EventsRead])
        .await;
    let attempt = reader.get(&format!("/v1/attempts/{id}")).await.expect(200);
    assert_eq!(attempt["response"]["body"], Value::Null);
}

#[tokio::test]
async fn a_replay_makes_the_delivery_due_with_the_next_number_and_a_new_end() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    let delivery = program
        .call(http::Method::POST, &replay(&id), None)
        .await
        .expect(202);
    assert_eq!(
        (&delivery["id"], &delivery["state"]),
        (&json!(id), &json!("retrying"))
    );
    let right = "SELECT count(*) FROM pending WHERE n = 2 AND since = 2 AND step = 0 AND why = 'replay' AND due <= now()
                 AND ends_at BETWEEN now() + interval '9 minutes' AND now() + interval '10 minutes'";
    assert_eq!(api.rows.number(right).await, 1);
    program
        .get(&format!("/v1/dead-letters/{id}"))
        .await
        .expect(200);
}

#[tokio::test]
async fn a_delivery_that_is_retrying_is_not_replayed_twice() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    let (path, nothing) = (replay(&id), json!({}));
    let replays = (0..10).map(|_| program.post(&path, &nothing));
    let mut statuses: Vec<_> = futures_util::future::join_all(replays)
        .await
        .iter()
        .map(|answer| answer.status.as_u16())
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![202], vec![409; 9]].concat());
    program
        .post(&path, &json!({}))
        .await
        .refuses(409, "delivery_retrying");
}

#[tokio::test]
async fn a_dead_letter_of_a_disabled_or_deleted_endpoint_is_not_replayed() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    program
        .patch("/v1/endpoints/uid:one", &json!({ "state": "disabled" }))
        .await
        .expect(200);
    let refused = program.post(&replay(&id), &json!({})).await;
    let refused = refused.refuses(409, "endpoint_disabled");
    assert!(super::text(&refused, "detail").contains("change its `state` to `enabled` first"));
    program.delete("/v1/endpoints/uid:one").await.expect(204);
    program
        .post(&replay(&id), &json!({}))
        .await
        .refuses(409, "endpoint_deleted");
    assert_eq!(api.rows.number("SELECT count(*) FROM pending").await, 0);
}

#[tokio::test]
async fn a_dead_letter_whose_payload_is_gone_is_not_replayed() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    api.rows.run("DELETE FROM events").await;
    program
        .post(&replay(&id), &json!({}))
        .await
        .refuses(410, "payload_gone");
}

#[tokio::test]
async fn a_replay_takes_no_fields() {
    let api = Api::start().await;
    let program = api.program().await;
    let id = dead_letter(&program).await;
    program
        .post(&replay(&id), &json!({ "reason": "x" }))
        .await
        .refuses(422, "field_unknown");
    program
        .call(http::Method::POST, &replay(&id), Some(b"{".to_vec()))
        .await
        .refuses(400, "malformed_json");
}

#[tokio::test]
async fn dead_letters_and_attempts_are_walked_both_ways_with_and_without_filters() {
    let api = Api::start().await;
    let program = api.program().await;
    let one = text(&program.endpoint(json!({})).await, "id");
    program.endpoint(json!({})).await;
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(text(&program.event("order.paid").await, "id"));
    }
    api.rows.run(LAY_ALL).await;
    for order in ["asc", "desc"] {
        let walk = |path: String| {
            let program = &program;
            async move {
                program
                    .walk(&format!("{path}limit=2&order={order}"))
                    .await
                    .len()
            }
        };
        assert_eq!(walk("/v1/dead-letters?".into()).await, 10);
        assert_eq!(
            walk(format!("/v1/dead-letters?endpoint_id={one}&")).await,
            5
        );
        assert_eq!(walk(format!("/v1/attempts?endpoint_id={one}&")).await, 5);
        assert_eq!(
            walk(format!("/v1/attempts?event_id={}&", events[0])).await,
            2
        );
        assert_eq!(
            walk(format!(
                "/v1/attempts?event_id={}&endpoint_id={one}&",
                events[0]
            ))
            .await,
            1
        );
    }
}

#[tokio::test]
async fn a_window_of_dead_letters_is_half_open() {
    let api = Api::start().await;
    let program = api.program().await;
    let one = text(&program.endpoint(json!({})).await, "id");
    for _ in 0..4 {
        program.event("order.paid").await;
    }
    api.rows.run(LAY_ALL).await;
    let all = program.get("/v1/dead-letters?order=asc").await.expect(200);
    let at = |n: usize| text(&all["data"][n], "died_at");
    for filter in [String::new(), format!("&endpoint_id={one}")] {
        let path = format!(
            "/v1/dead-letters?order=asc&since={}&until={}{filter}",
            at(1),
            at(3)
        );
        assert_eq!(
            ids(&program.get(&path).await.expect(200)),
            ids(&all)[1..3],
            "{filter}"
        );
    }
}

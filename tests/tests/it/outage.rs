//! What a node finds when it comes back: a backlog that has grown meanwhile, and rows that it cannot make anything of.

use std::time::Duration;

use posthorn_tests::program::At;
use posthorn_tests::wait::{pause, until};
use serde_json::json;

use crate::stage::{AMPLE, Stage};

/// Deliveries that wait, half of them for a moment that has passed.
const WAITING: usize = 20_000;

/// Endpoints of the tenant that has nearly all of them.
const ENDPOINTS: usize = 19;

/// As many deliveries that failed once as there would be, had the node run: of events of the last minutes, spread over the endpoints,
/// by turns overdue and due in an hour.
const BACKLOG: &str = "\
    WITH whose AS MATERIALIZED (
        SELECT row_number() OVER () - 1 AS place, count(*) OVER () AS many, tenant_id, id FROM endpoints
    ), made AS (
        INSERT INTO events (tenant_id, id, stream, type, endpoints, codec, size, payload)
        SELECT w.tenant_id,
               (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0')
                || '7' || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text || 'x'), 1, 15))::uuid,
               0, 'a.b', ARRAY[w.id], 0, 1, '1'
        FROM generate_series(0, 19999) AS n
        JOIN whose AS w ON w.place = n % w.many
        RETURNING tenant_id, id, endpoints
    ), numbered AS (
        SELECT *, row_number() OVER (PARTITION BY endpoints ORDER BY id) AS n FROM made
    ), tried AS (
        INSERT INTO attempts (tenant_id, endpoint_id, event_id, n, id, outcome, status, at, duration_ms, remote_address, config_seq)
        SELECT tenant_id, endpoints[1], id, 1, (1::bigint << 32), 'failed', 500, now(), 1, '127.0.0.1:49152', 1
        FROM numbered
    )
    INSERT INTO pending (tenant_id, endpoint_id, event_id, shard, due, n, step, since, ends_at, why)
    SELECT tenant_id, endpoints[1], id, get_byte(uuid_send(endpoints[1]), 15),
           now() + CASE WHEN n % 2 = 0 THEN interval '1 hour' ELSE -interval '10 min' * random() END,
           2, 1, 1, now() + interval '5 days', 'retry'
    FROM numbered";

/// INV-13; D07: all that is overdue goes out at once, by turns, and nothing of the rest before its time.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_thousand_retries_that_waited_for_a_node_go_out_by_turns_and_none_before_its_time() {
    let mut stage = Stage::set().await;
    for place in 0..ENDPOINTS {
        stage.endpoint(&format!("/many/{place}"), 1000, 5).await;
    }
    let stranger = stage.stranger().await;
    stranger
        .endpoint(&json!({"url": stage.receiver.url("/few")}))
        .await;
    stage.node.ask_to_end();
    stage.node.ended(AMPLE).await;
    stage.installation.query(BACKLOG).await;
    stage.node.start_again();
    stage.node.ready().await;
    until("what is overdue", Duration::from_mins(2), async || {
        (stage.receiver.map(|_| ()).len() >= WAITING / 2).then_some(())
    })
    .await;
    // Long enough for a sweep to take more, if it did.
    pause(Duration::from_secs(3)).await;
    let paths = stage.receiver.map(|request| request.path() == "/few");
    assert_eq!(paths.len(), WAITING / 2);
    // Its turn does not come later because the other has more: of the first half it has no less than of the whole.
    let few = paths[..WAITING / 4].iter().filter(|few| **few).count();
    assert!(
        few >= WAITING / 4 / (ENDPOINTS + 1),
        "{few} of the other tenant's in the first half"
    );
    let left = "SELECT count(*)::text FROM pending WHERE due > now() + interval '50 min'";
    until("what is overdue to be on record", AMPLE, async || {
        let all = stage
            .installation
            .query("SELECT count(*)::text FROM pending")
            .await;
        (all == [(WAITING / 2).to_string()]).then_some(())
    })
    .await;
    assert_eq!(
        stage.installation.query(left).await,
        [(WAITING / 2).to_string()]
    );
}

/// D12: a secret that no key opens is one endpoint's failure, to be seen by whoever has it, and nobody else's.
#[tokio::test]
async fn a_secret_that_cannot_be_opened_fails_its_own_deliveries_alone() {
    let mut stage = Stage::set().await;
    let broken = stage.endpoint("/broken", 100, 2).await;
    stage.endpoint("/whole", 100, 2).await;
    stage.node.ask_to_end();
    stage.node.ended(AMPLE).await;
    stage
        .installation
        .query(
            "UPDATE endpoint_secrets SET sealed = set_byte(sealed, length(sealed) - 1, 255 - get_byte(sealed, length(sealed) - 1))
             WHERE endpoint_id = (SELECT min(id::text)::uuid FROM endpoints)",
        )
        .await;
    stage.node.start_again();
    stage.node.ready().await;
    for _ in 0..3 {
        let id = stage.api.submit("a.b", b"1").await;
        let path = format!("/v1/events/{id}");
        let states = until("both to have ended", AMPLE, async || {
            let event = stage.api.get(&path).await.expect(200);
            let mut states: Vec<_> = event
                .list("/deliveries")
                .iter()
                .map(|one| (one.text("/state"), one.text("/endpoint_id")))
                .collect();
            states.sort();
            (states.len() == 2
                && states
                    .iter()
                    .all(|(state, _)| state == "dead" || state == "delivered"))
            .then_some(states)
        })
        .await;
        assert_eq!(states[0], ("dead".to_owned(), broken.text("/id")));
        let attempts = format!(
            "/v1/attempts?event_id={id}&endpoint_id={}",
            broken.text("/id")
        );
        let attempts = stage.api.get(&attempts).await.expect(200);
        for attempt in attempts.list("/data") {
            assert_eq!(attempt.text("/error/kind"), "config", "{attempt}");
        }
    }
    assert_eq!(stage.receiver.requests_to("/broken").len(), 0);
    assert_eq!(stage.receiver.requests_to("/whole").len(), 3);
}

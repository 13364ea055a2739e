//! `Idempotency-Key` and `uid`, as a caller sees them.

use axum::body::Body;
use futures_util::future::join_all;
use http::Method;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use posthorn_domain::id::KeyId;
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::scope::Scope;
use posthorn_store::clock::Clock;
use posthorn_store::configure::Sealer;
use posthorn_store::entropy::Entropy;
use posthorn_store::idempotent::{Claimed, KeyedRequest, claim};
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_tests::tenants::ring;
use posthorn_worker::Expiry;
use serde_json::{Value, json};

use super::dead_letters::LAY_ALL;
use super::{Answer, Api, Program, ids, text};

const EVENTS: &str = "/v1/events";
const ENDPOINTS: &str = "/v1/endpoints";
const EVENT: &str = r#"{"type":"order.paid","payload":{"id":1}}"#;
const ENDPOINT: &str = r#"{"url":"http://127.0.0.1:9/hook"}"#;

impl Program<'_> {
    /// POST with a key.
    async fn keyed(&self, path: &str, key: &str, body: &str) -> Answer {
        let request = self
            .request(Method::POST, path)
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", key)
            .body(Body::from(body.to_owned()))
            .unwrap();
        self.api.send(request).await
    }

    /// A request with the key `k`, as the layer sees it.
    fn request_k(&self, route: &str, body: &str) -> KeyedRequest {
        KeyedRequest {
            scope: TenantScope::new_authenticated(self.tenant, Actor::COMMAND_LINE),
            route: route.to_owned(),
            key: IdempotencyKey::parse(b"k").unwrap(),
            body_hash: BodyHash::of(body.as_bytes()),
        }
    }
}

impl Api {
    async fn count(&self, statement: &'static str) -> i64 {
        self.rows.number(statement).await
    }

    /// Claims a key for somebody, and leaves it at that.
    async fn claimed(&self, request: KeyedRequest) -> Claimed {
        let ring = ring();
        let sealer = Sealer {
            ring: &ring,
            clock: &Clock::start(),
            entropy: Entropy,
        };
        let caller = KeyId::mint(sealer.clock.now(), Entropy.bytes());
        let claimed = claim(&self.node.database, request, caller, &sealer).await;
        claimed.unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Status, body, type and location.
type Told<'a> = (u16, &'a [u8], Option<&'a [u8]>, Option<&'a [u8]>);

impl Answer {
    fn is_replayed(&self) -> bool {
        self.headers
            .get("idempotency-replayed")
            .is_some_and(|value| value == "true")
    }

    /// What must be the same in each answer to one request.
    fn told(&self) -> Told<'_> {
        let header = |name| {
            self.headers
                .get(name)
                .map(http::header::HeaderValue::as_bytes)
        };
        (
            self.status.as_u16(),
            &self.bytes,
            header(CONTENT_TYPE),
            header(LOCATION),
        )
    }
}

/// E01, E26.
#[tokio::test]
async fn an_event_that_is_submitted_again_gets_the_first_answer() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = program.keyed(EVENTS, "k", EVENT).await;
    let again = program.keyed(EVENTS, "\"k\"", EVENT).await;
    first.expect(202);
    assert_eq!(first.told(), again.told());
    assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
    assert_eq!(api.count("SELECT count(*) FROM events").await, 1);
}

/// E01: whatever is wrong with it, the key comes first.
#[tokio::test]
async fn a_key_with_another_body_is_refused_and_the_first_answer_stays() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = program.keyed(EVENTS, "k", EVENT).await;
    for other in [
        &EVENT.replace('1', "2"),
        &format!("{EVENT} "),
        r#"{"type":"..","payload":1}"#,
        r#"{"type":"a","payload":1,"data":1}"#,
        "{",
    ] {
        let refused = program.keyed(EVENTS, "k", other).await;
        refused.refuses(422, "idempotency_key_reused");
    }
    let again = program.keyed(EVENTS, "k", EVENT).await;
    assert_eq!(first.told(), again.told());
    assert_eq!(api.count("SELECT count(*) FROM events").await, 1);
}

/// A submission that was refused holds no key.
#[tokio::test]
async fn a_key_of_a_refused_submission_is_free() {
    let api = Api::start().await;
    let program = api.program().await;
    let refused = program.keyed(EVENTS, "k", r#"{"type":"..","payload":1}"#);
    refused.await.refuses(422, "event_type_invalid");
    program.keyed(EVENTS, "k", EVENT).await.expect(202);
}

/// E07.
#[tokio::test]
async fn a_uid_is_shown_with_its_event_and_taken_once() {
    let api = Api::start().await;
    let program = api.program().await;
    let body = json!({ "type": "order.paid", "payload": 1, "uid": "order-7:paid" });
    let first = program.post(EVENTS, &body).await;
    let again = program.post(EVENTS, &body).await;
    assert_eq!(first.expect(202)["uid"], "order-7:paid");
    assert_eq!(first.told(), again.told());
    assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
    let id = text(&first.json(), "id");
    let read = program.get(&format!("{EVENTS}/{id}")).await.expect(200);
    let listed = program.get(EVENTS).await.expect(200);
    assert_eq!(
        (&read["uid"], &listed["data"][0]["uid"]),
        (&json!("order-7:paid"), &json!("order-7:paid"))
    );
    let other = json!({ "type": "order.paid", "payload": 2, "uid": "order-7:paid" });
    let refused = program
        .post(EVENTS, &other)
        .await
        .refuses(422, "uid_reused");
    assert_eq!(refused["errors"][0]["pointer"], "/uid");
}

#[tokio::test]
async fn a_text_that_is_no_uid_is_refused() {
    let api = Api::start().await;
    let program = api.program().await;
    for uid in ["", "evt_1", "a b", "é", &"u".repeat(129)] {
        let body = json!({ "type": "order.paid", "payload": 1, "uid": uid });
        let refused = program.post(EVENTS, &body).await;
        refused.refuses(422, "uid_invalid");
    }
    let without = json!({ "type": "order.paid", "payload": 1, "uid": null });
    assert_eq!(
        program.post(EVENTS, &without).await.expect(202)["uid"],
        Value::Null
    );
}

#[tokio::test]
async fn a_key_that_is_empty_too_long_or_unprintable_is_refused_by_every_post() {
    let api = Api::start().await;
    let program = api.program().await;
    for (path, body) in [(EVENTS, EVENT), (ENDPOINTS, ENDPOINT)] {
        for key in ["", "\"\"", "\"k", "é", &"k".repeat(256)] {
            let refused = program.keyed(path, key, body).await;
            refused.refuses(422, "idempotency_key_invalid");
        }
    }
    let longest = format!("\"{}\"", "k".repeat(255));
    program.keyed(EVENTS, &longest, EVENT).await.expect(202);
    program
        .keyed(ENDPOINTS, &longest, ENDPOINT)
        .await
        .expect(201);
}

/// INV-10; E01: the answer with its secret is given again, and lies sealed in between.
#[tokio::test]
async fn an_endpoint_is_made_once_and_its_answer_given_again_byte_for_byte() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    let again = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    assert!(text(&first.expect(201), "secret").starts_with("whsec_"));
    assert_eq!(first.told(), again.told());
    assert_eq!((first.is_replayed(), again.is_replayed()), (false, true));
    assert_eq!(api.count("SELECT count(*) FROM endpoints").await, 1);
    let plain = api
        .count(
            "SELECT count(*) FROM idempotent_answers WHERE position('whsec_'::bytea IN sealed) > 0",
        )
        .await;
    assert_eq!(plain, 0);
}

/// INV-10: the answer holds a secret that was shown once, to somebody else.
#[tokio::test]
async fn an_answer_is_not_given_again_to_another_key_of_its_tenant_whatever_that_may_do() {
    let api = Api::start().await;
    let first = api.program().await;
    let made = first.keyed(ENDPOINTS, "k", ENDPOINT).await;
    let rotate = format!(
        "{ENDPOINTS}/{}/rotate-secret",
        text(&made.expect(201), "id")
    );
    first.keyed(&rotate, "k", "{}").await.expect(200);
    for scope in [Scope::EndpointsWrite, Scope::Admin] {
        let other = api.program_of(first.tenant, &[scope]).await;
        for (path, body) in [(ENDPOINTS, ENDPOINT), (&rotate, "{}")] {
            let refused = other.keyed(path, "k", body).await;
            refused.refuses(409, "idempotency_answer_withheld");
        }
    }
    let again = first.keyed(ENDPOINTS, "k", ENDPOINT).await;
    assert_eq!(again.told(), made.told());
}

/// E01.
#[tokio::test]
async fn a_key_of_an_endpoint_with_another_body_is_refused() {
    let api = Api::start().await;
    let program = api.program().await;
    program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
    let other = ENDPOINT.replace("hook", "other");
    let refused = program.keyed(ENDPOINTS, "k", &other).await;
    refused.refuses(422, "idempotency_key_reused");
    assert_eq!(api.count("SELECT count(*) FROM endpoints").await, 1);
}

#[tokio::test]
async fn failures_are_not_remembered() {
    let api = Api::start().await;
    let program = api.program().await;
    program
        .keyed(ENDPOINTS, "k", r#"{"url":"no"}"#)
        .await
        .refuses(422, "url_invalid");
    program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
}

/// What the database did not answer may have happened: it is not done twice meanwhile.
#[tokio::test]
async fn a_key_whose_request_had_no_answer_from_the_database_is_in_use_until_its_time_is_over() {
    let api = Api::start().await;
    let program = api.program().await;
    api.rows.run("BEGIN").await;
    api.rows.run("LOCK TABLE endpoints IN EXCLUSIVE MODE").await;
    let stalled = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    stalled.refuses(503, "unavailable");
    api.rows.run("COMMIT").await;
    let again = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    again.refuses(409, "idempotency_key_in_use");
    api.rows
        .run("UPDATE idempotent_answers SET running_until = running_until - interval '60 seconds'")
        .await;
    program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
}

/// E02.
#[tokio::test]
async fn endpoints_that_are_made_at_once_with_one_key_are_one() {
    let api = Api::start().await;
    let program = api.program().await;
    let answers = join_all((0..50).map(|_| program.keyed(ENDPOINTS, "k", ENDPOINT))).await;
    let made: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status.as_u16() == 201)
        .collect();
    assert!(made.iter().all(|answer| answer.told() == made[0].told()));
    assert_eq!(
        made.iter().filter(|answer| !answer.is_replayed()).count(),
        1
    );
    for answer in answers.iter().filter(|a| a.status.as_u16() != 201) {
        answer.refuses(409, "idempotency_key_in_use");
    }
    assert_eq!(api.count("SELECT count(*) FROM endpoints").await, 1);
}

/// E04, INV-9.
#[tokio::test]
async fn a_key_is_for_one_tenant_and_one_route() {
    let api = Api::start().await;
    for program in [api.program().await, api.program().await] {
        program.keyed(EVENTS, "k", EVENT).await.expect(202);
        program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
    }
    assert_eq!(api.count("SELECT count(*) FROM events").await, 2);
    assert_eq!(api.count("SELECT count(*) FROM endpoints").await, 2);
}

/// A request that is under way, and then a node that died over it.
#[tokio::test]
async fn a_key_whose_request_is_under_way_is_in_use_until_its_time_is_over() {
    let api = Api::start().await;
    let program = api.program().await;
    let request = program.request_k("POST /v1/endpoints", ENDPOINT);
    let crashed = api.claimed(request).await;
    assert!(matches!(crashed, Claimed::Mine(_)));
    let running = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    running.refuses(409, "idempotency_key_in_use");
    assert_eq!(running.headers[RETRY_AFTER], "1");
    let other = ENDPOINT.replace("hook", "other");
    let refused = program.keyed(ENDPOINTS, "k", &other).await;
    refused.refuses(422, "idempotency_key_reused");
    let travelled = api
        .rows
        .run("UPDATE idempotent_answers SET running_until = running_until - interval '60 seconds'")
        .await;
    assert_eq!(travelled, 1);
    program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
}

/// What it would keep is not the answer that counts any more.
#[tokio::test]
async fn a_request_that_outlived_its_claim_keeps_no_answer() {
    let api = Api::start().await;
    let program = api.program().await;
    let request = program.request_k("POST /v1/endpoints", ENDPOINT);
    let Claimed::Mine(late) = api.claimed(request).await else {
        panic!("nobody else has the key")
    };
    api.rows
        .run("UPDATE idempotent_answers SET running_until = now()")
        .await;
    let first = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    late.release(&api.node.database).await.unwrap();
    let again = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    first.expect(201);
    assert_eq!(first.told(), again.told());
}

/// E06.
#[tokio::test]
async fn an_answer_that_expired_is_given_no_more_and_deleted_later() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    let expiry = Expiry::new(api.node.database.clone());
    assert_eq!(expiry.run_once().await.answers, 0);
    api.rows
        .run("UPDATE idempotent_answers SET expires_at = now()")
        .await;
    let second = program.keyed(ENDPOINTS, "k", ENDPOINT).await;
    assert_ne!(first.expect(201)["id"], second.expect(201)["id"]);
    api.rows
        .run("UPDATE idempotent_answers SET expires_at = now() - interval '2 minutes'")
        .await;
    assert_eq!(expiry.run_once().await.answers, 1);
}

/// A replay that is asked for again is not a second one; another letter's is.
#[tokio::test]
async fn a_replay_with_a_key_is_asked_for_as_often_as_one_likes() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "max_age_s": 600 })).await;
    program.event("order.paid").await;
    program.event("order.paid").await;
    api.rows.run(LAY_ALL).await;
    let letters = ids(&program.get("/v1/dead-letters").await.expect(200));
    for letter in &letters {
        let path = format!("/v1/dead-letters/{letter}/replay");
        let first = program.keyed(&path, "k", "").await;
        let again = program.keyed(&path, "k", "").await;
        assert_eq!(text(&first.expect(202), "id"), *letter);
        assert_eq!((first.told(), again.is_replayed()), (again.told(), true));
    }
    assert_eq!(api.count("SELECT count(*) FROM pending").await, 2);
}

/// What a node leaves behind that went down after a change and before its answer was kept.
const ANSWER_LOST: &str = "UPDATE idempotent_answers
     SET running_until = now() - interval '1 second', status = NULL, key_id = NULL, sealed = NULL";

/// Whatever a POST with a key changes, a crash at any moment does not have it done twice.
#[tokio::test]
async fn a_change_whose_answer_was_lost_is_not_made_again() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program.keyed(ENDPOINTS, "k", ENDPOINT).await.expect(201);
    program.event("order.paid").await;
    api.rows.run(LAY_ALL).await;
    let letter = ids(&program.get("/v1/dead-letters").await.expect(200)).remove(0);
    let rotate = format!("{ENDPOINTS}/{}/rotate-secret", text(&made, "id"));
    let replay = format!("/v1/dead-letters/{letter}/replay");
    program.keyed(&rotate, "k", "{}").await.expect(200);
    program.keyed(&replay, "k", "").await.expect(202);
    api.rows.run(ANSWER_LOST).await;
    for (path, body) in [(ENDPOINTS, ENDPOINT), (&rotate, "{}"), (&replay, "")] {
        for _ in 0..2 {
            let again = program.keyed(path, "k", body).await.expect(409);
            assert_eq!(text(&again, "code"), "idempotency_answer_lost", "{path}");
        }
        let other = program.keyed(path, "k", "{\"url\":1}").await.expect(422);
        assert_eq!(text(&other, "code"), "idempotency_key_reused", "{path}");
    }
    assert_eq!(api.count("SELECT count(*) FROM endpoints").await, 1);
    assert_eq!(api.count("SELECT count(*) FROM endpoint_secrets").await, 2);
    assert_eq!(api.count("SELECT count(*) FROM pending").await, 1);
}

/// A foreign or unknown path with a key is told like one without.
#[tokio::test]
async fn a_key_changes_nothing_about_refusals() {
    let api = Api::start().await;
    let program = api.program().await;
    let unknown = format!("/v1/dead-letters/dlv_{}/replay", "0".repeat(52));
    for path in [
        unknown,
        format!("/v1/dead-letters/{}/replay", "x".repeat(2000)),
    ] {
        let refused = program.keyed(&path, "k", "").await;
        refused.refuses(404, "not_found");
    }
    let refused = program.keyed("/v1/nothing", "k", "").await;
    refused.refuses(404, "route_not_found");
    assert_eq!(
        api.count("SELECT count(*) FROM idempotent_answers").await,
        0
    );
}

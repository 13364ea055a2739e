//! POST /v1/endpoints/{id}/test, through the real program: one request now, what came of it, and nothing after it.

use futures_util::future::join_all;
use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_tests::program::{Answer, At, Client, Installation};
use posthorn_tests::receiver::{Received, Receiver, Reply};
use posthorn_tests::wait::until;
use reqwest::Method;
use serde_json::{Value, json};

use crate::stage::{AMPLE, Stage, known};

/// Where an endpoint is tested.
fn path(endpoint: &Value) -> String {
    format!("/v1/endpoints/{}/test", endpoint.text("/id"))
}

impl Stage {
    /// An endpoint on a path of the receiver, with these fields besides.
    async fn tested(&self, at: &str, mut fields: Value) -> Value {
        fields["url"] = json!(self.receiver.url(at));
        self.api.endpoint(&fields).await
    }

    /// The attempt that a test of an endpoint was.
    async fn test(&self, endpoint: &Value, body: &'static str) -> Value {
        self.api.post(&path(endpoint), body).await.expect(200)
    }

    /// Asserts that tests have left nothing but attempts.
    async fn assert_nothing_follows(&self) {
        for table in [
            "SELECT id::text FROM events",
            "SELECT event_id::text FROM pending",
            "SELECT event_id::text FROM dead_letters",
            "SELECT endpoint_id::text FROM endpoint_state",
        ] {
            assert_eq!(
                self.installation.query(table).await,
                [] as [String; 0],
                "{table}"
            );
        }
        assert_eq!(self.installation.complaints().await, [] as [String; 0]);
    }
}

#[track_caller]
fn assert_signed(request: &Received, endpoint: &Value) {
    let header = |name| request.header(name).unwrap();
    let keys = [VerifyingKey::parse(&endpoint.text("/secret")).unwrap()];
    let timestamp = header("webhook-timestamp").parse().unwrap();
    let (id, signature) = (header("webhook-id"), header("webhook-signature"));
    assert!(verify(signature, &keys, id, timestamp, &request.body));
}

#[track_caller]
fn assert_problem(answer: &Answer, status: u16, code: &str) -> Value {
    let problem = answer.expect(status);
    assert_eq!(problem.text("/code"), code);
    problem
}

/// INV-4: signed as every request is, under an id of its own, which is no event's.
#[tokio::test]
async fn a_test_is_one_signed_request_and_its_answer_is_told() {
    let stage = Stage::set().await;
    let answer = Reply::status(202).header("x-own", "1").body("hello");
    let answer = answer.header("set-cookie", "session=1");
    stage.receiver.script("/hook", answer);
    let headers = json!({ "x-api-key": "k-123" });
    let made = stage.tested("/hook", json!({ "headers": headers })).await;
    let attempt = stage.test(&made, "").await;
    let [request] = stage.receiver.requests().try_into().unwrap();
    assert_eq!(request.body.as_ref(), br#"{"test":true}"#);
    assert_eq!(request.header("content-type"), Some("application/json"));
    assert_eq!(request.header("content-length"), Some("13"));
    assert_eq!(request.header("x-api-key"), Some("k-123"));
    assert_signed(&request, &made);

    let event = attempt.text("/event_id");
    assert_eq!(request.header("webhook-id"), Some(event.as_str()));
    assert_eq!(attempt.text("/trigger"), "test");
    assert_eq!(attempt.text("/outcome"), "success");
    assert_eq!(attempt.text("/endpoint_id"), made.text("/id"));
    assert_eq!(attempt.text("/request/url"), stage.receiver.url("/hook"));
    assert_eq!(
        attempt["request"]["headers"],
        json!({ "x-api-key": { "set": true } })
    );
    assert_eq!(attempt["response"]["body"]["text"], "hello");
    let shown = attempt["response"]["headers"].to_string();
    assert!(
        shown.contains("x-own") && !shown.contains("session"),
        "{shown}"
    );
    assert_eq!(
        (
            &attempt["status"],
            &attempt["delivery_id"],
            &attempt["error"]
        ),
        (&json!(202), &Value::Null, &Value::Null)
    );
    let address = stage.receiver.address().to_string();
    assert_eq!(attempt.text("/remote_address"), address);
    for gone in [
        format!("/v1/events/{event}"),
        format!("/v1/events/{event}/payload"),
        format!(
            "/v1/deliveries/dlv_{}{}",
            &event[4..],
            &made.text("/id")[3..]
        ),
    ] {
        assert_problem(&stage.api.get(&gone).await, 404, "not_found");
    }
    stage.assert_nothing_follows().await;
}

/// It is on record, with as much of the answer as the endpoint keeps.
#[tokio::test]
async fn the_attempt_of_a_test_is_listed_with_the_endpoints_others() {
    let stage = Stage::set().await;
    stage
        .receiver
        .script("/hook", Reply::status(200).body("hello"));
    for keep in ["all", "failures", "none"] {
        let made = stage
            .tested("/hook", json!({ "keep_responses": keep }))
            .await;
        let mut told = stage.test(&made, "{}").await;
        assert_eq!(told["response"]["body"]["text"], "hello", "{keep}");
        if keep != "all" {
            told["response"] = Value::Null;
        }
        let one = format!("/v1/attempts/{}", told.text("/id"));
        assert_eq!(stage.api.get(&one).await.expect(200), told, "{keep}");
        let of = made.text("/id");
        let list = format!("/v1/attempts?endpoint_id={of}");
        let listed = stage.api.get(&list).await.expect(200);
        assert_eq!(listed.list("/data"), [told], "{keep}");
    }
}

/// The payload is sent byte for byte, or stands so in the envelope; the endpoint's types are not asked.
#[tokio::test]
async fn a_test_sends_the_type_and_the_payload_that_it_is_given() {
    let stage = Stage::set().await;
    let of = json!({ "event_types": ["a.b"] });
    let plain = stage.tested("/plain", of).await;
    let standard = stage
        .tested("/standard", json!({ "body": "standard" }))
        .await;
    for (asked, event_type, payload) in [
        (
            r#"{"type":"invoice.paid","payload": {"a" : 1.0, "a":"\ud800"}  }"#,
            "invoice.paid",
            r#"{"a" : 1.0, "a":"\ud800"}"#,
        ),
        (r#"{"payload":null}"#, "endpoint.test", "null"),
        (r#"{"payload":"\u0000"}"#, "endpoint.test", r#""\u0000""#),
        (r#"{"type":"x"}"#, "x", r#"{"test":true}"#),
    ] {
        stage.test(&plain, asked).await;
        let request = stage.receiver.requests_to("/plain").pop().unwrap();
        assert_eq!(String::from_utf8_lossy(&request.body), payload);
        assert_signed(&request, &plain);
        stage.test(&standard, asked).await;
        let request = stage.receiver.requests_to("/standard").pop().unwrap();
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        let head = format!(r#"{{"type":"{event_type}","timestamp":""#);
        assert!(body.starts_with(&head), "{body}");
        assert!(
            body.ends_with(&format!(r#"Z","data":{payload}}}"#)),
            "{body}"
        );
        assert_signed(&request, &standard);
    }
}

/// INV-8: what went wrong is told with its kind and in words, nothing is sent a second time, and nothing is counted.
#[tokio::test]
async fn a_test_that_fails_says_why_and_nothing_follows() {
    let stage = Stage::set().await;
    let nobody = Receiver::start().await.unwrap().url("/");
    let moved = Reply::status(302).header("location", &stage.receiver.url("/elsewhere"));
    for (at, reply) in [
        ("/500", Reply::status(500).body("out of order")),
        ("/302", moved),
        ("/410", Reply::status(410)),
        ("/429", Reply::status(429).header("retry-after", "60")),
        ("/bad", Reply::raw("HTTP/1.1 nonsense\r\n\r\n").then_close()),
        ("/close", Reply::close()),
        ("/hang", Reply::hang()),
    ] {
        stage.receiver.script(at, reply);
    }
    let fields = || json!({ "timeout_ms": 1000, "retry_policy": { "kind": "fixed", "delay_ms": 10, "max_attempts": 9 } });
    for (at, kind, words) in [
        ("/500", "status", "500"),
        ("/302", "status", "redirects are not followed"),
        ("/410", "status", "410"),
        ("/429", "status", "429"),
        ("/bad", "protocol", "no valid status"),
        ("/close", "connect", "closed the connection"),
        ("/hang", "timeout", "within 1 s"),
        ("", "connect", "refused the connection"),
    ] {
        let mut fields = fields();
        fields["url"] = json!(if at.is_empty() {
            nobody.clone()
        } else {
            stage.receiver.url(at)
        });
        let made = stage.api.endpoint(&fields).await;
        let attempt = stage.test(&made, "").await;
        assert_eq!(attempt.text("/outcome"), "failed", "{at}");
        assert_eq!(attempt.text("/error/kind"), kind, "{at}");
        let detail = attempt.text("/error/detail");
        assert!(detail.contains(words), "{at}: {detail}");
        let read = format!("/v1/endpoints/{}", made.text("/id"));
        let read = stage.api.get(&read).await.expect(200);
        assert_eq!(
            (&read["state"], &read["health"]["status"]),
            (&json!("enabled"), &json!("ok")),
            "{at}"
        );
        let failed = attempt["response"]["body"]["text"].as_str();
        assert_eq!(failed == Some("out of order"), at == "/500");
    }
    assert_eq!(stage.receiver.requests_to("/elsewhere").len(), 0);
    assert_eq!(stage.receiver.requests().len(), 7);
    stage.assert_nothing_follows().await;
}

/// INV-8.
#[tokio::test]
async fn a_test_goes_nowhere_that_a_delivery_may_not() {
    let stage = Stage::of(Installation::with_closed_egress().await).await;
    let url = stage
        .receiver
        .url("/hook")
        .replace("127.0.0.1", "localhost");
    let made = stage.api.endpoint(&json!({ "url": url })).await;
    let attempt = stage.test(&made, "").await;
    assert_eq!(attempt.text("/error/kind"), "refused_target");
    assert_eq!(stage.receiver.connections(), 0);
}

/// F02: by it a fix can be tried before the endpoint is enabled again.
#[tokio::test]
async fn a_test_works_while_its_endpoint_is_paused_or_disabled() {
    let stage = Stage::set().await;
    for state in ["paused", "disabled"] {
        let made = stage.tested("/hook", json!({ "state": state })).await;
        let attempt = stage.test(&made, "").await;
        assert_eq!(attempt.text("/outcome"), "success", "{state}");
        let read = format!("/v1/endpoints/{}", made.text("/id"));
        let read = stage.api.get(&read).await.expect(200);
        assert_eq!(read.text("/state"), state);
    }
    assert_eq!(stage.receiver.requests().len(), 2);
}

/// INV-12: through any node, whatever its roles, as the endpoint is by then.
#[tokio::test]
async fn a_test_through_another_node_goes_by_what_was_just_changed() {
    let stage = Stage::set().await;
    let second = stage.installation.serve_as("api").await;
    let other = stage.api.through(second.address());
    known(&other).await;
    for round in 0..5 {
        let made = stage.tested("/old", json!({})).await;
        let attempt = other.post(&path(&made), "").await.expect(200);
        assert_eq!(attempt.text("/request/url"), stage.receiver.url("/old"));
        let change = json!({ "url": stage.receiver.url("/new") });
        let of = format!("/v1/endpoints/{}", made.text("/id"));
        stage.api.patch(&of, &change).await.expect(200);
        other.post(&path(&made), "").await.expect(200);
        let requests = stage.receiver.requests_to("/new");
        assert_eq!(requests.len(), round + 1);
        assert_signed(requests.last().unwrap(), &made);
    }
}

/// E15, E16, E18.
#[tokio::test]
async fn a_test_that_is_not_well_asked_for_sends_nothing() {
    let stage = Stage::set().await;
    let made = stage.tested("/hook", json!({})).await;
    let deep = format!(r#"{{"payload":{}{}}}"#, "[".repeat(129), "]".repeat(129));
    let large = format!(r#"{{"payload":"{}"}}"#, "a".repeat(1_048_576));
    for (body, status, code, pointer) in [
        ("{", 400, "malformed_json", None),
        (r#"{"payload":01}"#, 400, "malformed_json", None),
        ("[]", 422, "field_invalid", Some("")),
        (r#"{"payloads":1}"#, 422, "field_unknown", Some("/payloads")),
        (
            r#"{"payload":1,"payload":1}"#,
            422,
            "field_duplicate",
            Some("/payload"),
        ),
        (
            r#"{"type":"a..b"}"#,
            422,
            "event_type_invalid",
            Some("/type"),
        ),
        (
            r#"{"type":"a\u0000b"}"#,
            422,
            "event_type_invalid",
            Some("/type"),
        ),
        (r#"{"type":null}"#, 422, "field_invalid", Some("/type")),
        (deep.as_str(), 422, "payload_too_deep", Some("/payload")),
        (large.as_str(), 413, "body_too_large", None),
    ] {
        let answer = stage.api.post(&path(&made), body.to_owned()).await;
        let problem = assert_problem(&answer, status, code);
        let first = problem.pointer("/errors/0/pointer").and_then(Value::as_str);
        assert_eq!(first, pointer, "{code}");
    }
    let plain = stage.api.request(Method::POST, &path(&made));
    let plain = plain.header("content-type", "text/plain").body("{}");
    let answer = Client::sent(plain).await;
    assert_problem(&answer, 415, "content_type_unsupported");
    let query = format!("{}?type=a", path(&made));
    let answer = stage.api.post(&query, "").await;
    assert_problem(&answer, 422, "parameter_unknown");
    let stranger = stage.stranger().await;
    for (api, endpoint) in [
        (&stranger, made.text("/id")),
        (&stage.api, format!("ep_{}", "0".repeat(26))),
        (&stage.api, "uid:nobody".to_owned()),
    ] {
        let answer = api
            .post(&format!("/v1/endpoints/{endpoint}/test"), "")
            .await;
        assert_problem(&answer, 404, "not_found");
    }
    let gone = format!("/v1/endpoints/{}", made.text("/id"));
    let deleted = Client::sent(stage.api.request(Method::DELETE, &gone)).await;
    assert_eq!(deleted.status, 204);
    let answer = stage.api.post(&path(&made), "").await;
    assert_problem(&answer, 404, "not_found");
    assert_eq!(stage.receiver.requests().len(), 0);
}

/// INV-11, INV-13: tests of one tenant hold up nobody else's, and there are only so many.
#[tokio::test]
async fn a_tenant_has_a_few_tests_under_way_and_another_is_not_kept_waiting() {
    let stage = Stage::set().await;
    let stranger = stage.stranger().await;
    stage.receiver.script("/hang", Reply::hang());
    let hanging = stage.tested("/hang", json!({ "timeout_ms": 5000 })).await;
    let hanging = path(&hanging);
    let asked = (0..4).map(|_| stage.api.post(&hanging, ""));
    let (ended, ()) = tokio::join!(join_all(asked), async {
        stage.arrived("/hang", 4).await;
        let refused = stage.api.post(&hanging, "").await;
        assert_problem(&refused, 429, "too_many_tests");
        assert_eq!(refused.header("retry-after"), "1");
        let url = json!({ "url": stage.receiver.url("/ok") });
        let other = stranger.endpoint(&url).await;
        let attempt = stranger.post(&path(&other), "").await.expect(200);
        assert_eq!(attempt.text("/outcome"), "success");
    });
    for answer in ended {
        let attempt = answer.expect(200);
        assert_eq!(attempt.text("/error/kind"), "timeout");
    }
    assert_eq!(stage.receiver.requests_to("/hang").len(), 4);
    let good = stage.tested("/ok", json!({})).await;
    stage.test(&good, "").await;
}

/// A caller that hangs up leaves its place taken until the request has ended, and the attempt on record.
#[tokio::test]
async fn a_test_whose_caller_is_gone_is_on_record() {
    let stage = Stage::set().await;
    let answer = Reply::status(200).after(std::time::Duration::from_secs(2));
    stage.receiver.script("/slow", answer);
    let made = stage.tested("/slow", json!({})).await;
    let path = path(&made);
    let asked = stage.api.post(&path, "");
    tokio::select! {
        _ = asked => panic!("it takes two seconds"),
        _ = stage.arrived("/slow", 1) => {}
    }
    let list = format!("/v1/attempts?endpoint_id={}", made.text("/id"));
    until("the attempt to be on record", AMPLE, async || {
        let listed = stage.api.get(&list).await.expect(200);
        (listed.list("/data").len() == 1).then_some(())
    })
    .await;
}

/// E01.
#[tokio::test]
async fn a_test_with_the_same_key_is_sent_once() {
    let stage = Stage::set().await;
    let made = stage.tested("/hook", json!({})).await;
    let asked = async || {
        let request = stage.api.request(Method::POST, &path(&made));
        Client::sent(request.header("idempotency-key", "k")).await
    };
    let (first, again) = (asked().await, asked().await);
    assert_eq!(first.expect(200), again.expect(200));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(stage.receiver.requests().len(), 1);
}

//! A submission has a way of its own beside the router's: both say the same.

use axum::body::Body;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request};
use posthorn_api::Submissions;
use posthorn_domain::scope::Scope;

use super::{Answer, Api, Program};

const EVENT: &str = r#"{"type":"order.paid","payload":{"id":1},"uid":"order-1"}"#;

/// A submission that nothing is wrong with but what `headers` and `body` say.
struct Asked<'a> {
    path: &'a str,
    headers: Vec<(&'a str, String)>,
    body: String,
}

impl<'a> Asked<'a> {
    fn of(program: &Program<'_>, body: &str) -> Self {
        Self {
            path: "/v1/events",
            headers: vec![
                (AUTHORIZATION.as_str(), format!("Bearer {}", program.key)),
                (CONTENT_TYPE.as_str(), "application/json".to_owned()),
            ],
            body: body.to_owned(),
        }
    }

    fn at(self, path: &'a str) -> Self {
        Self { path, ..self }
    }

    fn with(mut self, name: &'a str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(header, _)| *header != name);
        self
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::builder().method(Method::POST).uri(self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        request.body(Body::from(self.body.clone())).unwrap()
    }

    /// The answers by both ways, without what each request has of its own.
    async fn both(&self, api: &Api) -> [String; 2] {
        assert!(Submissions::takes(&self.request()));
        let short = api.submissions.clone().answer(self.request()).await;
        [
            told(&Answer::read(short).await),
            told(&api.routed(self.request()).await),
        ]
    }
}

/// Status, headers and body, but for the request's id, and for the length, which the router writes itself and which is
/// otherwise written with the answer.
fn told(answer: &Answer) -> String {
    let id = answer.headers["x-request-id"].to_str().unwrap();
    assert_eq!(id.len(), 32);
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| **name != CONTENT_LENGTH)
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    let body = String::from_utf8(answer.bytes.clone()).unwrap();
    format!("{} {headers:?} {body}", answer.status).replace(id, "ID")
}

#[tokio::test]
async fn both_ways_of_a_submission_refuse_alike() {
    let api = Api::start().await;
    let program = api.program().await;
    let reader = api.program_of(program.tenant, &[Scope::EventsRead]).await;
    let good = || Asked::of(&program, EVENT);
    let many: String = (0..2_000_000).map(|_| ' ').collect();
    let refused = [
        (401, good().without("authorization")),
        (
            401,
            good()
                .without("authorization")
                .with("authorization", "Bearer x"),
        ),
        (401, good().with("authorization", "Bearer x")),
        (403, Asked::of(&reader, EVENT)),
        (
            403,
            good().with("posthorn-tenant", "ten_00000000000000000000000000"),
        ),
        (422, good().at("/v1/events?limit=5")),
        (415, good().without("content-type")),
        (415, good().with(CONTENT_ENCODING.as_str(), "gzip")),
        (413, Asked::of(&program, &(EVENT.to_owned() + &many))),
        (400, Asked::of(&program, "")),
        (400, Asked::of(&program, "{\"type\":")),
        (
            422,
            Asked::of(&program, r#"{"type":"a..b","payload":1,"uid":"/"}"#),
        ),
        (
            422,
            Asked::of(&program, r#"{"type":"a.b","payload":1,"data":1}"#),
        ),
        (422, good().with("idempotency-key", "\u{22}")),
        (
            422,
            good()
                .with("idempotency-key", "a")
                .with("idempotency-key", "a"),
        ),
    ];
    for (status, asked) in refused {
        let [short, routed] = asked.both(&api).await;
        assert_eq!(short, routed);
        assert!(short.starts_with(&status.to_string()), "{status}: {short}");
    }
}

#[tokio::test]
async fn both_ways_of_a_submission_accept_alike() {
    let api = Api::start().await;
    let program = api.program().await;
    let first = api.send(Asked::of(&program, EVENT).request()).await;
    first.expect(202);
    // Submitted again, it is answered with the same event, so that even the id can be compared.
    for asked in [
        Asked::of(&program, EVENT),
        Asked::of(&program, EVENT).at("/v1/events?"),
        Asked::of(&program, EVENT).with("posthorn-tenant", &program.tenant.to_string()),
    ] {
        let [short, routed] = asked.both(&api).await;
        assert_eq!(short, routed);
        assert!(short.starts_with("202"), "{short}");
        assert!(short.ends_with(&String::from_utf8(first.bytes.clone()).unwrap()));
    }
}

#[test]
fn whatever_is_not_exactly_a_submission_is_the_routers() {
    for (method, path) in [
        (Method::GET, "/v1/events"),
        (Method::HEAD, "/v1/events"),
        (Method::PUT, "/v1/events"),
        (Method::OPTIONS, "/v1/events"),
        (Method::POST, "/v1/events/"),
        (Method::POST, "/v1//events"),
        (Method::POST, "/v1/%65vents"),
        (Method::POST, "/v1/events/x"),
        (Method::POST, "/v1/endpoints"),
    ] {
        let request = Request::builder().method(&method).uri(path);
        let request = request.body(()).unwrap();
        assert!(!Submissions::takes(&request), "{method} {path}");
    }
}

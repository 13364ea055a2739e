//! The REST API in this process, over a database of the test's own: what is answered, and what is refused how.
//!
//! Nothing is sent to endpoints here: what is accepted stays open, and dead letters are laid by hand.

mod api_keys;
mod audit_log;
mod bodies;
mod dead_letters;
mod endpoints;
mod events;
mod idempotent;
mod key_uses;
mod objects;
mod raw;
mod refusals;
mod secrets;
mod shapes;
mod signing;
mod submissions;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use posthorn_api::{ApiParts, ApiState, Submissions};
use posthorn_domain::address::EgressPolicy;
use posthorn_domain::api_key::{self, Environment};
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::retention::Days;
use posthorn_domain::scope::Scope;
use posthorn_store::clock::Clock;
use posthorn_store::configure::{NewKey, create_key};
use posthorn_store::due::DueHint;
use posthorn_store::entropy::Entropy;
use posthorn_store::key_use::KeyUses;
use posthorn_store::scope::{Actor, TenantScope};
use posthorn_store::test_send::TestSends;
use posthorn_tests::database::TestDatabase;
use posthorn_tests::engine::{Node, Runs};
use posthorn_tests::rows::Rows;
use posthorn_tests::tenants::{Tenants, ring};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

/// The API of one node.
struct Api {
    router: Router,
    submissions: Submissions,
    node: Node,
    tenants: Tenants,
    rows: Rows,
    /// Noted by its calls, written when a test says so.
    key_uses: KeyUses,
    /// Dropped last.
    _database: TestDatabase,
}

/// A program with a key.
struct Program<'a> {
    api: &'a Api,
    tenant: TenantId,
    key: String,
}

/// An answer, read whole.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl Api {
    /// An API that may send to the loopback.
    async fn start() -> Self {
        let database = TestDatabase::create().await;
        let node = Node::start(database.pools(4, 4), Runs::AcceptOnly).await;
        let key_uses = KeyUses::default();
        let parts = ApiParts {
            database: node.database.clone(),
            cache: node.cache.clone(),
            acceptor: node.acceptor.clone(),
            egress: Arc::new(EgressPolicy::parse("127.0.0.0/8").unwrap()),
            ring: ring(),
            clock: Clock::start(),
            entropy: Entropy,
            due: DueHint::default(),
            key_uses: key_uses.clone(),
            dead_letters: Days::new(90).unwrap(),
            test_sends: TestSends::new().0,
            public_url: "http://127.0.0.1:8400".to_owned(),
        };
        let state = ApiState::new(parts);
        Self {
            router: posthorn_api::router(state.clone()),
            submissions: Submissions::new(state),
            tenants: Tenants::new(database.pools(2, 2)),
            rows: Rows::of(&database).await,
            key_uses,
            node,
            _database: database,
        }
    }

    /// A program of a new tenant, with every scope but `admin`.
    async fn program(&self) -> Program<'_> {
        let scopes: Vec<_> = Scope::ALL
            .iter()
            .copied()
            .filter(|scope| *scope != Scope::Admin)
            .collect();
        let tenant = self.tenants.tenant().await;
        self.program_of(tenant, &scopes).await
    }

    /// A program of this tenant with these scopes.
    async fn program_of(&self, tenant: TenantId, scopes: &[Scope]) -> Program<'_> {
        let key = api_key::mint(Environment::Test, Entropy.bytes())
            .expose_secret()
            .to_owned();
        let new = NewKey {
            id: KeyId::mint(Clock::start().now(), Entropy.bytes()),
            name: "test".to_owned(),
            prefix: api_key::display_prefix(&key),
            hash: api_key::check(&key).unwrap(),
            scopes: scopes.to_vec(),
            expires_at: None,
        };
        let scope = TenantScope::new_authenticated(tenant, Actor::COMMAND_LINE);
        create_key(&self.node.database, scope, &new).await.unwrap();
        self.node.cache.refresh().await.unwrap();
        Program {
            api: self,
            tenant,
            key,
        }
    }

    /// Sends a request as it stands, the way that the server would take.
    async fn send(&self, request: Request<Body>) -> Answer {
        if Submissions::takes(&request) {
            Answer::read(self.submissions.clone().answer(request).await).await
        } else {
            self.routed(request).await
        }
    }

    /// Sends a request as it stands through the router, whatever it is.
    async fn routed(&self, request: Request<Body>) -> Answer {
        Answer::read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    /// A request without a key.
    async fn anonymous(&self, method: Method, path: &str) -> Answer {
        self.send(
            Request::builder()
                .method(method)
                .uri(path)
                .body(Body::empty())
                .unwrap(),
        )
        .await
    }
}

impl Program<'_> {
    async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::POST, path, Some(body.to_string().into_bytes()))
            .await
    }

    async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.call(Method::PATCH, path, Some(body.to_string().into_bytes()))
            .await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Answer {
        let mut request = self.request(method, path);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        self.api
            .send(
                request
                    .body(body.map_or_else(Body::empty, Body::from))
                    .unwrap(),
            )
            .await
    }

    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
    }

    /// An endpoint that wants every type, with these fields besides.
    async fn endpoint(&self, fields: Value) -> Value {
        let mut body = json!({ "url": "http://127.0.0.1:9/hook" });
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        self.post("/v1/endpoints", &body).await.expect(201)
    }

    /// An accepted event.
    async fn event(&self, event_type: &str) -> Value {
        self.post(
            "/v1/events",
            &json!({ "type": event_type, "payload": { "id": 1 } }),
        )
        .await
        .expect(202)
    }

    /// The ids of all pages of a list, walked forth; it was checked that walking back gives the same pages.
    async fn walk(&self, path: &str) -> Vec<String> {
        let mut page = self.get(path).await.expect(200);
        let mut forth = vec![ids(&page)];
        let join = if path.contains('?') { '&' } else { '?' };
        while let Some(cursor) = page["next_cursor"].as_str() {
            page = self
                .get(&format!("{path}{join}cursor={cursor}"))
                .await
                .expect(200);
            forth.push(ids(&page));
        }
        let mut back = vec![ids(&page)];
        while let Some(cursor) = page["prev_cursor"].as_str() {
            page = self
                .get(&format!("{path}{join}cursor={cursor}"))
                .await
                .expect(200);
            back.insert(0, ids(&page));
        }
        assert_eq!(forth, back, "{path}");
        forth.concat()
    }
}

impl Answer {
    async fn read(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or(Value::Null)
    }

    /// The body of an answer with this status.
    #[track_caller]
    fn expect(&self, status: u16) -> Value {
        assert_eq!(
            self.status.as_u16(),
            status,
            "{}",
            String::from_utf8_lossy(&self.bytes)
        );
        self.json()
    }

    /// Asserts a refusal of this status and code.
    #[track_caller]
    fn refuses(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
        assert_eq!(body["type"], format!("/docs/problems/{code}"));
        assert_eq!(
            body["request_id"].as_str(),
            self.headers["x-request-id"].to_str().ok()
        );
        body
    }
}

fn ids(page: &Value) -> Vec<String> {
    page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_str().unwrap().to_owned())
        .collect()
}

/// The text at a field.
fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

//! A caller of the API: sends requests as they are told, and keeps answers as they came.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Body, Method, RequestBuilder};
use serde_json::Value;

/// Longer than any answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A caller with an API key.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
}

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Client {
    /// A caller of the node at `address`.
    #[must_use]
    pub fn new(address: SocketAddr, key: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .unwrap();
        Self {
            http,
            base: format!("http://{address}"),
            key: key.to_owned(),
        }
    }

    /// The same caller, of another node.
    #[must_use]
    pub fn through(&self, address: SocketAddr) -> Self {
        Self::new(address, &self.key)
    }

    /// Its API key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// GET; a connection that breaks is a failed test.
    pub async fn get(&self, path: &str) -> Answer {
        Self::sent(self.request(Method::GET, path)).await
    }

    /// GET; none where nobody answers.
    pub async fn try_get(&self, path: &str) -> Option<Answer> {
        Self::answered(self.request(Method::GET, path)).await
    }

    /// POST of a JSON body.
    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        Self::sent(self.json(Method::POST, path, body)).await
    }

    /// PATCH of a JSON body.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        Self::sent(self.json(Method::PATCH, path, body.to_string())).await
    }

    /// POST of a JSON body; none where nobody answers.
    pub async fn try_post(&self, path: &str, body: impl Into<Body>) -> Option<Answer> {
        Self::answered(self.json(Method::POST, path, body)).await
    }

    /// Makes an endpoint; the answer with its secret.
    pub async fn endpoint(&self, fields: &Value) -> Value {
        self.post("/v1/endpoints", fields.to_string())
            .await
            .expect(201)
    }

    /// Submits an event with these very bytes as payload; its id.
    pub async fn submit(&self, event_type: &str, payload: &[u8]) -> String {
        let accepted = self
            .post("/v1/events", submission(event_type, payload))
            .await
            .expect(202);
        accepted.text("/id")
    }

    /// A request with the key, to be changed and handed to [`Client::sent`].
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        if self.key.is_empty() {
            request
        } else {
            request.bearer_auth(&self.key)
        }
    }

    /// The answer to a request; a connection that breaks is a failed test.
    pub async fn sent(request: RequestBuilder) -> Answer {
        let shown = format!("{request:?}");
        let answer = Self::answered(request).await;
        answer.unwrap_or_else(|| panic!("nobody answered {shown}"))
    }

    async fn answered(request: RequestBuilder) -> Option<Answer> {
        let response = request.send().await.ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.ok()?;
        Some(Answer {
            status,
            headers,
            body,
        })
    }

    fn json(&self, method: Method, path: &str, body: impl Into<Body>) -> RequestBuilder {
        self.request(method, path)
            .header("content-type", "application/json")
            .body(body)
    }
}

impl Answer {
    /// The body as JSON, of an answer that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(
            self.status,
            status,
            "{}",
            String::from_utf8_lossy(&self.body)
        );
        self.json()
    }

    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// A header as text; empty where it is not there.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }
}

/// Reads JSON by pointer, where a test knows what must be there.
pub trait At {
    /// The text at a JSON pointer.
    fn text(&self, pointer: &str) -> String;
    /// The array at a JSON pointer.
    fn list(&self, pointer: &str) -> &[Value];
}

impl At for Value {
    fn text(&self, pointer: &str) -> String {
        let found = self.pointer(pointer).and_then(Value::as_str);
        found
            .unwrap_or_else(|| panic!("no text at {pointer} of {self}"))
            .to_owned()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        let found = self.pointer(pointer).and_then(Value::as_array);
        found.unwrap_or_else(|| panic!("no array at {pointer} of {self}"))
    }
}

/// The body of a submission, joined as bytes: the payload stays as it is.
#[must_use]
pub fn submission(event_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!(r#"{{"type":"{event_type}","payload":"#);
    [head.as_bytes(), payload, b"}"].concat()
}

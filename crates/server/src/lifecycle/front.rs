//! What answers before the engine runs and beside it: probes and metrics. Everything else goes to the
//! parts, once they are there; until then it is told to come again.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use posthorn_api::Submissions;
use serde_json::json;
use tower::ServiceExt as _;

use super::connections::Site;
use super::readiness::Readiness;
use crate::assemble::Pages;
use crate::telemetry::Metrics;

/// The content type of Prometheus' text format.
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Headers by which a proxy says that it speaks for somebody else.
const FORWARDED: [HeaderName; 3] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
];

/// The listener's first layer.
#[derive(Clone)]
pub(super) struct Front {
    readiness: Readiness,
    /// `None` when metrics have a listener of their own.
    metrics: Option<Metrics>,
    parts: Arc<OnceLock<Pages>>,
}

impl Front {
    pub(super) fn new(readiness: Readiness, metrics: Option<Metrics>) -> Self {
        Self {
            readiness,
            metrics,
            parts: Arc::default(),
        }
    }

    /// From here on everything but probes and metrics goes to `parts`.
    pub(super) fn open(&self, parts: Pages) {
        // The engine is started once.
        let _ = self.parts.set(parts);
    }

    /// All of it, for the listener.
    pub(super) fn served(&self) -> Served {
        let router = Router::new()
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .fallback(forward)
            .with_state(self.clone());
        Served {
            parts: Arc::clone(&self.parts),
            router,
        }
    }
}

/// What the main listener serves: a submitted event at once, everything else through the router.
#[derive(Clone)]
pub(super) struct Served {
    parts: Arc<OnceLock<Pages>>,
    router: Router,
}

impl Site for Served {
    async fn answer(self, request: Request, caller: SocketAddr) -> Response {
        if Submissions::takes(&request)
            && let Some(submissions) = self.parts.get().and_then(|pages| pages.submissions.clone())
        {
            return submissions.answer(request).await;
        }
        self.router.answer(request, caller).await
    }
}

/// A listener for metrics and nothing else.
pub(super) fn metrics_alone(metrics: Metrics) -> Router {
    Router::new().route(
        "/metrics",
        get(async move || ([(header::CONTENT_TYPE, METRICS_TEXT)], metrics.render())),
    )
}

async fn livez() -> &'static str {
    "alive\n"
}

async fn readyz(State(front): State<Front>) -> Response {
    let reasons = front.readiness.reasons().await;
    if reasons.is_empty() {
        let ready = json!({ "status": "ready", "roles": front.readiness.roles() });
        return axum::Json(ready).into_response();
    }
    let body = axum::Json(json!({ "status": "not_ready", "reasons": reasons }));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}

/// On the main listener metrics are for this machine alone, and not for somebody whom a proxy on this
/// machine speaks for.
async fn metrics(
    State(front): State<Front>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let direct = FORWARDED
        .iter()
        .all(|name| !request.headers().contains_key(name));
    match &front.metrics {
        Some(metrics) if peer.ip().to_canonical().is_loopback() && direct => {
            ([(header::CONTENT_TYPE, METRICS_TEXT)], metrics.render()).into_response()
        }
        _ => forward(State(front), request).await,
    }
}

async fn forward(State(front): State<Front>, request: Request) -> Response {
    let Some(parts) = front.parts.get() else {
        return come_again();
    };
    match parts.router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn come_again() -> Response {
    let problem = json!({
        "type": "/docs/problems/starting",
        "title": "Starting",
        "status": 503,
        "detail": "The node is starting; /readyz says what it waits for.",
        "code": "starting",
    });
    let headers = [
        (header::RETRY_AFTER, "1"),
        (header::CONTENT_TYPE, "application/problem+json"),
    ];
    (
        StatusCode::SERVICE_UNAVAILABLE,
        headers,
        Body::from(problem.to_string()),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use posthorn_store::clock::Clock;

    use super::*;

    async fn status_of(
        front: &Front,
        path: &str,
        peer: &str,
        forwarded: Option<&str>,
    ) -> StatusCode {
        let mut request = Request::builder().uri(path);
        if let Some(forwarded) = forwarded {
            request = request.header("X-Forwarded-For", forwarded);
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = front.served().answer(request, peer.parse().unwrap());
        answer.await.status()
    }

    fn pages(router: Router) -> Pages {
        Pages {
            router,
            submissions: None,
        }
    }

    fn front() -> Front {
        Front::new(Readiness::new(Clock::start()), Some(Metrics::for_tests()))
    }

    #[tokio::test]
    async fn a_starting_node_is_alive_and_not_ready() {
        let front = front();
        assert_eq!(
            status_of(&front, "/livez", "10.0.0.1:1", None).await,
            StatusCode::OK
        );
        assert_eq!(
            status_of(&front, "/readyz", "10.0.0.1:1", None).await,
            StatusCode::SERVICE_UNAVAILABLE
        );
        assert_eq!(
            status_of(&front, "/v1/events", "10.0.0.1:1", None).await,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }

    #[tokio::test]
    async fn everything_else_goes_to_the_parts_once_they_are_there() {
        let front = front();
        front.open(pages(
            Router::new().route("/v1/events", get(async || StatusCode::IM_A_TEAPOT)),
        ));
        assert_eq!(
            status_of(&front, "/v1/events", "10.0.0.1:1", None).await,
            StatusCode::IM_A_TEAPOT
        );
        assert_eq!(
            status_of(&front, "/nowhere", "10.0.0.1:1", None).await,
            StatusCode::NOT_FOUND
        );
    }

    #[tokio::test]
    async fn metrics_are_for_this_machine_and_not_for_whom_a_proxy_speaks() {
        let front = front();
        front.open(pages(Router::new()));
        assert_eq!(
            status_of(&front, "/metrics", "127.0.0.1:1", None).await,
            StatusCode::OK
        );
        assert_eq!(
            status_of(&front, "/metrics", "[::ffff:127.0.0.1]:1", None).await,
            StatusCode::OK
        );
        assert_eq!(
            status_of(&front, "/metrics", "10.0.0.1:1", None).await,
            StatusCode::NOT_FOUND
        );
        assert_eq!(
            status_of(&front, "/metrics", "127.0.0.1:1", Some("192.0.2.1")).await,
            StatusCode::NOT_FOUND
        );
    }
}

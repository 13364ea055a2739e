//! The last thing that happens to every answer: a request id, and a body for every refusal.
//!
//! The outermost layer of the router. It gives the request an id, and when the answer is a refusal it writes
//! the problem body of RFC 9457, whether a handler refused, an extractor, or the framework (404, 405). A panic
//! becomes a 500 that says no more than the id; the cause goes to the log.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::body;
use crate::problem::{Failure, Fault, Problem};
use crate::refusals::Telling;
use crate::state::ApiState;

/// Names the request in the answer and in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The media type of a refusal.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// A refusal, as RFC 9457 has it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem, example = json!({
    "type": "/docs/problems/field_unknown",
    "title": "A field is unknown",
    "status": 422,
    "detail": "/urll is not a field that is known here",
    "code": "field_unknown",
    "request_id": "0f9d4b6a1c2e3f405162738495a6b7c8",
    "errors": [{"pointer": "/urll", "code": "field_unknown", "detail": "/urll is not a field that is known here"}]
}))]
pub(crate) struct ProblemBody {
    /// Where the kind of problem is described.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference")]
    type_: String,
    /// The kind of problem in one sentence.
    title: &'static str,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// This occurrence in words; absent where the title, or `errors`, says it all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
    /// The stable name of the kind of problem. New ones may come.
    code: &'static str,
    /// Quote it when you report a fault.
    request_id: String,
    /// The fields that are wrong; empty where the problem is not about fields.
    errors: Vec<FieldProblem>,
}

/// One field or query parameter that is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FieldProblem {
    /// A JSON pointer into the body, or `?name` for a query parameter.
    pointer: String,
    /// The stable name of the kind of problem.
    code: &'static str,
    /// What is wrong, in words.
    detail: String,
}

impl From<Fault> for FieldProblem {
    fn from(fault: Fault) -> Self {
        Self {
            pointer: fault.pointer,
            code: fault.problem.code(),
            detail: fault.detail,
        }
    }
}

/// The layer. See the module.
pub(crate) async fn conclude(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    concluded(&state, request, |request| next.run(request)).await
}

/// What `answering` says to a request, with what every answer gets.
pub(crate) async fn concluded<A: Future<Output = Response>>(
    state: &ApiState,
    request: Request,
    answering: impl FnOnce(Request) -> A,
) -> Response {
    let id = request_id(state);
    let options = request.method() == Method::OPTIONS;
    // The pages of the reference are served whatever is away.
    let of_the_api = request.uri().path().starts_with("/v1/");
    let response = match body::refuse_framing(request.headers()) {
        Ok(()) => answering(request).await,
        Err(failure) => failure.into_response(),
    };
    let mut response = match refusal(&response) {
        Some(failure) if options && failure.problem == Problem::MethodNotAllowed => {
            options_answer(&response)
        }
        Some(failure) => {
            log(&failure, &id, state);
            refuse(&failure, &response, &id)
        }
        None => {
            if of_the_api && response.status().is_success() {
                log_ended_runs(state);
            }
            response
        }
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// What a handler that panicked answers.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that the layer asks for"
)]
pub(crate) fn panicked(cause: Box<dyn std::any::Any + Send>) -> Response {
    let words = cause
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| cause.downcast_ref::<String>().map(String::as_str));
    Failure::internal(format_args!("panic: {}", words.unwrap_or("no words"))).into_response()
}

/// 128 random bits in hexadecimal.
fn request_id(state: &ApiState) -> String {
    let mut text = Uuid::encode_buffer();
    let id = Uuid::from_bytes(state.entropy().bytes()).simple();
    id.encode_lower(&mut text).to_owned()
}

/// The failure that an answer stands for: the handler's own, or the framework's by its status.
fn refusal(response: &Response) -> Option<Failure> {
    if let Some(failure) = response.extensions().get::<Failure>() {
        return Some(failure.clone());
    }
    match response.status() {
        StatusCode::NOT_FOUND => Some(Failure::new(Problem::RouteNotFound)),
        StatusCode::METHOD_NOT_ALLOWED => Some(Failure::new(Problem::MethodNotAllowed)),
        status if status.is_client_error() => Some(Failure::new(Problem::BodyUnreadable)),
        status if status.is_server_error() => Some(Failure::internal(format_args!(
            "an answer of {status} without a cause"
        ))),
        _ => None,
    }
}

/// OPTIONS on a path that exists: its methods. There is no CORS, so there is nothing else to say.
fn options_answer(refused: &Response) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    if let Some(allow) = refused.headers().get(ALLOW) {
        response.headers_mut().insert(ALLOW, allow.clone());
    }
    response
}

fn refuse(failure: &Failure, refused: &Response, id: &str) -> Response {
    let problem = failure.problem;
    let mut response = Response::new(Body::from(text(failure, id)));
    *response.status_mut() = problem.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(wait) = failure.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    if problem == Problem::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(allow) = refused.headers().get(ALLOW) {
        headers.insert(ALLOW, allow.clone());
    }
    response
}

fn text(failure: &Failure, id: &str) -> Vec<u8> {
    let problem = failure.problem;
    let detail = if problem.status().is_server_error() {
        None
    } else {
        failure.detail.as_deref().map(str::to_owned)
    };
    let body = ProblemBody {
        type_: problem.page(),
        title: problem.title(),
        status: problem.status().as_u16(),
        detail,
        code: problem.code(),
        request_id: id.to_owned(),
        errors: failure
            .faults
            .iter()
            .cloned()
            .map(FieldProblem::from)
            .collect(),
    };
    serde_json::to_vec(&body).unwrap_or_default()
}

fn log(failure: &Failure, id: &str, state: &ApiState) {
    let problem = failure.problem;
    let code = problem.code();
    match &failure.cause {
        Some(cause) if problem == Problem::Internal => {
            tracing::error!(request_id = id, code, cause, "request failed");
        }
        Some(cause) => tracing::debug!(request_id = id, code, cause, "request refused"),
        None => tracing::debug!(request_id = id, code, "request refused"),
    }
    if problem.status() == StatusCode::SERVICE_UNAVAILABLE {
        let told = state.refusals().refused(code, state.clock().monotonic());
        let cause = failure.cause.as_deref().unwrap_or_default();
        match told {
            Some(Telling::GoesOn(count)) => {
                tracing::warn!(code, cause, count, "requests are still refused");
            }
            Some(_) => tracing::warn!(code, cause, "requests are refused from now on"),
            None => {}
        }
    }
}

fn log_ended_runs(state: &ApiState) {
    for (code, told) in state.refusals().taken(|| state.clock().monotonic()) {
        if let Telling::Ended(count, lasted) = told {
            // A single one did not last.
            let lasted = (!lasted.is_zero()).then_some(tracing::field::debug(lasted));
            tracing::info!(code, count, lasted, "requests are taken again");
        }
    }
}

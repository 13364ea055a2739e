//! `/openapi.json`, and the reference that is made from it: `/docs` and `/docs/problems/{code}`.
//!
//! Pages are made once, on first use, without scripts and without anything from elsewhere, and sent with headers
//! that would stop either.

mod html;
mod page;
mod reference;
mod schema;
mod tree;

use std::sync::OnceLock;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

use crate::openapi::{document, openapi_json};
use crate::problem::{Failure, Problem};
use crate::state::ApiState;

/// Styles stand in the page itself; nothing else is loaded, run or framed.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

pub(crate) fn router() -> Router<ApiState> {
    Router::new()
        .route("/openapi.json", get(openapi))
        .route("/docs", get(reference_page))
        .route("/docs/problems", get(problems_page))
        .route("/docs/problems/{code}", get(problem_page))
}

async fn openapi() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(openapi_json).as_str();
    let mut response = text.into_response();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn reference_page(State(state): State<ApiState>) -> Response {
    static PAGE: OnceLock<String> = OnceLock::new();
    page(
        PAGE.get_or_init(|| reference::render(document(), state.public_url()))
            .clone(),
    )
}

async fn problems_page() -> Response {
    static PAGE: OnceLock<String> = OnceLock::new();
    page(PAGE.get_or_init(reference::render_problems).clone())
}

async fn problem_page(Path(code): Path<String>) -> Result<Response, Failure> {
    let problem = Problem::from_code(&code).ok_or(Failure::new(Problem::RouteNotFound))?;
    Ok(page(reference::render_problem(problem)))
}

fn page(text: String) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

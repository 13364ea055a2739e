//! What stands at `/`: one page that says that the console is not built yet, and where to go instead.
//!
//! It serves that page with headers that let it load, run and be framed by nothing. It knows neither the API nor
//! the database; its only neighbour is `server`, which mounts [`router`].

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};

/// The page. Its style is its own; it needs nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// The style in the page counts; nothing else is loaded, run or framed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The route `/`.
pub fn router() -> Router {
    Router::new().route("/", get(page))
}

async fn page() -> Response {
    let mut response = PAGE.into_response();
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_where_to_go_and_loads_nothing() {
        assert!(PAGE.contains("href=\"/docs\""));
        for forbidden in ["<script", "<link", "<img", " src=", "@import", "url("] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
    }
}

//! Deadlines: a request that the database leaves without an answer is refused, and its connection goes back (INV-11).
//!
//! The database bounds its own statements. What it cannot bound is a connection on which nobody answers any more, because
//! packets are dropped or a machine is gone without a word: a request there would wait for as long as its caller does, and
//! keep one of the few connections that all tenants share. Submitting an event has a bound of its own, in
//! [`posthorn_store::accept`]. What a request was about to change may have happened, as with any answer that is lost.

use std::future::Future;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::Method;
use posthorn_domain::limits;
use posthorn_store::database;
use posthorn_store::read::DatabaseError;

use crate::problem::Failure;

/// Runs a request to its answer, or refuses it when its time is over.
pub(crate) async fn run(request: Request, next: Next) -> Response {
    let wait = wait_of(request.method());
    let answer = tokio::time::timeout(wait, next.run(request)).await;
    answer.unwrap_or_else(|_| Failure::from(silence()).into_response())
}

/// A step at the database that is not part of a handler.
pub(crate) async fn step<T, E: From<DatabaseError>>(
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::time::timeout(limits::STEP, step)
        .await
        .unwrap_or_else(|_| Err(silence().into()))
}

/// Methods with a body have as long as that may take to arrive, besides.
fn wait_of(method: &Method) -> Duration {
    if [Method::POST, Method::PUT, Method::PATCH].contains(method) {
        limits::BODY_WAIT + limits::STEP
    } else {
        limits::STEP
    }
}

fn silence() -> DatabaseError {
    database::unanswered().into()
}

//! Submitting an event without the router: the way of nearly every request that a busy node gets.
//!
//! The router finds the route, and copies and boxes each of its layers, for every request anew; beside what it takes to accept
//! an event that is dear. [`Submissions`] answers `POST /v1/events` and nothing else: it checks who calls, submits and
//! concludes by the functions that the router's route ends in, too, so both say the same to every request. Whatever
//! else there is on that path (other methods, a slash at the end) is the router's to answer.

use std::panic::AssertUnwindSafe;

use axum::extract::{FromRequestParts as _, Request};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::Method;

use crate::access::Operation;
use crate::answer;
use crate::authenticate::Caller;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::routes;
use crate::state::ApiState;

/// Where events are submitted.
const PATH: &str = "/v1/events";

/// Answers `POST /v1/events` as [`crate::router`] would. Cheap to clone.
#[derive(Clone)]
pub struct Submissions {
    state: ApiState,
}

impl Submissions {
    /// Submissions to the acceptor of `state`.
    #[must_use]
    pub const fn new(state: ApiState) -> Self {
        Self { state }
    }

    /// Whether a request submits an event.
    #[must_use]
    pub fn takes<B>(request: &http::Request<B>) -> bool {
        request.method() == Method::POST && request.uri().path() == PATH
    }

    /// Answers a request that [`Submissions::takes`].
    pub async fn answer(self, request: Request) -> Response {
        let state = &self.state;
        answer::concluded(state, request, async |request| {
            let submitting = AssertUnwindSafe(submit(state, request)).catch_unwind();
            match submitting.await {
                Ok(answer) => answer.into_response(),
                Err(panic) => answer::panicked(panic),
            }
        })
        .await
    }
}

/// What the route's extractors do, in their order, and then its handler.
async fn submit(state: &ApiState, request: Request) -> Result<routes::Submitted, Failure> {
    let (mut parts, body) = request.into_parts();
    let operation = Operation::of(&parts.method, PATH).ok_or_else(|| {
        Failure::internal(format_args!(
            "{} {PATH} is not in the table of operations",
            parts.method
        ))
    })?;
    // Events are their own record of who sent them when: no entry of the audit log needs an address.
    let caller = Caller::of(&parts.headers, None, operation, state)?;
    NoQuery::from_request_parts(&mut parts, state).await?;
    routes::submit(state, &caller, Request::from_parts(parts, body)).await
}

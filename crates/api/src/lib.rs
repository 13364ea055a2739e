//! The REST API under `/v1`, its OpenAPI document, and the reference made from it.
//!
//! [`router`] is all that the server mounts, and [`Submissions`] a shorter way to its busiest operation. It authenticates
//! callers, reads requests strictly, makes one call into `store`, and answers; it decides nothing about deliveries and
//! knows no SQL. What it promises: every refusal has one shape ([`problem`]), a body is bounded before it is buffered, a
//! payload is passed on byte for byte (INV-3), an event is answered 2xx only after `store` said that it is durable (INV-1), and a tenant's
//! rows are asked for only with the scope that [`authenticate`] makes (INV-9).
//!
//! Neighbours: `domain` and `store` below, `server` above. It does not know the worker.

mod access;
mod answer;
mod authenticate;
mod body;
mod cursor;
mod deadline;
mod docs;
mod envelope;
mod failure;
mod faults;
mod idempotent;
mod list;
mod openapi;
pub mod problem;
mod query;
mod refusals;
mod routes;
mod shape;
mod state;
mod submissions;
mod wire;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

pub use crate::openapi::openapi_json;
use crate::problem::{Failure, Problem};
pub use crate::state::{ApiParts, ApiState};
pub use crate::submissions::Submissions;

/// The API with its document and reference: `/v1/…`, `/openapi.json`, `/docs` and `/docs/problems/{code}`.
///
/// It has the fallback for paths that do not exist, so whatever it is merged with must have none.
pub fn router(state: ApiState) -> Router {
    let (operations, _) = routes::router().split_for_parts();
    // Outermost first: every answer gets its request id and its body, a panic's answer, too.
    let layers = ServiceBuilder::new()
        .layer(from_fn_with_state(state.clone(), answer::conclude))
        .layer(CatchPanicLayer::custom(answer::panicked));
    operations
        .route_layer(from_fn_with_state(state.clone(), idempotent::once))
        .merge(docs::router())
        .fallback(|| async { Failure::new(Problem::RouteNotFound) })
        .layer(layers)
        .with_state(state)
}

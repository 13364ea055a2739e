//! The operations, one file each, in the order of the reference.
//!
//! A handler extracts, makes one call, and answers. The forms of an object stand in its resource's file; the
//! form of a request stands beside the handler that takes it.

mod api_keys;
mod attempts;
mod audit_log;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;

use utoipa_axum::router::OpenApiRouter;

pub(crate) use self::events::{Submitted, submit};
use crate::state::ApiState;

/// All operations under `/v1`.
pub(crate) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .merge(events::router())
        .merge(endpoints::router())
        .merge(deliveries::router())
        .merge(attempts::router())
        .merge(dead_letters::router())
        .merge(api_keys::router())
        .merge(audit_log::router())
}

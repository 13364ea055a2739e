//! What a tenant sees: events, deliveries, attempts, dead letters, endpoints, API keys and the audit log, one by one and in pages.
//!
//! Every read runs in the tenant's own transaction (INV-9) and its statements name the tenant besides, so that
//! each is served by the keys that begin with it. Lists are walked by key, never by offset: a page is the rows
//! between two keys, in either direction, so rows that arrive meanwhile shift nothing. No list is offered that
//! no index serves.
//!
//! Nothing here changes a row. Neighbours: [`crate::configure`] and [`crate::replay`], which do.

mod attempts;
mod audit;
mod dead_letters;
mod deliveries;
mod endpoints;
mod events;
mod health;
mod keys;
mod page;

pub use attempts::{
    Attempt, AttemptKey, AttemptReply, AttemptSummary, attempt, attempts_of_delivery,
    attempts_of_endpoint, attempts_of_event,
};
pub use audit::{AuditEntry, AuditFilter, audit_log};
pub use dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterKey, dead_letter, dead_letters};
pub(crate) use deliveries::delivery_in;
pub use deliveries::{Delivery, deliveries, delivery};
pub use endpoints::{Endpoint, EndpointRef, endpoint, endpoints};
pub(crate) use endpoints::{
    EndpointRow, compat_form, endpoint_for_update, find_endpoint, rate_limit,
};
pub use events::{Event, EventFilter, EventPayload, event, events, payload};
pub(crate) use health::add_health;
pub use health::{EndpointHealth, HealthStatus};
pub use keys::{ApiKey, api_key, api_keys};
pub use page::{Edge, Order, Page, PageKey, Slice};

use crate::database;

/// Why a statement gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database is away, overloaded or going down; the same call may succeed soon.
    #[error("the database is unavailable")]
    Unavailable(#[source] database::DatabaseError),
    /// The statement failed, and would again.
    #[error("a statement failed: {0}")]
    Failed(#[source] database::DatabaseError),
    /// A row holds what this program does not understand; the text says which part.
    #[error("a row cannot be read: {0}")]
    Unreadable(&'static str),
}

database::from_driver!(DatabaseError);

impl From<database::DatabaseError> for DatabaseError {
    fn from(error: database::DatabaseError) -> Self {
        if passes(&error) {
            Self::Unavailable(error)
        } else {
            Self::Failed(error)
        }
    }
}

/// Whether an error is of the kind that passes: no connection, no room, no lock in time, a cluster on its way
/// down or up, a session that the server ended. Everything else is ours.
fn passes(error: &database::DatabaseError) -> bool {
    let Some(code) = error.code() else {
        return error.is_of_the_way();
    };
    // Connection, resources, operator's intervention, serialization and deadlock; lock timeout; read-only standby.
    ["08", "53", "57", "40"]
        .iter()
        .any(|class| code.starts_with(class))
        || code == "55P03"
        || code == "25006"
        // FATAL, whatever the reason: such as a transaction that stood idle because this program had no time.
        || error.mild_refusal().is_none()
}

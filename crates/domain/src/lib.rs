//! What Posthorn knows without asking anybody: the pure part of a webhook delivery server.
//!
//! Ids, event types and patterns, the state machine of a delivery, retry policies, signatures, sealing,
//! and the rules for URLs, addresses, headers, metadata, API keys and payloads. Every value that came
//! from outside is parsed here once, into a type with private fields that carries the proof.
//!
//! Guarantees: no async, no I/O, no clock, no source of randomness; time and random bytes are arguments.
//! Parsers never panic, whatever the bytes, and take time and memory in proportion to their input.
//!
//! Does not: know SQL, HTTP clients, or who is calling. Neighbours: `store` and `egress` build on this
//! crate, and everything else builds on those.

pub mod address;
pub mod api_key;
pub mod audit;
pub mod body;
pub mod circuit;
pub mod compat;
pub mod content_type;
mod crockford;
pub mod delivery;
pub mod discreet;
pub mod endpoint;
pub mod event_type;
pub mod header;
pub mod id;
pub mod idempotency;
pub mod limits;
pub mod metadata;
pub mod payload;
pub mod rate;
pub mod retention;
pub mod retry;
pub mod retry_after;
pub mod scope;
pub mod seal;
pub mod secret;
pub mod shutdown;
pub mod signature;
pub mod signature_headers;
pub mod uid;
pub mod url;
pub mod word;

//! The guarded client against scripted receivers on the loopback.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what goes wrong in what the tests share is a failed test too"
)]

#[path = "it/answers.rs"]
mod answers;
#[path = "it/bytes_sent.rs"]
mod bytes_sent;
#[path = "it/connections.rs"]
mod connections;
#[path = "it/failures.rs"]
mod failures;
#[path = "it/fixture.rs"]
mod fixture;
#[path = "it/guard.rs"]
mod guard;
#[path = "it/handshakes.rs"]
mod handshakes;
#[path = "it/http2.rs"]
mod http2;
#[path = "it/malformed.rs"]
mod malformed;
#[path = "it/names.rs"]
mod names;
#[path = "it/proxy.rs"]
mod proxy;
#[path = "it/reuse.rs"]
mod reuse;

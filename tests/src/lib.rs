//! What whole-program tests stand on: endpoints that do as a script says, and a name server that answers as a test wants.
//!
//! Guarantees: everything listens on a free port of the loopback, ends when dropped, and waits with a deadline, so that no
//! test needs to sleep. Does not: know the server under test; the tests themselves are in `tests/it`, one binary.

pub mod authority;
pub mod capture;
pub mod cluster;
pub mod database;
pub mod engine;
pub mod environment;
pub mod forward_proxy;
pub mod name_server;
pub mod program;
pub mod proxy;
pub mod receiver;
pub mod rows;
pub mod tenants;
pub mod wait;
pub mod wall_clock;

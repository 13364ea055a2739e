//! The tests of the whole program: one binary, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what goes wrong in what the tests share is a failed test too"
)]

mod receiver;

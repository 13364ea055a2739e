//! The tests of the whole program: one binary, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what goes wrong in what the tests share is a failed test too"
)]

mod answers;
mod api;
mod canaries;
mod chaos;
mod clock;
mod disk;
mod engine_accept;
mod engine_aside;
mod engine_backpressure;
mod engine_circuit;
mod engine_deadlines;
mod engine_drain;
mod engine_fanout;
mod engine_fence;
mod engine_handover;
mod engine_homes;
mod engine_housekeeping;
mod engine_keys;
mod engine_leaves;
mod engine_load;
mod engine_nodes;
mod engine_pace;
mod engine_park;
mod engine_plans;
mod engine_rate;
mod engine_record;
mod engine_recover;
mod engine_replay;
mod engine_reseal;
mod engine_retry;
mod engine_scene;
mod engine_shards;
mod engine_shutdown;
mod engine_signing;
mod engine_states;
mod engine_turns;
mod engine_walls;
mod first_run;
mod hostile;
mod idempotency;
mod input;
mod kill;
mod load;
mod master_keys;
mod measure;
mod metrics;
mod migrate;
mod notify;
mod outage;
mod prepare;
mod private_authority;
mod receiver;
mod roles;
mod secrets;
mod shutdown;
mod signing;
mod stage;
mod story;
mod test_sends;
mod threads;
mod unasked;
mod ways_out;
mod zones;

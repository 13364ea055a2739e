//! The only crate that knows Posthorn's SQL.
//!
//! It keeps what the rest of the program promises: an event is answered only after its flush
//! ([`accept`]), every delivery ends on record ([`record`], [`pending`], [`recover`]), a tenant's rows
//! are reached only through its [`scope::TenantScope`]. It guarantees that each statement states the
//! state it expects; it does not send requests, speak HTTP, or decide what follows an attempt: that is
//! [`posthorn_domain::delivery`].
//!
//! Neighbours: `domain` below; `api` (reads, configuration, accept) and `worker` (dispatch, record,
//! recover) above. What passes between those two in one process is [`accept::FreshEvent`],
//! [`due::DueHint`] and [`test_send::TestSend`].
//!
//! The batches of accept, record and recovery run as the role `posthorn_system`, which sees every
//! tenant; that role's connections never leave this crate.

pub mod accept;
pub mod alarm;
pub mod audit;
pub mod clock;
pub mod configuration;
pub mod configure;
pub mod database;
pub mod drive;
pub mod due;
pub mod entropy;
pub mod gone;
pub mod health;
pub mod housekeeping;
pub mod idempotent;
pub mod key_use;
pub mod lease;
pub mod master_key;
pub mod migrate;
pub mod oracle;
pub mod partitions;
pub mod pending;
pub mod read;
pub mod record;
pub mod recover;
pub mod replay;
pub mod reseal;
pub mod scope;
pub mod shards;
pub mod stream;
pub mod test_send;

//! The engine: dispatch, send, record, retry, park, recover, housekeeping.
//!
//! An event comes in as a [`FreshEvent`] once it is durable, or as a due row of `pending`; it leaves as a fact that
//! the recorder has committed. In between it stands in memory only, and memory may be lost at any moment:
//! everything here is written so that a crash costs at most a duplicate (INV-2, INV-6).
//!
//! Guarantees: no connection is held while a request is under way (INV-7); every queue is bounded (INV-11);
//! tenants and endpoints take turns (INV-13). Does not decide what follows an attempt: that is
//! [`posthorn_domain::delivery`]. Neighbours: `store` for every statement, `egress` for every request.

mod alarm;
mod assemble;
mod circuit;
mod dispatch;
mod expire;
mod housekeeping;
mod pace;
mod park;
mod record;
mod recover;
mod retry;
mod send;
mod stall;
mod step;

pub use self::alarm::Alarm;
pub use self::assemble::{Worker, WorkerParts};
pub use self::circuit::{CircuitParts, Circuits};
pub use self::dispatch::{Dispatcher, Item};
pub use self::expire::Expiry;
pub use self::housekeeping::{Housekeeping, HousekeepingParts, Kept, Round};
pub use self::park::{Parking, ParkingParts};
pub use self::record::{RecordLoop, Recorder, Unrecorded};
pub use self::recover::{Keeping, KeepingParts, Recovery, Tally};
pub use self::retry::DueTimer;
pub use self::send::{LoadLoop, Loader, Sender, SenderParts, TestSender, TestSenderParts};

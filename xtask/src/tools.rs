//! What this repository needs and a machine may lack, fetched into `.posthorn/tools/` with pinned hashes.
//!
//! Guarantees: everything that is fetched has its version and SHA-256 in `xtask/pins/`; nothing is installed
//! system-wide here (apt is asked for in `needs`). Python packages live in a virtual environment, since pip
//! refuses to install outside one on today's Debian.

pub(crate) mod node;
pub(crate) mod postgres;
pub(crate) mod python;

//! The one guarded HTTP client. Whatever address a tenant gave is reached through here and in no other way.
//!
//! Guarantees:
//!
//! - **INV-8**: nothing is sent to an address that the [`EgressPolicy`] forbids, and the address vetted is the address
//!   connected to: the connector asks for a name's addresses once, judges every one of them with the port, and dials
//!   those very addresses. A name with any forbidden answer is refused whole. A literal goes the same way. A connection
//!   taken from the pool was vetted when it was made.
//! - One deadline stands over name, connection, TLS, head and body together. Once a head is there it is the answer; a body
//!   that is slow, endless or large is cut, not waited for.
//! - **INV-11**: the body kept, the head read, the addresses tried, the time for names and the connections kept open are
//!   bounded; the numbers are in [`posthorn_domain::limits`].
//! - A forward proxy takes over the connecting where the operator names one, and nothing of the judging: it is asked for the
//!   address that was vetted.
//! - Redirects are never followed, proxies of the environment never used, nothing is decompressed, the request's path and
//!   query go out byte for byte, and no header is added but `host` and `content-length`.
//! - A request is acted on at most once. It is sent again where nobody acted on it: when it found a kept connection closed before
//!   its first byte was written, and, once, when its receiver says that it did nothing with it (RFC 9113, 8.7).
//!
//! Not guaranteed: that a failed request did not arrive. A receiver that closes an idle connection just when a request is
//! written to it makes a failed attempt whose fate nobody knows; it is recorded as one, and retried under the same
//! `webhook-id`. Idle connections are kept only for a moment to make that rare.
//!
//! Neighbours: `posthorn-domain` owns the policy, the URL and the kinds of error; the worker calls [`Egress::send`].

mod answer;
mod connect;
mod connection;
mod failure;
mod http1;
mod http2;
mod lost;
mod mask;
mod options;
mod own;
mod pool;
mod resolve;
mod send;
mod target;
mod tls;
mod tunnel;
mod vet;

pub use answer::Answer;
pub use failure::SendFailure;
pub use mask::{MASKED, mask_value};
pub use options::{EgressError, EgressOptions, NameServers};
pub use own::is_this_machine;
pub use send::{Outgoing, Sent};
pub use tls::check_roots;
pub use tunnel::{ForwardProxy, ForwardProxyError};

use std::sync::Arc;

use posthorn_domain::address::EgressPolicy;

use crate::{connect::Connector, pool::Pool};

/// The guarded client. Clones share one pool of connections and one cache of names.
#[derive(Clone)]
pub struct Egress {
    connector: Connector,
    pool: Arc<Pool>,
}

impl Egress {
    /// Builds the client: reads the resolver's configuration, the hosts file and the root certificates, once.
    ///
    /// # Errors
    ///
    /// [`EgressError`] when the extra root certificates cannot be read or the TLS or name configuration is unusable; a
    /// server refuses to start then, rather than fail at its first delivery.
    pub fn new(policy: EgressPolicy, options: &EgressOptions) -> Result<Self, EgressError> {
        Ok(Self {
            connector: Connector::new(policy, options)?,
            pool: Arc::default(),
        })
    }
}

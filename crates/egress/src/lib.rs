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
//! - Redirects are never followed, proxies of the environment never used, nothing is decompressed, the request's path and
//!   query go out byte for byte, and no header is added but `host` and `content-length`.
//! - A request is sent at most once. The one exception leaves no trace at the other side: a request that found its pooled
//!   connection closed before its first byte was written takes another one.
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
mod mask;
mod options;
mod resolve;
mod send;
mod tls;
mod vet;

pub use answer::Answer;
pub use failure::SendFailure;
pub use mask::{MASKED, mask_value};
pub use options::{EgressError, EgressOptions, NameServers};
pub use send::{Outgoing, Sent};
pub use tls::check_roots;

use std::sync::{Arc, atomic::AtomicUsize};

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use posthorn_domain::{address::EgressPolicy, limits};

use crate::{connect::Connector, connection::OpenConnections};

/// The guarded client. Clones share one pool of connections and one cache of names.
#[derive(Clone)]
pub struct Egress {
    client: Client<Connector, Full<Bytes>>,
    open: Arc<OpenConnections>,
    in_flight: Arc<AtomicUsize>,
}

impl Egress {
    /// Builds the client: reads the resolver's configuration, the hosts file and the root certificates, once.
    ///
    /// # Errors
    ///
    /// [`EgressError`] when the extra root certificates cannot be read or the TLS or name configuration is unusable; a
    /// server refuses to start then, rather than fail at its first delivery.
    pub fn new(policy: EgressPolicy, options: &EgressOptions) -> Result<Self, EgressError> {
        let open = Arc::new(OpenConnections::default());
        let connector = Connector::new(policy, options, Arc::clone(&open))?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one client for tenants' addresses"
        )]
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits::EGRESS_IDLE)
            .pool_max_idle_per_host(limits::EGRESS_IDLE_CONNECTIONS)
            .http1_max_buf_size(limits::RESPONSE_HEADER_BYTES)
            .http1_max_headers(limits::RESPONSE_HEADERS_READ)
            .http2_max_header_list_size(
                u32::try_from(limits::RESPONSE_HEADER_BYTES).unwrap_or(u32::MAX),
            )
            // Until the other side has said how many requests it takes at once, one: it would refuse the rest.
            .http2_initial_max_send_streams(1)
            // A connection whose other side is gone without a word would fail every later request by its deadline.
            .http2_keep_alive_interval(limits::EGRESS_HTTP2_PING)
            .http2_keep_alive_timeout(limits::EGRESS_HTTP2_PING)
            .build(connector);
        Ok(Self {
            client,
            open,
            in_flight: Arc::default(),
        })
    }
}

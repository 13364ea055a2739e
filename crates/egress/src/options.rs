//! What a server may set about sending, and what can be wrong with it.

use std::net::SocketAddr;

use crate::tunnel::ForwardProxy;

/// Settings of the guarded client; the default is the system's resolver, no extra roots and no proxy.
#[derive(Clone, Debug, Default)]
pub struct EgressOptions {
    /// PEM text with certificates to trust beside the built-in roots and the system's.
    pub extra_roots: Option<Vec<u8>>,
    /// Who is asked for names.
    pub name_servers: NameServers,
    /// The way out, if not straight.
    pub proxy: Option<ForwardProxy>,
}

/// Who is asked for names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameServers {
    /// `/etc/hosts`, then what `/etc/resolv.conf` names; without that file the server at 127.0.0.1:53, as libc does.
    #[default]
    System,
    /// These alone, and no hosts file.
    Only(Vec<SocketAddr>),
}

/// Why the client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The extra roots are not PEM.
    #[error("the extra root certificates are not valid PEM")]
    RootsNotPem(#[source] rustls::pki_types::pem::Error),
    /// The extra roots are PEM, but hold no certificate.
    #[error("the extra root certificates hold no certificate")]
    NoRootsGiven,
    /// A certificate of the extra roots cannot be trusted as a root.
    #[error("an extra root certificate cannot be used")]
    RootUnusable(#[source] rustls::Error),
    /// The TLS library refused its configuration.
    #[error("TLS cannot be configured")]
    Tls(#[source] rustls::Error),
    /// The resolver refused its configuration.
    #[error("the name resolver cannot be configured")]
    Resolver(#[source] hickory_resolver::net::NetError),
}

//! Opening a connection: vet, dial, shake hands. The pool calls this, and nothing else opens a connection to a tenant's
//! address.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::{Uri, uri::Scheme};
use posthorn_domain::{address::EgressPolicy, limits};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::{
    connection::{Connection, OpenConnections},
    options::{EgressError, EgressOptions},
    tls,
    vet::{Guard, VetError},
};

/// Why there is no connection. Found by [`crate::failure`] in the chain of the client's error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The URL cannot be connected to as it stands: no host, or another scheme.
    #[error("the URL has no usable scheme and host")]
    Unusable,
    /// Policy or names.
    #[error(transparent)]
    Vet(#[from] VetError),
    /// Nobody accepted.
    #[error("no connection to {address}")]
    Dial {
        address: SocketAddr,
        source: io::Error,
    },
    /// No TLS session.
    #[error("no TLS session with {address}")]
    Tls {
        address: SocketAddr,
        source: io::Error,
    },
    /// The longest time limit that any request may have is over.
    #[error("connecting took too long")]
    Overdue,
}

/// Makes vetted connections.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: Guard,
    tls: Arc<ClientConfig>,
    open: Arc<OpenConnections>,
}

impl Connector {
    /// Reads roots and the resolver's configuration.
    pub(crate) fn new(
        policy: EgressPolicy,
        options: &EgressOptions,
        open: Arc<OpenConnections>,
    ) -> Result<Self, EgressError> {
        let tls = tls::client_config(options.extra_roots.as_deref())?;
        Ok(Self {
            guard: Guard::new(policy, options)?,
            tls,
            open,
        })
    }

    async fn connect(self, uri: Uri) -> Result<Connection, ConnectError> {
        let host = uri.host().ok_or(ConnectError::Unusable)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let secure = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(ConnectError::Unusable),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let (stream, address) = dial(self.guard.vet(host, port).await?).await?;
        if !secure {
            return Ok(Connection::plain(stream, address, &self.open));
        }
        // A trailing dot is DNS spelling; certificates and SNI do without (RFC 6066, 3).
        let name = ServerName::try_from(host.strip_suffix('.').unwrap_or(host))
            .map_err(|_| ConnectError::Unusable)?
            .to_owned();
        let stream = TlsConnector::from(self.tls)
            .connect(name, stream)
            .await
            .map_err(|source| ConnectError::Tls { address, source })?;
        Ok(Connection::tls(stream, address, &self.open))
    }
}

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = self.clone();
        // A request's own deadline is shorter or equal. This bounds a connection that the pool goes on making after its
        // request found another one.
        Box::pin(async move {
            tokio::time::timeout(limits::TIMEOUT_MAX, connector.connect(uri))
                .await
                .unwrap_or(Err(ConnectError::Overdue))
        })
    }
}

/// Dials the addresses in order, each a moment after the one before it or as soon as that has failed, and takes the first
/// that accepts (after RFC 8305): a broken IPv6 route costs that moment, not the deadline.
async fn dial(addresses: Vec<SocketAddr>) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut waiting = addresses.into_iter();
    let mut dials = FuturesUnordered::new();
    let mut failed = None;
    loop {
        if let Some(address) = waiting.next() {
            dials.push(dial_one(address));
        }
        let outcome = if waiting.len() == 0 {
            dials.next().await
        } else {
            match tokio::time::timeout(limits::EGRESS_DIAL_STAGGER, dials.next()).await {
                Ok(outcome) => outcome,
                Err(_) => continue,
            }
        };
        match outcome {
            Some(Ok(connected)) => return Ok(connected),
            Some(Err(error)) => failed = Some(error),
            None if waiting.len() == 0 => return Err(failed.unwrap_or(ConnectError::Unusable)),
            None => {}
        }
    }
}

async fn dial_one(address: SocketAddr) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let dialled = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    match dialled.await {
        Ok(stream) => Ok((stream, address)),
        Err(source) => Err(ConnectError::Dial { address, source }),
    }
}

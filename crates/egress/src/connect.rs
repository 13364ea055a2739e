//! Opening a connection: vet, dial, shake hands. Nothing else opens a connection to a tenant's address.

use std::{io, net::SocketAddr, sync::Arc};

use futures_util::stream::{FuturesUnordered, StreamExt};
use posthorn_domain::{
    address::EgressPolicy,
    limits,
    url::{EndpointUrl, Host, Scheme},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    connection::Connection,
    options::{EgressError, EgressOptions},
    tls,
    vet::{Guard, VetError},
};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The URL cannot be connected to as it stands.
    #[error("the URL has no usable host")]
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
}

/// Makes vetted connections.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: Guard,
    tls: Arc<ClientConfig>,
}

impl Connector {
    /// Reads roots and the resolver's configuration.
    pub(crate) fn new(policy: EgressPolicy, options: &EgressOptions) -> Result<Self, EgressError> {
        let tls = tls::client_config(options.extra_roots.as_deref())?;
        Ok(Self {
            guard: Guard::new(policy, options)?,
            tls,
        })
    }

    /// Connects to the host of a URL, with TLS if its scheme says so. Has no deadline of its own.
    pub(crate) async fn connect(&self, url: &EndpointUrl) -> Result<Connection, ConnectError> {
        let vetted = self.guard.vet(url).await?;
        let (stream, address) = dial(vetted).await?;
        if url.scheme() == Scheme::Http {
            return Ok(Connection::plain(stream, address));
        }
        let name = match url.host() {
            Host::Name(name) => ServerName::try_from(name.clone()),
            Host::Ip(ip) => Ok(ServerName::IpAddress((*ip).into())),
        };
        let name = name.map_err(|_| ConnectError::Unusable)?;
        let stream = TlsConnector::from(Arc::clone(&self.tls))
            .connect(name, stream)
            .await
            .map_err(|source| ConnectError::Tls { address, source })?;
        Ok(Connection::tls(stream, address))
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

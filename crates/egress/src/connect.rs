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
    resolve::Names,
    tls,
    tunnel::{TunnelError, Tunnels},
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
    /// The forward proxy opened no tunnel.
    #[error(transparent)]
    Tunnel(TunnelError),
    /// No TLS session.
    #[error("no TLS session with {address}")]
    Tls {
        address: SocketAddr,
        source: io::Error,
    },
}

/// A host that was judged, and the addresses that may be dialled for it.
pub(crate) struct Vetted<'a> {
    url: &'a EndpointUrl,
    addresses: Vec<SocketAddr>,
}

/// Makes vetted connections.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: Guard,
    way: Way,
    tls: Arc<ClientConfig>,
}

/// How an address is connected to.
#[derive(Clone)]
enum Way {
    Straight,
    Through(Box<Tunnels>),
}

impl Connector {
    /// Reads roots and the resolver's configuration.
    pub(crate) fn new(policy: EgressPolicy, options: &EgressOptions) -> Result<Self, EgressError> {
        let tls = tls::client_config(options.extra_roots.as_deref())?;
        let names = Names::new(&options.name_servers)?;
        let way = match &options.proxy {
            None => Way::Straight,
            Some(proxy) => Way::Through(Box::new(Tunnels::new(proxy.clone(), names.clone()))),
        };
        Ok(Self {
            guard: Guard::new(policy, names),
            way,
            tls,
        })
    }

    /// Judges the host of a URL. What takes time here is its name.
    pub(crate) async fn vet<'a>(&self, url: &'a EndpointUrl) -> Result<Vetted<'a>, ConnectError> {
        let addresses = self.guard.vet(url).await?;
        Ok(Vetted { url, addresses })
    }

    /// Connects to what was vetted, with TLS if its scheme says so. Has no deadline of its own. `dialled` is the address that took
    /// the connection, as soon as one did.
    pub(crate) async fn connect(
        &self,
        vetted: Vetted<'_>,
        dialled: &mut Option<SocketAddr>,
    ) -> Result<Connection, ConnectError> {
        let Vetted { url, addresses } = vetted;
        let (stream, address) = dial(&self.way, addresses).await?;
        *dialled = Some(address);
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
async fn dial(
    way: &Way,
    addresses: Vec<SocketAddr>,
) -> Result<(TcpStream, SocketAddr), ConnectError> {
    let mut waiting = addresses.into_iter();
    let mut dials = FuturesUnordered::new();
    let mut failed = None;
    loop {
        if let Some(address) = waiting.next() {
            dials.push(way.to(address));
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

impl Way {
    async fn to(&self, address: SocketAddr) -> Result<(TcpStream, SocketAddr), ConnectError> {
        let stream = match self {
            Self::Straight => straight(address)
                .await
                .map_err(|source| ConnectError::Dial { address, source })?,
            Self::Through(tunnels) => tunnels.open(address).await.map_err(ConnectError::Tunnel)?,
        };
        Ok((stream, address))
    }
}

async fn straight(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

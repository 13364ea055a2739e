//! Names to addresses: the hosts file, then the name servers, within a bound of time and without blocking a thread, so that
//! dead names hold up nobody else.

use std::net::{IpAddr, Ipv4Addr};

use futures_util::future::{self, Either};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{
        ConnectionConfig, NameServerConfig, ProtocolConfig, ResolveHosts, ResolverConfig,
        ResolverOpts,
    },
    net::{DnsError, NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::{Query, ResponseCode},
        rr::{Name, RecordType},
    },
    system_conf::read_system_conf,
};
use posthorn_domain::limits;

use crate::options::{EgressError, NameServers};

/// Why a name has no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The text is no name that DNS knows, such as one with a label over 63 characters.
    #[error("the host name is not a valid DNS name")]
    Malformed,
    /// NXDOMAIN.
    #[error("the host name does not exist (NXDOMAIN)")]
    Unknown,
    /// The name exists, but has no A or AAAA record.
    #[error("the host name has no A or AAAA record")]
    NoAddress,
    /// SERVFAIL, REFUSED, a loop of aliases, an answer that cannot be read.
    #[error("the name server could not answer for this host name; its zone may be broken")]
    ServerFailure,
    /// Nobody answered in time.
    #[error("no name server answered for this host name in time")]
    Timeout,
}

/// Looks names up. Answers are cached for their TTL.
#[derive(Clone)]
pub(crate) struct Names {
    resolver: TokioResolver,
    hosts: std::sync::Arc<Hosts>,
}

impl Names {
    /// Reads the system's configuration, or takes the servers given.
    pub(crate) fn new(servers: &NameServers) -> Result<Self, EgressError> {
        let (config, mut options, hosts) = match servers {
            NameServers::System => {
                let (config, options) = read_system_conf().unwrap_or_else(|error| {
                    tracing::warn!(%error, "no usable resolver configuration; asking the name server at 127.0.0.1");
                    let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
                    (ResolverConfig::from_parts(None, Vec::new(), vec![local]), ResolverOpts::default())
                });
                (config, options, Hosts::from_system().unwrap_or_default())
            }
            NameServers::Only(servers) => {
                (only(servers), ResolverOpts::default(), Hosts::default())
            }
        };
        options.timeout = limits::EGRESS_DNS_TRY;
        options.attempts = limits::EGRESS_DNS_RETRIES;
        options.max_active_requests = limits::EGRESS_DNS_REQUESTS;
        // Read here, so that an entry for one family is the whole answer, as with libc.
        options.use_hosts_file = ResolveHosts::Never;
        let resolver = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            .with_options(options)
            .build()
            .map_err(EgressError::Resolver)?;
        Ok(Self {
            resolver,
            hosts: std::sync::Arc::new(hosts),
        })
    }

    /// Every address of `host`, IPv6 first; never empty.
    pub(crate) async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let name = Name::from_utf8(host).map_err(|_| ResolveError::Malformed)?;
        let listed = self.in_hosts_file(&name);
        if !listed.is_empty() {
            return Ok(listed);
        }
        tokio::time::timeout(limits::EGRESS_DNS, self.ask(name))
            .await
            .unwrap_or(Err(ResolveError::Timeout))
    }

    fn in_hosts_file(&self, name: &Name) -> Vec<IpAddr> {
        [RecordType::AAAA, RecordType::A]
            .into_iter()
            .filter_map(|family| {
                self.hosts
                    .lookup_static_host(&Query::query(name.clone(), family))
            })
            .flat_map(|lookup| {
                lookup
                    .answers()
                    .iter()
                    .filter_map(|record| record.data.ip_addr())
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Asks for both families at once. When one has answered, the other has a moment more: name servers exist that never
    /// answer for AAAA. An address that came too late to be vetted is not used either.
    async fn ask(&self, name: Name) -> Result<Vec<IpAddr>, ResolveError> {
        let v6 = Box::pin(self.family(name.clone(), RecordType::AAAA));
        let v4 = Box::pin(self.family(name, RecordType::A));
        let (Either::Left((first, second)) | Either::Right((first, second))) =
            future::select(v6, v4).await;
        let Ok(mut addresses) = first else {
            return second.await;
        };
        if let Ok(Ok(more)) = tokio::time::timeout(limits::EGRESS_DNS_SECOND_FAMILY, second).await {
            addresses.extend(more);
        }
        addresses.sort_by_key(IpAddr::is_ipv4);
        Ok(addresses)
    }

    async fn family(&self, name: Name, family: RecordType) -> Result<Vec<IpAddr>, ResolveError> {
        let lookup = self
            .resolver
            .lookup(name, family)
            .await
            .map_err(|error| reason(&error))?;
        let addresses: Vec<_> = lookup
            .answers()
            .iter()
            .filter_map(|record| record.data.ip_addr())
            .collect();
        if addresses.is_empty() {
            Err(ResolveError::NoAddress)
        } else {
            Ok(addresses)
        }
    }
}

fn only(servers: &[std::net::SocketAddr]) -> ResolverConfig {
    let servers = servers.iter().map(|server| {
        let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
            let mut connection = ConnectionConfig::new(protocol);
            connection.port = server.port();
            connection
        });
        NameServerConfig::new(server.ip(), true, connections.into())
    });
    ResolverConfig::from_parts(None, Vec::new(), servers.collect())
}

fn reason(error: &NetError) -> ResolveError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => ResolveError::Unknown,
            ResponseCode::NoError => ResolveError::NoAddress,
            _ => ResolveError::ServerFailure,
        },
        NetError::Timeout => ResolveError::Timeout,
        _ => ResolveError::ServerFailure,
    }
}

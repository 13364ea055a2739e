//! From a URL's host and port to the addresses that may be dialled (INV-8).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use posthorn_domain::{
    address::{EgressPolicy, Forbidden, NotHttps, RefusedTarget},
    limits,
    url::{EndpointUrl, Host, is_localhost},
};

use crate::{
    own::OwnDatabases,
    resolve::{Names, ResolveError},
};

/// Why a host may not be dialled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VetError {
    /// An address of the host is forbidden. Neither which one nor why is said: names that only this server's network
    /// resolves would be mapped by whoever may set a URL.
    #[error(transparent)]
    Refused(#[from] RefusedTarget),
    /// The operator wants https alone.
    #[error(transparent)]
    InTheClear(#[from] NotHttps),
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

/// Judges hosts: policy and names.
#[derive(Clone)]
pub(crate) struct Guard {
    policy: EgressPolicy,
    names: Names,
    databases: Arc<OwnDatabases>,
}

/// What is judged beside the policy, of one host.
struct Judged<'a> {
    name: Option<&'a str>,
    port: u16,
    /// Where the server's own database is now, if it is at this port.
    databases: Vec<IpAddr>,
}

impl Guard {
    /// Judges by the policy, and asks for names here.
    pub(crate) fn new(policy: EgressPolicy, names: Names) -> Self {
        Self {
            policy,
            names,
            databases: Arc::default(),
        }
    }

    /// The addresses of a URL's host that may be dialled, best first; never empty.
    pub(crate) async fn vet(&self, url: &EndpointUrl) -> Result<Vec<SocketAddr>, VetError> {
        self.policy.allows_scheme(url.scheme())?;
        let (host, port) = (url.host(), url.port());
        let judged = Judged {
            name: match host {
                Host::Name(name) => Some(name),
                Host::Ip(_) => None,
            },
            port,
            databases: self.databases.addresses(self.policy.own(), port).await?,
        };
        let found = match host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) if is_localhost(name) => return self.vet_localhost(&judged),
            Host::Name(name) => self.names.look_up(name).await?,
        };
        for ip in &found {
            self.judge(&judged, *ip)?;
        }
        Ok(found
            .into_iter()
            .take(limits::EGRESS_ADDRESSES)
            .map(|ip| SocketAddr::new(ip, port))
            .collect())
    }

    /// `localhost` is loopback by definition (RFC 6761, 6.3) and nobody is asked. It is also the one name with two
    /// addresses of which an operator commonly allows one, so here the allowed ones are used.
    fn vet_localhost(&self, judged: &Judged<'_>) -> Result<Vec<SocketAddr>, VetError> {
        let mut allowed = Vec::new();
        let mut forbidden = None;
        for ip in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
        ] {
            match self.judge(judged, ip) {
                Ok(()) => allowed.push(SocketAddr::new(ip, judged.port)),
                Err(refused) => forbidden = Some(refused),
            }
        }
        match forbidden {
            Some(refused) if allowed.is_empty() => Err(refused.into()),
            _ => Ok(allowed),
        }
    }

    /// By the policy and our own database; what refuses is told to the operator, who alone may know.
    fn judge(&self, judged: &Judged<'_>, ip: IpAddr) -> Result<(), RefusedTarget> {
        let own = self.policy.own();
        let is_database = |at: &IpAddr| own.is_database(*at, ip);
        let verdict = if judged.databases.iter().any(is_database) {
            Err(Forbidden::OwnDatabase.into())
        } else {
            self.policy.allows(judged.name, ip, judged.port)
        };
        if let Err(refused) = verdict {
            tracing::debug!(name = judged.name, %ip, port = judged.port, why = %refused.why(), "a target is refused");
        }
        verdict
    }
}

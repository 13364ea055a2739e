//! From a URL's host and port to the addresses that may be dialled (INV-8).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use posthorn_domain::{
    address::{EgressPolicy, RefusedTarget},
    limits,
    url::Host,
};

use crate::{
    options::{EgressError, EgressOptions},
    resolve::{Names, ResolveError},
};

/// Why a host may not be dialled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VetError {
    /// An address of the host is forbidden. Neither which one nor why is said: names that only this server's network
    /// resolves would be mapped by whoever may set a URL.
    #[error(transparent)]
    Refused(#[from] RefusedTarget),
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

/// Judges hosts: policy and names.
#[derive(Clone)]
pub(crate) struct Guard {
    policy: EgressPolicy,
    names: Names,
}

impl Guard {
    /// Takes the policy and reads the resolver's configuration.
    pub(crate) fn new(policy: EgressPolicy, options: &EgressOptions) -> Result<Self, EgressError> {
        Ok(Self {
            policy,
            names: Names::new(&options.name_servers)?,
        })
    }

    /// The addresses of `host` that may be dialled, best first; never empty.
    pub(crate) async fn vet(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, VetError> {
        let name = match host {
            Host::Name(name) => name.as_str(),
            Host::Ip(ip) => {
                self.judge(None, *ip, port)?;
                return Ok(vec![SocketAddr::new(*ip, port)]);
            }
        };
        if is_localhost(name) {
            return self.vet_localhost(name, port);
        }
        let found = self.names.look_up(name).await?;
        for ip in &found {
            self.judge(Some(name), *ip, port)?;
        }
        Ok(found
            .into_iter()
            .take(limits::EGRESS_ADDRESSES)
            .map(|ip| SocketAddr::new(ip, port))
            .collect())
    }

    /// `localhost` is loopback by definition (RFC 6761, 6.3) and nobody is asked. It is also the one name with two
    /// addresses of which an operator commonly allows one, so here the allowed ones are used.
    fn vet_localhost(&self, name: &str, port: u16) -> Result<Vec<SocketAddr>, VetError> {
        let mut allowed = Vec::new();
        let mut forbidden = None;
        for ip in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
        ] {
            match self.judge(Some(name), ip, port) {
                Ok(()) => allowed.push(SocketAddr::new(ip, port)),
                Err(refused) => forbidden = Some(refused),
            }
        }
        match forbidden {
            Some(refused) if allowed.is_empty() => Err(refused.into()),
            _ => Ok(allowed),
        }
    }

    /// By the policy; what refuses is told to the operator, who alone may know.
    fn judge(&self, name: Option<&str>, ip: IpAddr, port: u16) -> Result<(), RefusedTarget> {
        let verdict = self.policy.allows(name, ip, port);
        if let Err(refused) = verdict {
            tracing::debug!(name, %ip, port, why = %refused.why(), "a target is refused");
        }
        verdict
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

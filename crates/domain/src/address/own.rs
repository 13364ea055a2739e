//! What of this server's own is never a target, whatever the operator allows (INV-8).
//!
//! Refused are its listeners, its database and its public address. Which addresses are this machine's, and what a
//! database's name resolves to, cannot be known here: the first is asked by a function, the second is to be given.

use core::net::{IpAddr, SocketAddr};

use super::Forbidden;
use crate::url::{Host, is_localhost};

/// A host and a port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A canonical name or an address.
    pub host: Host,
    /// 1 to 65535.
    pub port: u16,
}

/// The server's own places.
#[derive(Debug, Clone)]
pub struct OwnPlaces {
    /// What it listens on. An unspecified address stands for every address of the machine.
    pub listeners: Vec<SocketAddr>,
    /// The databases that it logs in to over TCP.
    pub databases: Vec<Place>,
    /// Where people and programs reach it: a host that is ours at every port, and on the loopback, which others share, at this
    /// one alone.
    pub public: Option<Place>,
    /// Whether an address is one of this machine's.
    pub is_this_machine: fn(IpAddr) -> bool,
}

impl Default for OwnPlaces {
    /// None, on a machine with the loopback alone.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            databases: Vec::new(),
            public: None,
            is_this_machine: |ip| ip.is_loopback() || ip.is_unspecified(),
        }
    }
}

impl OwnPlaces {
    /// The names of databases at this port: what they resolve to is refused there, too.
    pub fn database_names(&self, port: u16) -> impl Iterator<Item = &str> {
        let at_port = self.databases.iter().filter(move |own| own.port == port);
        at_port.filter_map(|own| match &own.host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        })
    }

    /// Whether connecting to `ip` leads to a database that is reached by `own`. One on this machine may listen on all of it.
    #[must_use]
    pub fn is_database(&self, own: IpAddr, ip: IpAddr) -> bool {
        let (own, ip) = (reached(own), reached(ip));
        own == ip || (self.is_this_machine)(own) && (self.is_this_machine)(ip)
    }

    /// Why an address is refused as one of our own.
    pub(super) fn refuses(&self, ip: IpAddr, port: u16) -> Option<Forbidden> {
        let ip = reached(ip);
        let is_listener = |own: &SocketAddr| own.port() == port && self.is_listener(own.ip(), ip);
        let is_database = |own: &Place| match &own.host {
            Host::Ip(at) => own.port == port && self.is_database(*at, ip),
            Host::Name(_) => false,
        };
        let is_public = |own: &Place| match &own.host {
            Host::Ip(at) => reached(*at) == ip && (!ip.is_loopback() || own.port == port),
            Host::Name(_) => false,
        };
        if self.listeners.iter().any(is_listener) {
            Some(Forbidden::OwnListener)
        } else if self.databases.iter().any(is_database) {
            Some(Forbidden::OwnDatabase)
        } else {
            let public = self.public.as_ref();
            public
                .is_some_and(is_public)
                .then_some(Forbidden::OwnAddress)
        }
    }

    /// Why a name is refused as one of our own, whatever it resolves to. It is canonical.
    pub(super) fn refuses_name(&self, name: &str, port: u16) -> Option<Forbidden> {
        let is_public = |own: &Place| match &own.host {
            Host::Name(host) => host == name && (!is_localhost(name) || own.port == port),
            Host::Ip(_) => false,
        };
        if self.database_names(port).any(|own| own == name) {
            Some(Forbidden::OwnDatabase)
        } else {
            let public = self.public.as_ref();
            public
                .is_some_and(is_public)
                .then_some(Forbidden::OwnAddress)
        }
    }

    /// The unspecified address as a target is the host itself; as a listener it is all of the host.
    fn is_listener(&self, own: IpAddr, ip: IpAddr) -> bool {
        let own = reached(own);
        own == ip || ip.is_unspecified() || own.is_unspecified() && (self.is_this_machine)(ip)
    }
}

/// The address that is reached by another that carries it: mapped, or by NAT64's well-known prefix (RFC 6052, 2.1).
fn reached(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => match v6.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => super::carried(high, low).into(),
            _ => v6.into(),
        },
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests;

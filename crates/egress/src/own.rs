//! What only the system knows of this server's own places: which addresses are this machine's, and where its database is now.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
};

use posthorn_domain::{
    address::{Forbidden, OwnPlaces, RefusedTarget},
    limits,
};
use tokio::sync::Mutex;

/// Whether an address is one of this machine's: the system lets nothing be bound to another. It is asked each time, for
/// addresses come and go. Where it cannot say, it is.
#[must_use]
pub fn is_this_machine(ip: IpAddr) -> bool {
    // Nobody's address, reserved (RFC 1112, 4) or for discarding (RFC 6666). Where even that is bound, `ip_nonlocal_bind` is set.
    let nobody = match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(240, 0, 0, 1)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1)),
    };
    binds(ip) && (!binds(nobody) || is_sent_from_itself(ip))
}

fn binds(ip: IpAddr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
    }
}

/// What is sent to an address of this machine comes from that address. Nothing is sent to find out.
fn is_sent_from_itself(ip: IpAddr) -> bool {
    let any = match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    from.is_ok_and(|from| from.ip() == ip)
}

/// Finds where the database is now, one question at a time: each may hold a thread for as long as the system's resolver takes.
#[derive(Debug, Default)]
pub(crate) struct OwnDatabases(Mutex<()>);

impl OwnDatabases {
    /// The addresses of this server's databases at this port that are known by name. They are asked for as the database's own
    /// client does it.
    ///
    /// # Errors
    ///
    /// When a name cannot be resolved now: then nobody can tell that a target is not the database.
    pub(crate) async fn addresses(
        &self,
        own: &OwnPlaces,
        port: u16,
    ) -> Result<Vec<IpAddr>, RefusedTarget> {
        let mut addresses = Vec::new();
        for name in own.database_names(port) {
            let _turn = self.0.lock().await;
            let asked =
                tokio::time::timeout(limits::EGRESS_DNS, tokio::net::lookup_host((name, port)));
            let Ok(Ok(found)) = asked.await else {
                tracing::debug!(
                    port,
                    "a target is refused: the database's own name cannot be resolved now"
                );
                return Err(Forbidden::OwnDatabase.into());
            };
            addresses.extend(found.map(|address| address.ip()));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_the_loopback_is_this_machines_and_nobodys_is_not() {
        for ip in ["127.0.0.1", "127.9.9.9", "0.0.0.0"] {
            assert!(is_this_machine(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["240.0.0.1", "1.1.1.1", "100::1", "2606:4700::1111"] {
            assert!(!is_this_machine(ip.parse().unwrap()), "{ip}");
        }
    }
}

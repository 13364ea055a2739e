//! Texts of settings that need more than a `FromStr`.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr as _;
use std::time::Duration;

use ipnet::IpNet;
use posthorn_domain::address::Place;
use posthorn_domain::limits;
use posthorn_domain::url::EndpointUrl;
use posthorn_egress::NameServers;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use url::{Host, Url};

/// The address under which people and programs reach the server: an origin, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    origin: String,
}

impl PublicUrl {
    /// `https://host`, or `http://` on loopback.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("is not a URL: {error}"))?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(
                "must be scheme, host and port alone, such as https://hooks.example.com".to_owned(),
            );
        }
        match url.scheme() {
            "https" => {}
            "http" if is_loopback(&url) => {}
            "http" => {
                return Err("must begin with https:// (http is for loopback alone)".to_owned());
            }
            _ => return Err("must begin with https://".to_owned()),
        }
        Ok(Self {
            origin: url.origin().ascii_serialization(),
        })
    }

    /// What a listener on loopback is reached by.
    pub(crate) fn of_loopback(listen: SocketAddr) -> Self {
        Self {
            origin: format!("http://{listen}"),
        }
    }

    /// Host and port.
    pub(crate) fn place(&self) -> Option<Place> {
        let url = EndpointUrl::parse(&self.origin).ok()?;
        Some(Place {
            host: url.host().clone(),
            port: url.port(),
        })
    }

    /// `https://host[:port]`, as a browser sends it in `Origin`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)
    }
}

/// Whether a text says what is logged: levels, and levels of parts of the program.
pub(super) fn log_filter(text: &str) -> Result<(), String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    // By itself a word that is no level would mean a part of the program, and nothing of the others would be logged.
    let word = text
        .split(',')
        .map(str::trim)
        .find(|word| !word.contains(['=', '[']) && LevelFilter::from_str(word).is_err());
    match word {
        None => Ok(()),
        Some(word) => Err(format!(
            "`{word}` is no level: error, warn, info, debug, trace or off, or a part of the program and its level, such as \
             posthorn_worker=debug"
        )),
    }
}

/// The certificates in a PEM file, read and looked at now, so that a server refuses to start rather than fail at its
/// first delivery.
pub(super) fn roots(path: &str) -> Result<Vec<u8>, String> {
    let mut pem = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(limits::EGRESS_ROOTS_BYTES + 1)
                .read_to_end(&mut pem)
        })
        .map_err(|error| format!("cannot be read: {error}"))?;
    if pem.len() as u64 > limits::EGRESS_ROOTS_BYTES {
        return Err(format!(
            "has more than the {} bytes that are read",
            limits::EGRESS_ROOTS_BYTES
        ));
    }
    posthorn_egress::check_roots(&pem).map_err(|error| {
        format!("must be a file of certificates in PEM (BEGIN CERTIFICATE): {error}")
    })?;
    Ok(pem)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// A list of networks or single addresses, separated by commas.
pub(super) fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    items(text)
        .map(|item| network(item).ok_or_else(|| format!("`{item}` is not an address or a network")))
        .collect()
}

fn network(item: &str) -> Option<IpNet> {
    item.parse()
        .ok()
        .or_else(|| item.parse::<IpAddr>().ok().map(IpNet::from))
}

/// A list of name servers, each an address with or without a port.
pub(super) fn name_servers(text: &str) -> Result<NameServers, String> {
    let servers: Option<Vec<SocketAddr>> = items(text).map(name_server).collect();
    match servers {
        Some(servers) if (1..=limits::EGRESS_NAME_SERVERS).contains(&servers.len()) => {
            Ok(NameServers::Only(servers))
        }
        _ => Err(format!(
            "must be 1 to {} addresses of name servers, such as 10.0.0.53 or [fd00::53]:5353",
            limits::EGRESS_NAME_SERVERS
        )),
    }
}

fn name_server(item: &str) -> Option<SocketAddr> {
    let given = match item.parse::<IpAddr>() {
        Ok(ip) => SocketAddr::new(ip, 53),
        Err(_) => item.parse().ok()?,
    };
    (given.port() != 0).then_some(given)
}

/// The items of a comma list, without blanks around them and without empty ones.
pub(super) fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

/// The pause between "not ready" and "no longer listening", in whole seconds.
pub(super) fn pause(text: &str) -> Result<Duration, String> {
    let most = limits::SHUTDOWN_PAUSE_MOST;
    let pause = text.parse().ok().map(Duration::from_secs);
    pause
        .filter(|pause| *pause <= most)
        .ok_or_else(|| format!("must be a number of seconds from 0 to {}", most.as_secs()))
}

/// `on` or `off`.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

//! From what went wrong on the way to a kind and a sentence. The sentence is for the endpoint's owner: it says what to look
//! at, and holds nothing of the URL, whose path and query may be a credential.

use std::{error::Error, io, net::SocketAddr, time::Duration};

use hyper_util::client::legacy;
use posthorn_domain::{delivery::ErrorKind, limits};

use crate::{connect::ConnectError, connection::RemoteAddress, tls, vet::VetError};

/// A request without an answer.
#[derive(Clone, Debug)]
pub struct SendFailure {
    /// What kind of failure; never `Status`.
    pub kind: ErrorKind,
    /// What happened, in words for the endpoint's owner; no part of the URL but an address.
    pub detail: String,
    /// Whom the connection went to, or was refused or broken by; none if it never came so far.
    pub remote_address: Option<SocketAddr>,
}

impl SendFailure {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            remote_address: None,
        }
    }

    pub(crate) fn at(self, remote_address: Option<SocketAddr>) -> Self {
        Self {
            remote_address,
            ..self
        }
    }

    /// The deadline came before a head did.
    pub(crate) fn timeout(limit: Duration, remote_address: Option<SocketAddr>) -> Self {
        let seconds = limit.as_secs_f64();
        let detail = match remote_address {
            Some(_) => {
                format!("the endpoint took the connection but did not answer within {seconds} s")
            }
            None => format!("no connection to the endpoint within {seconds} s"),
        };
        Self::new(ErrorKind::Timeout, detail).at(remote_address)
    }

    /// The client gave up before a head came.
    pub(crate) fn of_request(error: &legacy::Error) -> Self {
        let remote = error.connect_info().and_then(|connected| {
            let mut extensions = http::Extensions::new();
            connected.get_extras(&mut extensions);
            extensions.get::<RemoteAddress>().map(|remote| remote.0)
        });
        match find::<ConnectError>(error) {
            Some(error) => Self::of_connect(error),
            None => Self::of_exchange(error).at(remote),
        }
    }

    /// A body broke off after a 2xx head.
    pub(crate) fn of_body(
        error: &hyper::Error,
        status: u16,
        read: u64,
        remote: Option<SocketAddr>,
    ) -> Self {
        let broken = Self::of_exchange(error);
        let detail =
            format!("the endpoint answered {status}, but its body broke off after {read} bytes");
        Self::new(broken.kind, detail).at(remote)
    }

    fn of_connect(error: &ConnectError) -> Self {
        match error {
            ConnectError::Unusable => Self::new(
                ErrorKind::Config,
                "the URL cannot be connected to as it stands",
            ),
            ConnectError::Vet(VetError::Resolve(error)) => {
                Self::new(ErrorKind::Dns, error.to_string())
            }
            ConnectError::Vet(error) => Self::new(ErrorKind::RefusedTarget, error.to_string()),
            ConnectError::Dial { address, source } => {
                Self::new(ErrorKind::Connect, dial_reason(source)).at(Some(*address))
            }
            ConnectError::Tls { address, source } => {
                Self::new(ErrorKind::Tls, tls::reason(source)).at(Some(*address))
            }
            ConnectError::Overdue => Self::timeout(limits::TIMEOUT_MAX, None),
        }
    }

    /// Something broke on an open connection.
    fn of_exchange(error: &(dyn Error + 'static)) -> Self {
        if let Some(error) = find::<io::Error>(error) {
            return match tls::tls_error(error) {
                Some(_) => Self::new(ErrorKind::Tls, tls::reason(error)),
                None => Self::new(ErrorKind::Connect, broken_reason(error)),
            };
        }
        let Some(error) = find::<hyper::Error>(error) else {
            return Self::new(ErrorKind::Connect, "the connection was lost");
        };
        if error.is_parse_too_large() {
            let (bytes, headers) = (
                limits::RESPONSE_HEADER_BYTES / 1024,
                limits::RESPONSE_HEADERS_READ,
            );
            let detail =
                format!("the head of the answer is larger than {bytes} KiB or {headers} headers");
            Self::new(ErrorKind::Protocol, detail)
        } else if error.is_parse() {
            Self::new(ErrorKind::Protocol, "the answer is not valid HTTP")
        } else if error.is_incomplete_message() {
            Self::new(
                ErrorKind::Connect,
                "the endpoint closed the connection before its answer was complete",
            )
        } else if error.is_timeout() {
            Self::new(ErrorKind::Connect, "the connection no longer responds")
        } else if error.is_canceled() || error.is_closed() {
            Self::new(ErrorKind::Connect, "the endpoint closed the connection")
        } else {
            let cause = error
                .source()
                .map_or_else(|| error.to_string(), ToString::to_string);
            Self::new(
                ErrorKind::Protocol,
                format!("the exchange broke off: {cause}"),
            )
        }
    }
}

/// The first error of type `E` in a chain.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn dial_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "the endpoint refused the connection; is it listening on this port?".to_owned()
        }
        io::ErrorKind::ConnectionReset => "the endpoint reset the connection".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to the endpoint's address".to_owned()
        }
        io::ErrorKind::TimedOut => "the endpoint's address does not answer".to_owned(),
        kind => format!("no connection to the endpoint ({kind})"),
    }
}

fn broken_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => {
            "the endpoint reset the connection before its answer was complete".to_owned()
        }
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => {
            "the endpoint closed the connection before its answer was complete".to_owned()
        }
        kind => format!("the connection broke ({kind})"),
    }
}

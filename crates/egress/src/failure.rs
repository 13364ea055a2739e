//! From what went wrong on the way to a kind and a sentence. The sentence is for the endpoint's owner: it says what to look
//! at, and holds nothing of the URL, whose path and query may be a credential.

use std::{error::Error, io, net::SocketAddr, time::Duration};

use posthorn_domain::{delivery::ErrorKind, discreet::without_urls, limits};

use crate::{connect::ConnectError, tls, vet::VetError};

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
    fn of_io(error: &io::Error) -> Self {
        match (tls::tls_error(error), error.kind()) {
            (Some(_), _) => Self::new(ErrorKind::Tls, tls::reason(error)),
            // Chunks that are none.
            (None, io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                Self::new(ErrorKind::Protocol, "the answer is not valid HTTP")
            }
            (None, _) => Self::new(ErrorKind::Connect, broken_reason(error)),
        }
    }

    /// What the other side did is told of the connection; what is wrong with what it sent, of the protocol.
    fn of_http2(error: &h2::Error) -> Self {
        match (error.get_io(), error.reason()) {
            (Some(error), _) => Self::of_io(error),
            (None, Some(reason)) if error.is_remote() => {
                Self::new(ErrorKind::Connect, http2_reason(error, reason))
            }
            (None, Some(reason)) => Self::new(ErrorKind::Protocol, http2_reason(error, reason)),
            (None, None) => Self::new(ErrorKind::Protocol, "the answer is not valid HTTP/2"),
        }
    }

    /// The one place where what a library says becomes words: should there be a URL in them, only its host is told (INV-10).
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: without_urls(&detail.into()).into_owned(),
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

    /// The deadline came before the name servers had answered.
    pub(crate) fn unresolved(limit: Duration) -> Self {
        let seconds = limit.as_secs_f64();
        let detail = format!("no name server answered for this host name within {seconds} s");
        Self::new(ErrorKind::Dns, detail)
    }

    /// The deadline came in the midst of the TLS handshake.
    pub(crate) fn unagreed(limit: Duration, remote_address: Option<SocketAddr>) -> Self {
        let seconds = limit.as_secs_f64();
        let detail = format!(
            "the endpoint took the connection, but the TLS handshake did not end within {seconds} s"
        );
        Self::new(ErrorKind::Timeout, detail).at(remote_address)
    }

    /// The URL is one that nothing can be sent to.
    pub(crate) fn unusable() -> Self {
        Self::new(ErrorKind::Config, "the URL cannot be sent to as it stands")
    }

    /// A body broke off after a 2xx head, or is none.
    pub(crate) fn of_body(error: &hyper::Error, status: u16, read: u64) -> Self {
        let kind = Self::of_exchange(error).kind;
        let what = match kind {
            ErrorKind::Protocol => "is not valid HTTP",
            _ => "broke off",
        };
        let detail =
            format!("the endpoint answered {status}, but its body {what} after {read} bytes");
        Self::new(kind, detail)
    }

    /// There is no connection.
    pub(crate) fn of_connect(error: &ConnectError) -> Self {
        match error {
            ConnectError::Unusable => Self::unusable(),
            ConnectError::Vet(VetError::Resolve(error)) => {
                Self::new(ErrorKind::Dns, error.to_string())
            }
            ConnectError::Vet(error) => Self::new(ErrorKind::RefusedTarget, error.to_string()),
            ConnectError::Dial { address, source } => {
                Self::new(ErrorKind::Connect, dial_reason(source)).at(Some(*address))
            }
            // Whom the proxy did or did not reach is not known here.
            ConnectError::Tunnel(error) => Self::new(ErrorKind::Connect, error.to_string()),
            ConnectError::Tls { address, source } => {
                Self::new(ErrorKind::Tls, tls::reason(source)).at(Some(*address))
            }
        }
    }

    /// Something broke on an open connection.
    pub(crate) fn of_exchange(error: &hyper::Error) -> Self {
        if let Some(error) = find::<io::Error>(error) {
            return Self::of_io(error);
        }
        if let Some(error) = find::<h2::Error>(error) {
            return Self::of_http2(error);
        }
        if error.is_parse_too_large() {
            let (bytes, headers) = (
                limits::RESPONSE_HEADER_BYTES / 1024,
                limits::RESPONSE_HEADERS_READ,
            );
            let detail =
                format!("the head of the answer is larger than {bytes} KiB or {headers} headers");
            Self::new(ErrorKind::Protocol, detail)
        } else if error.is_parse_status() {
            Self::new(ErrorKind::Protocol, "the answer has no valid status")
        } else if error.is_parse() {
            // What the library says names the part of the answer, and holds nothing of it.
            let detail = format!("the answer is not valid HTTP ({error})");
            Self::new(ErrorKind::Protocol, detail)
        } else if error.is_incomplete_message() {
            Self::new(
                ErrorKind::Connect,
                "the endpoint closed the connection before its answer was complete",
            )
        } else if error.is_timeout() {
            Self::new(ErrorKind::Connect, "the connection no longer responds")
        } else if error.is_canceled() || error.is_closed() || error.is_user() {
            // Of user errors there is one that no request of ours can cause: the connection ended with it in hand.
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

/// What HTTP/2 calls an error. The names of its codes (RFC 9113, 7) stand in the words, for those who look into the endpoint's server.
fn http2_reason(error: &h2::Error, reason: h2::Reason) -> String {
    if error.is_remote() && error.is_go_away() {
        format!("the endpoint closed the connection without taking the request (HTTP/2 {reason:?})")
    } else if error.is_remote() && reason == h2::Reason::REFUSED_STREAM {
        "the endpoint refused the request, and once more on a new connection (HTTP/2 REFUSED_STREAM)"
            .to_owned()
    } else if error.is_remote() {
        format!("the endpoint broke the request off (HTTP/2 {reason:?})")
    } else {
        let bytes = limits::RESPONSE_HEADER_BYTES / 1024;
        format!(
            "the answer is not valid HTTP/2, or its head is larger than {bytes} KiB ({reason:?})"
        )
    }
}

/// The first error of type `E` in a chain.
pub(crate) fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
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

//! The way out through a forward proxy: a tunnel by CONNECT (RFC 9110, 9.3.6) to an address that was vetted here.
//!
//! The proxy is asked for the address, never for the name, and for plain HTTP as for TLS: so the address vetted is the
//! address connected to (INV-8), and what goes through is between this server and the endpoint. That the proxy does as
//! it is asked is between the operator and the proxy. Proxies of the environment (`HTTP_PROXY`) are not looked at.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{Buf, BytesMut};
use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;
use posthorn_domain::{
    limits,
    url::{EndpointUrl, Host, UrlError, is_localhost},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::resolve::{Names, ResolveError};

/// A forward proxy that the operator named. It never shows who logs in to it, nor how.
#[derive(Clone, PartialEq, Eq)]
pub struct ForwardProxy {
    host: Host,
    port: u16,
    /// `Basic` (RFC 7617), marked as sensitive.
    authorization: Option<HeaderValue>,
}

/// Why a text is no forward proxy. It holds nothing of the text, in which there may be a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardProxyError {
    /// Another scheme, or none.
    #[error("a forward proxy is written as http://host:port or http://user:password@host:port")]
    Scheme,
    /// The host or the port is none.
    #[error("the forward proxy cannot be reached as it is written: {0}")]
    Place(UrlError),
    /// Something stands behind the port.
    #[error("a forward proxy has neither path nor query")]
    Path,
}

/// Why there is no tunnel. The words are for the endpoint's owner: they hold neither the proxy's address nor its credentials.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// Its name has no address.
    #[error("the forward proxy of this server cannot be reached; its operator has to look")]
    Unresolved(#[source] ResolveError),
    /// Nobody accepted.
    #[error("the forward proxy of this server cannot be reached; its operator has to look")]
    Unreachable(#[source] io::Error),
    /// 407.
    #[error("the forward proxy of this server does not let it through; its operator has to look")]
    Credentials,
    /// Another status than 2xx.
    #[error("the forward proxy of this server did not connect to the endpoint (it answered {})", .0.as_u16())]
    Refused(StatusCode),
    /// No answer that is HTTP, or none at all.
    #[error("the forward proxy of this server gave no valid answer; its operator has to look")]
    Broken(#[source] io::Error),
    /// It went on to speak after it had said that the tunnel is open.
    #[error("the forward proxy of this server gave no valid answer; its operator has to look")]
    Unasked,
}

/// Opens tunnels through a proxy.
#[derive(Clone)]
pub(crate) struct Tunnels {
    proxy: ForwardProxy,
    names: Names,
    /// The log has it that the proxy fails.
    told: Arc<AtomicBool>,
}

impl ForwardProxy {
    /// Reads `http://host:port` or `http://user:password@host:port`, the user and the password percent-encoded where they
    /// have to be.
    ///
    /// # Errors
    ///
    /// [`ForwardProxyError`], without the text.
    pub fn parse(text: &str) -> Result<Self, ForwardProxyError> {
        let rest = text
            .strip_prefix("http://")
            .ok_or(ForwardProxyError::Scheme)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        if rest.contains(['/', '?', '#']) {
            return Err(ForwardProxyError::Path);
        }
        let url = EndpointUrl::parse(&format!("http://{place}"));
        let url = url.map_err(ForwardProxyError::Place)?;
        Ok(Self {
            host: url.host().clone(),
            port: url.port(),
            authorization: user.map(basic),
        })
    }
}

impl fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ForwardProxy");
        shown.field("host", &self.host).field("port", &self.port);
        shown.finish_non_exhaustive()
    }
}

fn basic(userinfo: &str) -> HeaderValue {
    let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
    let mut pair: Vec<u8> = percent_decode_str(user).collect();
    pair.push(b':');
    pair.extend(percent_decode_str(password));
    let text = format!("Basic {}", STANDARD.encode(pair));
    // Base64 is within what a header may hold.
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("Basic"));
    value.set_sensitive(true);
    value
}

impl Tunnels {
    /// Through this proxy, whose name is asked for like an endpoint's, and is not judged: the operator named it.
    pub(crate) fn new(proxy: ForwardProxy, names: Names) -> Self {
        Self {
            proxy,
            names,
            told: Arc::default(),
        }
    }

    /// A connection to a vetted address. Has no deadline of its own; the answer's head is bounded in bytes.
    pub(crate) async fn open(&self, to: SocketAddr) -> Result<TcpStream, TunnelError> {
        let opened = match self.dial().await {
            Ok(stream) => self.ask(stream, to).await,
            Err(error) => Err(error),
        };
        self.tell(&opened);
        opened
    }

    async fn dial(&self) -> Result<TcpStream, TunnelError> {
        let addresses: Vec<IpAddr> = match &self.proxy.host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) if is_localhost(name) => {
                vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Host::Name(name) => {
                let found = self.names.look_up(name).await;
                found.map_err(TunnelError::Unresolved)?
            }
        };
        let addresses: Vec<_> = addresses
            .into_iter()
            .take(limits::EGRESS_ADDRESSES)
            .map(|ip| SocketAddr::new(ip, self.proxy.port))
            .collect();
        let stream = TcpStream::connect(addresses.as_slice()).await;
        let stream = stream.map_err(TunnelError::Unreachable)?;
        stream.set_nodelay(true).map_err(TunnelError::Unreachable)?;
        Ok(stream)
    }

    /// CONNECT, and the connection as it is after the head of the answer. Any 2xx opens the tunnel, and what it says of a body means
    /// nothing (RFC 9110, 9.3.6): a client library knows 200 alone, so the head is read here.
    async fn ask(&self, mut stream: TcpStream, to: SocketAddr) -> Result<TcpStream, TunnelError> {
        let asked = stream.write_all(&self.request(to)).await;
        asked.map_err(TunnelError::Broken)?;
        let mut read = BytesMut::with_capacity(4096);
        loop {
            match stream.read_buf(&mut read).await {
                Ok(0) => return Err(TunnelError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(TunnelError::Broken(error)),
            }
            while let Some((status, length)) = head(&read)? {
                read.advance(length);
                match status.as_u16() {
                    // Another head follows (RFC 9110, 15.2). 101 is the last word of a protocol that nobody asked for.
                    100 | 102..200 => {}
                    200..300 if read.is_empty() => return Ok(stream),
                    200..300 => return Err(TunnelError::Unasked),
                    407 => return Err(TunnelError::Credentials),
                    _ => return Err(TunnelError::Refused(status)),
                }
            }
            if read.len() > limits::RESPONSE_HEADER_BYTES {
                return Err(TunnelError::Broken(io::ErrorKind::InvalidData.into()));
            }
        }
    }

    fn request(&self, to: SocketAddr) -> Vec<u8> {
        let mut request = format!("CONNECT {to} HTTP/1.1\r\nhost: {to}\r\n").into_bytes();
        if let Some(authorization) = &self.proxy.authorization {
            request.extend_from_slice(b"proxy-authorization: ");
            request.extend_from_slice(authorization.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        request
    }

    /// A proxy that fails, fails at every delivery: it is told once, until it works again. What it says of one endpoint is
    /// that endpoint's matter.
    fn tell(&self, opened: &Result<TcpStream, TunnelError>) {
        match opened {
            Ok(_) | Err(TunnelError::Refused(_)) => self.told.store(false, Ordering::Relaxed),
            Err(error) => {
                metrics::counter!("posthorn_forward_proxy_failures_total").increment(1);
                if !self.told.swap(true, Ordering::Relaxed) {
                    let cause = std::error::Error::source(error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "nothing is sent while the forward proxy fails");
                }
            }
        }
    }
}

/// The status of a head and its length in bytes, once it is whole.
fn head(read: &[u8]) -> Result<Option<(StatusCode, usize)>, TunnelError> {
    let mut fields = [httparse::EMPTY_HEADER; limits::RESPONSE_HEADERS_READ];
    let mut answer = httparse::Response::new(&mut fields);
    let broken = |error| TunnelError::Broken(io::Error::other(error));
    let httparse::Status::Complete(length) = answer.parse(read).map_err(broken)? else {
        return Ok(None);
    };
    let status = answer.code.map(StatusCode::from_u16).and_then(Result::ok);
    let status = status.ok_or_else(|| TunnelError::Broken(io::ErrorKind::InvalidData.into()))?;
    Ok(Some((status, length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ForwardProxy, ForwardProxyError> {
        ForwardProxy::parse(text)
    }

    #[test]
    fn a_proxy_is_a_host_a_port_and_perhaps_a_login() {
        let bare = parse("http://proxy.example:3128").unwrap();
        assert_eq!(bare.host, Host::Name("proxy.example".to_owned()));
        assert_eq!((bare.port, &bare.authorization), (3128, &None));
        assert_eq!(
            parse("http://[::1]:3128/").unwrap().host,
            Host::Ip(Ipv6Addr::LOCALHOST.into())
        );
        // RFC 7617, 2.
        let known = parse("http://Aladdin:open%20sesame@10.0.0.1:3128").unwrap();
        let shown = known.authorization.unwrap();
        assert_eq!(shown, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        let odd = parse("http://us%40er:p%3Aw%2F@10.0.0.1:3128").unwrap();
        let pair = STANDARD.encode("us@er:p:w/");
        assert_eq!(odd.authorization.unwrap(), format!("Basic {pair}"));
    }

    #[test]
    fn what_is_no_proxy_is_refused_without_its_text() {
        for (text, error) in [
            ("proxy.example:3128", ForwardProxyError::Scheme),
            (
                "https://u:canary@proxy.example:3128",
                ForwardProxyError::Scheme,
            ),
            (
                "socks5://u:canary@proxy.example:1080",
                ForwardProxyError::Scheme,
            ),
            (
                "http://u:canary@proxy.example:3128/path",
                ForwardProxyError::Path,
            ),
            (
                "http://u:canary@proxy.example:3128?q",
                ForwardProxyError::Path,
            ),
            (
                "http://u:canary@:3128",
                ForwardProxyError::Place(UrlError::Host),
            ),
            (
                "http://u:canary@proxy.example:0",
                ForwardProxyError::Place(UrlError::Port),
            ),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
            assert!(!error.to_string().contains("canary"));
        }
    }

    #[test]
    fn a_proxy_shows_no_login() {
        let proxy = parse("http://user:canary@proxy.example:3128").unwrap();
        let shown = format!("{proxy:?} {:?}", proxy.authorization);
        assert!(
            !shown.contains("user") && !shown.contains("canary"),
            "{shown}"
        );
        assert!(!shown.contains(&STANDARD.encode("user:canary")), "{shown}");
    }
}

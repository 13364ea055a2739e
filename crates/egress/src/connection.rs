//! A connection as the pool sees it: plain or TLS, its remote address, and a place in the count of open ones.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection as PoolConnection},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The address a connection goes to; travels with it as an extension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddress(pub(crate) SocketAddr);

/// How many connections are open, in use or idle. The pool bounds idle ones per host; this bounds them over all hosts.
#[derive(Debug, Default)]
pub(crate) struct OpenConnections(AtomicUsize);

impl OpenConnections {
    /// How many are open now.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A place in the count, given back when dropped.
struct Place(Arc<OpenConnections>);

impl Place {
    fn take(open: &Arc<OpenConnections>) -> Self {
        open.0.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(open))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// An open connection to a vetted address.
pub(crate) struct Connection {
    stream: Stream,
    remote: SocketAddr,
    _place: Place,
}

impl Connection {
    /// A connection without TLS.
    pub(crate) fn plain(
        stream: TcpStream,
        remote: SocketAddr,
        open: &Arc<OpenConnections>,
    ) -> Self {
        Self {
            stream: Stream::Plain(TokioIo::new(stream)),
            remote,
            _place: Place::take(open),
        }
    }

    /// A connection whose handshake is done.
    pub(crate) fn tls(
        stream: TlsStream<TcpStream>,
        remote: SocketAddr,
        open: &Arc<OpenConnections>,
    ) -> Self {
        Self {
            stream: Stream::Tls(Box::new(TokioIo::new(stream))),
            remote,
            _place: Place::take(open),
        }
    }
}

impl PoolConnection for Connection {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(RemoteAddress(self.remote));
        match &self.stream {
            Stream::Tls(stream) if stream.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                connected.negotiated_h2()
            }
            _ => connected,
        }
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
        }
    }
}

//! A connection to a vetted address as hyper sees it: plain or TLS.
//!
//! One that lay idle can be asked to look at its socket itself. A read tells only what the runtime has heard of the socket, and what came
//! a moment ago it may not have heard of yet.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

/// An open connection to a vetted address.
pub(crate) struct Connection {
    stream: Stream,
    remote: SocketAddr,
    look: Look,
}

/// Makes the next read of a connection look at the socket, too.
#[derive(Clone, Default)]
pub(crate) struct Look(Arc<AtomicBool>);

impl Look {
    /// It is to look.
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is to look, once.
    fn is_asked(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Connection {
    /// A connection without TLS.
    pub(crate) fn plain(stream: TcpStream, remote: SocketAddr) -> Self {
        Self {
            stream: Stream::Plain(TokioIo::new(stream)),
            remote,
            look: Look::default(),
        }
    }

    /// A connection whose handshake is done.
    pub(crate) fn tls(stream: TlsStream<TcpStream>, remote: SocketAddr) -> Self {
        Self {
            stream: Stream::Tls(Box::new(TokioIo::new(stream))),
            remote,
            look: Look::default(),
        }
    }

    /// Whom it goes to.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// What makes it look at its socket.
    pub(crate) fn look(&self) -> Look {
        self.look.clone()
    }

    /// The handshake chose HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// What lies unread in the socket, as a read: nothing, an end, or an error for bytes that nobody asked for. Of TLS these may be an
    /// alert or a ticket; on a connection that was kept they cost that connection, no more.
    fn unread(&self) -> Poll<io::Result<()>> {
        let socket = match &self.stream {
            Stream::Plain(stream) => stream.inner(),
            Stream::Tls(stream) => stream.inner().get_ref().0,
        };
        let looking = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(socket, &mut [0_u8; 1], looking).map_err(io::Error::from) {
            Ok((0, _)) => Poll::Ready(Ok(())),
            Ok(_) => Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Poll::Pending,
                _ => Poll::Ready(Err(error)),
            },
        }
    }
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        };
        if self.look.is_asked() && read.is_pending() {
            return self.unread();
        }
        read
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

//! HTTP/1.1 driven in place: whoever waits for an answer drives the connection meanwhile. A request costs no task of its own and
//! no wake-up but those of its socket, and a connection that nobody waits for lies still.
//!
//! hyper reads before it writes a request, and the connection looks at its socket then ([`Look`]): one that was closed while idle, or on
//! which something came unasked, ends there and gives the request back, not one byte of which was written. What comes unasked after
//! the request is written cannot be told from its answer. It answers nobody's request but the same tenant's ([`crate::pool`]).

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header::HOST};
use http_body_util::Full;
use hyper::{
    body::{Body, Frame, Incoming},
    client::conn::http1::{Builder, SendRequest},
};
use posthorn_domain::limits;

use crate::{
    connection::{Connection, Look},
    failure::SendFailure,
    lost::Lost,
    target::Target,
};

/// An HTTP/1.1 connection to an origin. One request at a time.
pub(crate) struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    /// None once it has ended.
    connection: Option<hyper::client::conn::http1::Connection<Connection, Full<Bytes>>>,
    host: HeaderValue,
    remote: SocketAddr,
    look: Look,
    /// It has carried a request.
    used: bool,
}

impl Http1 {
    /// Speaks HTTP/1.1 on a new connection to this target's origin.
    pub(crate) async fn begin(
        connection: Connection,
        target: Target<'_>,
    ) -> Result<Self, SendFailure> {
        let (remote, look) = (connection.remote(), connection.look());
        let host = HeaderValue::from_str(target.authority).map_err(|_| SendFailure::unusable())?;
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the one client for tenants' addresses"
        )]
        // The number of headers is bounded by hyper itself, at `limits::RESPONSE_HEADERS_READ`: when it is told a number, even its
        // own, it keeps a head's fields elsewhere than on the stack.
        let (sender, connection) = Builder::new()
            .max_buf_size(limits::RESPONSE_HEADER_BYTES)
            .handshake(connection)
            .await
            .map_err(|error| SendFailure::of_exchange(&error).at(Some(remote)))?;
        Ok(Self {
            sender,
            connection: Some(connection),
            host,
            remote,
            look,
            used: false,
        })
    }

    /// Whom it goes to.
    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Sends a request in origin form and waits for the head of its answer.
    pub(crate) async fn request(
        &mut self,
        path: Uri,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Box<Lost>> {
        *request.uri_mut() = path;
        request.headers_mut().insert(HOST, self.host.clone());
        // On a new connection there is nothing to find, and of TLS the receiver's tickets may be coming.
        if std::mem::replace(&mut self.used, true) {
            self.look.ask();
        }
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            drive(&mut self.connection, cx);
            answer.as_mut().poll(cx)
        })
        .await
        .map_err(|error| Box::new(Lost::on_http1(error)))
    }

    /// The body of the answer to the last request.
    pub(crate) fn body(&mut self, incoming: Incoming) -> Driven<'_> {
        Driven {
            connection: self,
            incoming,
        }
    }

    /// The exchange is over, both sides mean to go on, and nothing came after the answer.
    pub(crate) fn is_reusable(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Ends a connection that lies idle, with the farewell that TLS wants, as far as it goes without waiting.
    pub(crate) fn close(self) {
        let Self {
            sender,
            mut connection,
            ..
        } = self;
        drop(sender);
        drive(&mut connection, &mut Context::from_waker(Waker::noop()));
    }
}

/// Goes on with a connection. One that has ended is dropped: that tells whoever waits for something of it.
fn drive(
    connection: &mut Option<hyper::client::conn::http1::Connection<Connection, Full<Bytes>>>,
    cx: &mut Context<'_>,
) {
    // What it ends with is told to the request; on a connection that lies idle it concerns nobody.
    if let Some(running) = connection
        && Pin::new(running).poll(cx).is_ready()
    {
        *connection = None;
    }
}

/// The body of an answer; drives its connection while it is read.
pub(crate) struct Driven<'a> {
    connection: &'a mut Http1,
    incoming: Incoming,
}

impl Body for Driven<'_> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        // Most bodies came with their head.
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        drive(&mut self.connection.connection, cx);
        Pin::new(&mut self.incoming).poll_frame(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        time::Duration,
    };

    use futures_util::FutureExt as _;
    use posthorn_domain::{id::TenantId, url::EndpointUrl};
    use uuid::Uuid;

    use super::*;

    /// C29: after the handshake of TLS 1.3 a receiver sends tickets, whenever it likes. Here other bytes lie where they would: the kernel
    /// has them, and the runtime has not heard of them.
    #[tokio::test]
    async fn what_comes_on_a_new_connection_keeps_no_request_from_being_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let url = EndpointUrl::parse(&format!("http://{address}/")).unwrap();
        let target = Target::of(TenantId::from_uuid(Uuid::nil()), &url);
        let connection = Connection::plain(stream, address);
        let mut connection = Http1::begin(connection, target).await.unwrap();
        receiver.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let request = Request::post("/").body(Full::default()).unwrap();
        let _ = connection
            .request(Uri::from_static("/"), request)
            .now_or_never();
        let mut sent = [0; 4];
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        receiver.read_exact(&mut sent).unwrap();
        assert_eq!(&sent, b"POST");
    }
}

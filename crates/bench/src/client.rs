//! One HTTP/1.1 connection, kept alive, and made again when it breaks.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::{net::TcpStream, time};

/// Nothing that is measured takes longer without being broken.
const LIMIT: Duration = Duration::from_secs(30);

/// A connection to one address.
pub(crate) struct Client {
    address: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Connects at the first request.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            sender: None,
        }
    }

    /// Sends one request and reads its whole answer; a broken connection is an error, and the next request makes another.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let sent = time::timeout(LIMIT, self.try_send(request))
            .await
            .context("no answer in 30 s")
            .flatten();
        if sent.is_err() {
            self.sender = None;
        }
        sent
    }

    async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        self.sender = Some(sender);
        Ok((status, body))
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// One request of JSON on a connection of its own; the answer must be 2xx.
pub(crate) async fn call<T: DeserializeOwned>(
    address: SocketAddr,
    method: Method,
    path: &str,
    key: Option<&str>,
    body: &str,
) -> anyhow::Result<T> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
    }
    let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
    let (status, answer) = Client::new(address).send(request).await?;
    let text = String::from_utf8_lossy(&answer);
    ensure!(status.is_success(), "{path} answered {status}: {text}");
    serde_json::from_str(if text.is_empty() { "null" } else { &text })
        .with_context(|| format!("{path} answered {text}"))
}

//! Receivers of a measured run that do everything wrong. What one does is the first part of the path, one of [`KINDS`].
//!
//! They speak on bare sockets, since no library lets its user be as wrong as this.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::sleep,
};

use crate::sink::listening;

/// Each way to be wrong.
pub(crate) const KINDS: [&str; 10] = [
    "silent",
    "slow-head",
    "slow-body",
    "endless-body",
    "gigabyte",
    "huge-head",
    "informed-for-ever",
    "reset",
    "cut-in-the-head",
    "nonsense",
];

/// Between two bytes of a slow one.
const DRIP: Duration = Duration::from_secs(1);
/// What is written at once by those that never end.
const CHUNK: usize = 64 * 1024;
/// The largest head that is read of a request.
const HEAD: usize = 16 * 1024;

/// Receivers that serve until this is dropped.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

impl Hostile {
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let listener = listening(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::default());
        let counted = Arc::clone(&requests);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // Whoever has had enough hangs up, which ends this, too.
                tokio::spawn(serve(stream, Arc::clone(&counted)));
            }
        });
        Ok(Self {
            address,
            requests,
            serving,
        })
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(mut stream: TcpStream, requests: Arc<AtomicU64>) -> std::io::Result<()> {
    let head = head(&mut stream).await?;
    requests.fetch_add(1, Ordering::Relaxed);
    let kind = head.split('/').nth(1).unwrap_or_default();
    match kind {
        "slow-head" => drip(&mut stream, b"HTTP/1.1 200 OK\r\nx: ", b"a").await,
        "slow-body" => {
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            drip(&mut stream, head, b"1\r\na\r\n").await
        }
        "endless-body" => {
            let chunk = [b"10000\r\n", vec![b'a'; CHUNK].as_slice(), b"\r\n"].concat();
            let head = b"HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n";
            pour(&mut stream, head, &chunk).await
        }
        "gigabyte" => {
            let head =
                b"HTTP/1.1 500 Oh\r\ncontent-encoding: gzip\r\ncontent-length: 1073741824\r\n\r\n";
            pour(&mut stream, head, &vec![0; CHUNK]).await
        }
        "huge-head" => pour(&mut stream, b"HTTP/1.1 200 OK\r\nx: ", &vec![b'a'; CHUNK]).await,
        "informed-for-ever" => {
            let interim = b"HTTP/1.1 102 Processing\r\n\r\n";
            drip(&mut stream, interim, interim).await
        }
        "reset" => stream.set_zero_linger(),
        "cut-in-the-head" => stream.write_all(b"HTTP/1.1 200 OK\r\nconte").await,
        "nonsense" => stream.write_all(b"\0\xff hello\r\n\r\n").await,
        _ => wait_for_the_end(&mut stream).await,
    }
}

/// The head of a request; its body is not awaited.
async fn head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while head.len() < HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut bytes).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(bytes.get(..read).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

async fn drip(stream: &mut TcpStream, first: &[u8], then: &[u8]) -> std::io::Result<()> {
    stream.write_all(first).await?;
    loop {
        sleep(DRIP).await;
        stream.write_all(then).await?;
    }
}

async fn pour(stream: &mut TcpStream, first: &[u8], then: &[u8]) -> std::io::Result<()> {
    stream.write_all(first).await?;
    loop {
        stream.write_all(then).await?;
    }
}

async fn wait_for_the_end(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_kind_is_wrong_in_its_own_way() {
        let hostile = Hostile::begin().unwrap();
        for (kind, begins) in [
            ("endless-body", "HTTP/1.1 500 "),
            ("cut-in-the-head", "HTTP/1.1 200 OK\r\nconte"),
            ("informed-for-ever", "HTTP/1.1 102 "),
            ("reset", ""),
        ] {
            let mut stream = TcpStream::connect(hostile.address).await.unwrap();
            let request = format!("POST /{kind}/0 HTTP/1.1\r\nhost: a\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = vec![0; begins.len().max(1)];
            let read = stream.read_exact(&mut answer).await;
            assert_eq!(read.is_ok(), !begins.is_empty(), "{kind}");
            if read.is_ok() {
                assert_eq!(answer, begins.as_bytes(), "{kind}");
            }
        }
        assert_eq!(hostile.requests(), 4);
    }
}

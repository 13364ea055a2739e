//! A forward proxy on a loopback port that opens tunnels by CONNECT, or fails in the way that a test wants.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

/// What it does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conduct {
    /// It opens the tunnel that it is asked for; 502 where nobody accepts.
    #[default]
    Tunnel,
    /// It opens the tunnel, and says so with these bytes.
    TunnelSaying(&'static [u8]),
    /// It answers with these bytes, and closes.
    Say(&'static [u8]),
    /// It reads, and never answers.
    Silence,
    /// It closes when it has read the request.
    Close,
    /// It answers with header after header, and never ends.
    EndlessHead,
}

/// Bytes of a request that are read.
const HEAD: usize = 16 * 1024;

/// A running forward proxy. Dropping it closes its port and its tunnels.
pub struct ForwardProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Shared {
    conduct: Mutex<Conduct>,
    heads: Mutex<Vec<String>>,
    /// Bytes of heads without an end.
    said: AtomicU64,
}

impl ForwardProxy {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self {
            address,
            shared,
            accepting,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it does from now on.
    pub fn conduct(&self, conduct: Conduct) {
        *lock(&self.shared.conduct) = conduct;
    }

    /// The heads of the requests that came, whole.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        lock(&self.shared.heads).clone()
    }

    /// How many bytes of heads without an end were taken.
    #[must_use]
    pub fn said(&self) -> u64 {
        self.shared.said.load(Ordering::SeqCst)
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // What goes wrong on a connection is the other side's to notice.
            let _ = serve(stream, &shared).await;
        });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let to = head.split(' ').nth(1).unwrap_or_default().to_owned();
    lock(&shared.heads).push(head);
    let conduct = *lock(&shared.conduct);
    match conduct {
        Conduct::Tunnel => {
            tunnel(stream, &to, b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        }
        Conduct::TunnelSaying(bytes) => tunnel(stream, &to, bytes).await?,
        Conduct::Say(bytes) => stream.write_all(bytes).await?,
        Conduct::Silence => std::future::pending().await,
        Conduct::Close => {}
        Conduct::EndlessHead => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            loop {
                let line = b"x-more: 0123456789012345678901234567890123456789\r\n";
                stream.write_all(line).await?;
                shared.said.fetch_add(line.len() as u64, Ordering::SeqCst);
            }
        }
    }
    Ok(())
}

async fn tunnel(mut stream: TcpStream, to: &str, opened: &[u8]) -> io::Result<()> {
    let Ok(mut target) = TcpStream::connect(to).await else {
        return stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
    };
    stream.write_all(opened).await?;
    copy_bidirectional(&mut stream, &mut target).await?;
    Ok(())
}

async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

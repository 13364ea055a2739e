//! A name server on a loopback port that answers as a test wants, with a TTL of 0. What is too large for UDP is cut there, and whole
//! over TCP (RFC 1035, 4.2).

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, UdpSocket},
    task::{AbortHandle, JoinSet},
};

use crate::environment;

/// Which addresses a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// An A question.
    V4,
    /// An AAAA question.
    V6,
}

/// What is answered to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameAnswer {
    /// These addresses, as far as they are of the family asked for.
    Addresses(Vec<IpAddr>),
    /// The name is an alias for this one, and no address is given.
    Alias(String),
    /// There is no such name.
    Unknown,
    /// The server cannot say.
    Failure,
    /// Nothing at all.
    Silence,
}

/// Bytes of an answer over UDP.
const UDP_BYTES: usize = 512;

/// A running name server. Dropping it closes its port.
pub struct NameServer {
    address: SocketAddr,
    questions: Arc<AtomicUsize>,
    serving: [AbortHandle; 2],
}

/// How the questions of both kinds of connection are answered.
struct Answers<A> {
    answer: A,
    questions: Arc<AtomicUsize>,
}

impl NameServer {
    /// Answers by a function of the name (lower case, without a final dot), the family, and how many questions came before.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn start(
        answer: impl Fn(&str, Family, usize) -> NameAnswer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        environment::raise_open_files();
        let (socket, listener) = both_ports().await?;
        let address = socket.local_addr()?;
        let questions = Arc::new(AtomicUsize::new(0));
        let answers = Arc::new(Answers {
            answer,
            questions: Arc::clone(&questions),
        });
        let serving = [
            tokio::spawn(serve_udp(socket, Arc::clone(&answers))).abort_handle(),
            tokio::spawn(serve_tcp(listener, answers)).abort_handle(),
        ];
        Ok(Self {
            address,
            questions,
            serving,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many questions came.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.questions.load(Ordering::SeqCst)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        for serving in &self.serving {
            serving.abort();
        }
    }
}

/// A free UDP port whose number is free for TCP, too.
async fn both_ports() -> io::Result<(UdpSocket, TcpListener)> {
    let mut tried = Err(io::ErrorKind::AddrInUse.into());
    for _ in 0..20 {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        match TcpListener::bind(socket.local_addr()?).await {
            Ok(listener) => return Ok((socket, listener)),
            Err(error) => tried = Err(error),
        }
    }
    tried
}

async fn serve_udp<A: Fn(&str, Family, usize) -> NameAnswer>(
    socket: UdpSocket,
    answers: Arc<Answers<A>>,
) {
    let mut packet = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let question = packet.get(..length).unwrap_or_default();
        if let Some(mut reply) = answers.reply(question) {
            if reply.len() > UDP_BYTES {
                cut(&mut reply);
            }
            // A client that is gone has no use for it.
            let _ = socket.send_to(&reply, from).await;
        }
    }
}

async fn serve_tcp<A>(listener: TcpListener, answers: Arc<Answers<A>>)
where
    A: Fn(&str, Family, usize) -> NameAnswer + Send + Sync + 'static,
{
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let answers = Arc::clone(&answers);
        connections.spawn(async move {
            // What goes wrong on a connection is the other side's to notice.
            let _ = serve_connection(stream, &answers).await;
        });
    }
}

/// Each message has its length before it.
async fn serve_connection<A: Fn(&str, Family, usize) -> NameAnswer>(
    mut stream: TcpStream,
    answers: &Answers<A>,
) -> io::Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut question = vec![0; usize::from(length)];
        stream.read_exact(&mut question).await?;
        if let Some(reply) = answers.reply(&question) {
            let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
            stream.write_u16(length).await?;
            stream.write_all(&reply).await?;
            stream.flush().await?;
        }
    }
}

/// Leaves the question alone, and says that there is more.
fn cut(reply: &mut Vec<u8>) {
    if let Some(flags) = reply.get_mut(2) {
        *flags |= 2;
    }
    if let Some(counts) = reply.get_mut(6..8) {
        counts.fill(0);
    }
    let end = Question::parse(reply).map_or(12, |question| 12 + question.section.len());
    reply.truncate(end);
}

impl<A: Fn(&str, Family, usize) -> NameAnswer> Answers<A> {
    fn reply(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let question = Question::parse(packet)?;
        let before = self.questions.fetch_add(1, Ordering::SeqCst);
        let family = question.family?;
        let answer = (self.answer)(&question.name, family, before);
        question.reply(family, &answer)
    }
}

/// The one question of a packet (RFC 1035, 4.1).
struct Question {
    id: [u8; 2],
    name: String,
    family: Option<Family>,
    /// The question's section as it came, to be sent back.
    section: Vec<u8>,
}

impl Question {
    fn parse(packet: &[u8]) -> Option<Self> {
        let id = [*packet.first()?, *packet.get(1)?];
        let mut labels = Vec::new();
        let mut at = 12;
        loop {
            let length = usize::from(*packet.get(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_ascii_lowercase());
            at += length;
        }
        let family = match packet.get(at..at + 2)? {
            [0, 1] => Some(Family::V4),
            [0, 28] => Some(Family::V6),
            _ => None,
        };
        Some(Self {
            id,
            name: labels.join("."),
            family,
            section: packet.get(12..at + 4)?.to_vec(),
        })
    }

    fn reply(&self, family: Family, answer: &NameAnswer) -> Option<Vec<u8>> {
        let (code, records) = match answer {
            NameAnswer::Silence => return None,
            NameAnswer::Unknown => (3, Vec::new()),
            NameAnswer::Failure => (2, Vec::new()),
            NameAnswer::Alias(target) => (0, vec![(5, encode_name(target))]),
            NameAnswer::Addresses(addresses) => {
                let records = addresses
                    .iter()
                    .filter_map(|address| match (family, address) {
                        (Family::V4, IpAddr::V4(ip)) => Some((1, ip.octets().to_vec())),
                        (Family::V6, IpAddr::V6(ip)) => Some((28, ip.octets().to_vec())),
                        _ => None,
                    });
                (0, records.collect())
            }
        };
        let count = u16::try_from(records.len()).ok()?;
        let mut reply = self.id.to_vec();
        // An answer, recursion wanted and at hand; one question, `count` answers, nothing else.
        reply.extend_from_slice(&[0x81, 0x80 | code, 0, 1]);
        reply.extend_from_slice(&count.to_be_bytes());
        reply.extend_from_slice(&[0, 0, 0, 0]);
        reply.extend_from_slice(&self.section);
        for (kind, data) in records {
            // The question's name, by its offset; class IN; TTL 0.
            reply.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 0]);
            reply.extend_from_slice(&u16::try_from(data.len()).ok()?.to_be_bytes());
            reply.extend_from_slice(&data);
        }
        Some(reply)
    }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for label in name.split('.') {
        encoded.push(u8::try_from(label.len()).unwrap_or(63));
        encoded.extend_from_slice(label.as_bytes());
    }
    encoded.push(0);
    encoded
}

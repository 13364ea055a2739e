//! One connection: frames are read and written by hand.

use std::{
    collections::{HashMap, VecDeque},
    io,
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};
use tokio_rustls::server::TlsStream;

use super::{
    Http2Reply, Http2Request, Shared,
    reply::{Last, Reading, Step, code, frame, head},
};
use crate::receiver::lock;

/// What a client begins with (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Connection<'a> {
    stream: TlsStream<TcpStream>,
    number: usize,
    shared: &'a Shared,
    buffer: BytesMut,
    /// Requests whose end has not come, with how they are answered.
    waiting: HashMap<u32, (BytesMut, Http2Reply)>,
    /// What is to be done, of all replies that are due.
    due: mpsc::UnboundedSender<(u32, VecDeque<Step>)>,
}

/// What follows a step.
enum Then {
    GoOn,
    End,
}

/// Reads and answers requests until either side ends it.
pub(super) async fn serve(
    stream: TlsStream<TcpStream>,
    number: usize,
    shared: &Shared,
) -> io::Result<()> {
    let (due, mut replies) = mpsc::unbounded_channel();
    let mut connection = Connection {
        stream,
        number,
        shared,
        buffer: BytesMut::new(),
        waiting: HashMap::new(),
        due,
    };
    let greeting = lock(&shared.greeting).clone();
    connection.write(&greeting).await?;
    while connection.buffer.len() < PREFACE.len() {
        connection.read().await?;
    }
    connection.buffer.advance(PREFACE.len());
    connection.take_frames().await?;
    loop {
        tokio::select! {
            read = connection.stream.read_buf(&mut connection.buffer) => {
                if read? == 0 {
                    return Ok(());
                }
                connection.take_frames().await?;
            }
            Some((stream, steps)) = replies.recv() => {
                for step in steps {
                    if let Then::End = connection.perform(stream, step).await? {
                        return Ok(());
                    }
                }
            }
        }
    }
}

impl Connection<'_> {
    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Looks at every frame that has come whole.
    async fn take_frames(&mut self) -> io::Result<()> {
        while let Some(&[a, b, c, kind, flags, d, e, f, g]) = self.buffer.first_chunk::<9>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if self.buffer.len() < 9 + length {
                return Ok(());
            }
            self.buffer.advance(9);
            let payload = self.buffer.split_to(length).freeze();
            let stream = u32::from_be_bytes([d, e, f, g]);
            self.take(kind, flags, stream, payload).await?;
        }
        Ok(())
    }

    async fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: Bytes) -> io::Result<()> {
        match kind {
            code::SETTINGS if flags & code::ACK == 0 => {
                self.write(&frame(code::SETTINGS, code::ACK, 0, &[]))
                    .await?;
            }
            code::PING if flags & code::ACK == 0 => {
                self.write(&frame(code::PING, code::ACK, 0, &payload))
                    .await?;
            }
            code::HEADERS => {
                let reply = self.shared.next();
                if reply.at_once {
                    self.answer(stream, Bytes::new(), reply);
                } else {
                    self.waiting.insert(stream, (BytesMut::new(), reply));
                    self.end(flags, stream);
                }
            }
            code::DATA => {
                if let Some((body, _)) = self.waiting.get_mut(&stream) {
                    body.extend_from_slice(&payload);
                    self.end(flags, stream);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The request has ended, if these flags say so.
    fn end(&mut self, flags: u8, stream: u32) {
        if flags & code::END_STREAM != 0
            && let Some((body, reply)) = self.waiting.remove(&stream)
        {
            self.answer(stream, body.freeze(), reply);
        }
    }

    fn answer(&self, stream: u32, body: Bytes, reply: Http2Reply) {
        self.shared.record(Http2Request {
            connection: self.number,
            stream,
            body,
        });
        let (due, steps) = (self.due.clone(), reply.steps.into());
        tokio::spawn(async move {
            wait(reply.delay).await;
            let _ = due.send((stream, steps));
        });
    }

    async fn perform(&mut self, stream: u32, step: Step) -> io::Result<Then> {
        match step {
            Step::Head(status, flags) => {
                let flags = flags | code::END_HEADERS;
                self.write(&frame(code::HEADERS, flags, stream, &head(status)))
                    .await?;
            }
            Step::Data(bytes, flags) => {
                self.write(&frame(code::DATA, flags, stream, &bytes))
                    .await?;
            }
            Step::Reset(why) => {
                self.write(&frame(code::RST_STREAM, 0, stream, &why.to_be_bytes()))
                    .await?;
            }
            Step::GoAway(last, why) => {
                let last = match last {
                    Last::This => stream,
                    Last::Before => stream.saturating_sub(2),
                };
                let payload = [last.to_be_bytes(), why.to_be_bytes()].concat();
                self.write(&frame(code::GOAWAY, 0, 0, &payload)).await?;
            }
            Step::Raw(bytes) => self.write(&bytes).await?,
            Step::Flood(bytes, reading) => self.flood(&bytes, reading).await?,
            Step::Close => {
                self.stream.shutdown().await?;
                return Ok(Then::End);
            }
            Step::ResetConnection => {
                self.stream.get_ref().0.set_zero_linger()?;
                return Ok(Then::End);
            }
        }
        Ok(Then::GoOn)
    }

    async fn flood(&mut self, bytes: &[u8], reading: Reading) -> io::Result<()> {
        loop {
            self.write(bytes).await?;
            if reading == Reading::Goes {
                tokio::select! {
                    biased;
                    read = self.stream.read_buf(&mut self.buffer) => {
                        if read? == 0 {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        self.buffer.clear();
                    }
                    () = std::future::ready(()) => {}
                }
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the slowness of a receiver is real time; no test waits by it"
)]
async fn wait(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

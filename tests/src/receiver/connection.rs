//! One connection: requests are read by hand, so that they are recorded as they came.

use std::{io, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    Received, Shared,
    reply::{Finally, Step},
};

/// No test sends more.
const HEAD_LIMIT: usize = 1024 * 1024;

/// Reads and answers requests until either side ends it. `reset` makes closing the stream a reset.
pub(super) async fn serve<S>(
    mut stream: S,
    number: usize,
    shared: &Shared,
    reset: impl FnOnce(S) -> io::Result<()>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = BytesMut::new();
    while let Some(request) = read_request(&mut stream, &mut buffer, number).await? {
        let (steps, finally) = shared.record(request).into_steps();
        for step in steps {
            perform(&mut stream, &mut buffer, step).await?;
        }
        stream.flush().await?;
        match finally {
            Finally::KeepAlive => {}
            Finally::Close => return stream.shutdown().await,
            Finally::Reset => return reset(stream),
            Finally::Hang => return hold(&mut stream).await,
        }
    }
    Ok(())
}

/// Does one step; `buffer` has what was read and is not looked at yet.
async fn perform<S>(stream: &mut S, buffer: &mut BytesMut, step: Step) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match step {
        Step::Wait(time) => wait(time).await,
        Step::Write(bytes) => stream.write_all(&bytes).await?,
        Step::Drip(bytes, pause) => {
            for byte in bytes {
                stream.write_all(&[byte]).await?;
                stream.flush().await?;
                wait(pause).await;
            }
        }
        Step::Unasked(bytes) => {
            if stream.read_buf(buffer).await? > 0 {
                stream.write_all(&bytes).await?;
            }
        }
        Step::Endless(bytes, pause) => loop {
            stream.write_all(&bytes).await?;
            stream.flush().await?;
            wait(pause).await;
        },
    }
    Ok(())
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

/// Holds the connection until the other side closes it.
async fn hold<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut ignored = [0; 1024];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

async fn read_request<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
    connection: usize,
) -> io::Result<Option<Received>> {
    let Some(end) = read_until(stream, buffer, b"\r\n\r\n").await? else {
        return Ok(None);
    };
    let head = buffer.split_to(end);
    buffer.advance(4);
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let request_line = lines.next().unwrap_or_default().to_owned();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(':').unwrap_or((line, "")))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let value = |wanted: &str| {
        headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, v)| v)
    };
    let body =
        if value("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            read_chunks(stream, buffer).await?
        } else {
            let length = value("content-length")
                .map_or(Ok(0), |value| value.parse())
                .map_err(io::Error::other)?;
            read_exactly(stream, buffer, length).await?
        };
    #[expect(
        clippy::disallowed_methods,
        reason = "the moment of arrival is what is recorded"
    )]
    let arrived = std::time::Instant::now();
    Ok(Some(Received {
        connection,
        request_line,
        headers,
        body,
        arrived,
    }))
}

async fn read_chunks<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
) -> io::Result<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let end = read_until(stream, buffer, b"\r\n")
            .await?
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let line = buffer.split_to(end);
        buffer.advance(2);
        let line = String::from_utf8_lossy(&line).into_owned();
        let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16)
            .map_err(io::Error::other)?;
        let chunk = read_exactly(stream, buffer, size).await?;
        read_exactly(stream, buffer, 2).await?;
        if size == 0 {
            return Ok(body.freeze());
        }
        body.extend_from_slice(&chunk);
    }
}

/// Reads until the buffer holds `mark`; where it begins, or none at the end of the stream.
async fn read_until<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
    mark: &[u8],
) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = buffer.windows(mark.len()).position(|window| window == mark) {
            return Ok(Some(at));
        }
        if buffer.len() > HEAD_LIMIT {
            return Err(io::Error::other(
                "a request's head is larger than any test sends",
            ));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn read_exactly<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut BytesMut,
    length: usize,
) -> io::Result<Bytes> {
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.split_to(length).freeze())
}

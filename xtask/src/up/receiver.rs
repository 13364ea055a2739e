//! A receiver to send to: `/ok` takes everything, `/flaky` fails one of five, `/down` fails always.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

/// Connections at once; more are closed. The server keeps at most 16 in flight for an endpoint.
const MOST_CONNECTIONS: usize = 128;

/// A request's head and body, in bytes.
const LARGEST_HEAD: u64 = 64 << 10;
const LARGEST_BODY: u64 = 4 << 20;

/// Arrivals that wait to be told; under a storm the rest goes untold.
const UNTOLD: usize = 256;

/// A request that came, and what it was answered.
pub(super) struct Arrival {
    pub(super) at: SystemTime,
    pub(super) path: String,
    pub(super) event: String,
    pub(super) status: u16,
}

struct Desk {
    tell: SyncSender<Arrival>,
    flaky: AtomicU64,
    open: AtomicUsize,
}

/// Answers until the program ends.
pub(super) fn start(listener: TcpListener) -> Receiver<Arrival> {
    let (tell, told) = sync_channel(UNTOLD);
    let desk = Arc::new(Desk {
        tell,
        flaky: AtomicU64::new(0),
        open: AtomicUsize::new(0),
    });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if desk.open.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
                desk.open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let desk = Arc::clone(&desk);
            std::thread::spawn(move || {
                while answer_one(&stream, &desk).is_some() {}
                desk.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    told
}

/// One request of a connection; none when the connection is over.
fn answer_one(stream: &TcpStream, desk: &Desk) -> Option<()> {
    stream
        .set_read_timeout(Some(Duration::from_secs(90)))
        .ok()?;
    let request = Request::read(&mut BufReader::new(stream))?;
    let status = desk.answer(&request.path);
    let reason = if status == 200 { "OK" } else { "Demo" };
    let mut out = stream;
    write!(
        out,
        "HTTP/1.1 {status} {reason}\r\nContent-Length: 0\r\n\r\n"
    )
    .ok()?;
    let arrival = Arrival {
        at: SystemTime::now(),
        path: request.path,
        event: request.event,
        status,
    };
    let _ = desk.tell.try_send(arrival);
    Some(())
}

impl Desk {
    fn answer(&self, path: &str) -> u16 {
        match path.split('?').next().unwrap_or_default() {
            // The first one fails, so that the first event already shows a retry.
            "/flaky" if self.flaky.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) => 500,
            "/ok" | "/flaky" => 200,
            "/down" => 503,
            _ => 404,
        }
    }
}

/// What is looked at of a request; its body is read and forgotten.
#[derive(Debug, Eq, PartialEq)]
struct Request {
    path: String,
    event: String,
}

impl Request {
    fn read(input: &mut BufReader<impl std::io::Read>) -> Option<Self> {
        let mut head = input.by_ref().take(LARGEST_HEAD);
        let mut line = String::new();
        head.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let path = line.split_whitespace().nth(1)?.to_owned();
        let (mut event, mut length) = (String::new(), 0_u64);
        loop {
            line.clear();
            head.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "webhook-id" => value.trim().clone_into(&mut event),
                "content-length" => length = value.trim().parse().ok()?,
                _ => {}
            }
        }
        if length > LARGEST_BODY {
            return None;
        }
        std::io::copy(&mut input.take(length), &mut std::io::sink()).ok()?;
        Some(Self { path, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_connection_are_read_one_after_another() {
        let text = "POST /ok HTTP/1.1\r\nWebhook-Id: evt_1\r\nContent-Length: 2\r\n\r\n{}GET /down HTTP/1.1\r\n\r\n";
        let mut input = BufReader::new(text.as_bytes());
        let first = Request::read(&mut input).unwrap();
        assert_eq!(
            first,
            Request {
                path: "/ok".into(),
                event: "evt_1".into()
            }
        );
        assert_eq!(Request::read(&mut input).unwrap().path, "/down");
        assert_eq!(Request::read(&mut input), None);
    }

    #[test]
    fn one_of_five_flaky_requests_fails() {
        let (tell, _told) = sync_channel(1);
        let desk = Desk {
            tell,
            flaky: AtomicU64::new(0),
            open: AtomicUsize::new(0),
        };
        let failed = (0..20).filter(|_| desk.answer("/flaky") == 500).count();
        assert_eq!(failed, 4);
    }
}

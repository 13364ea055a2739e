//! The little HTTP that `up` needs to speak to the server it has started: one request, one answer, JSON.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// More is never read of an answer.
const LARGEST_ANSWER: u64 = 4 << 20;

/// A server on this machine, and the key to it.
#[derive(Clone)]
pub(crate) struct Api {
    port: u16,
    key: Option<String>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Api {
    pub(crate) fn new(port: u16, key: Option<String>) -> Self {
        Self { port, key }
    }

    pub(crate) fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path, None)
    }

    /// A call that must succeed.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.request(method, path, body)?;
        if (200..300).contains(&answer.status) {
            return Ok(answer.body);
        }
        bail!(
            "{method} {path} answered {}: {}",
            answer.status,
            answer.body
        )
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        if let Some(key) = &self.key {
            write!(head, "Authorization: Bearer {key}\r\n")?;
        }
        if !body.is_empty() {
            write!(
                head,
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            )?;
        }
        write!(stream, "{head}\r\n{body}").with_context(|| format!("asking {path}"))?;
        let mut answer = Vec::new();
        stream
            .take(LARGEST_ANSWER)
            .read_to_end(&mut answer)
            .with_context(|| format!("reading {path}"))?;
        parse(&answer).with_context(|| format!("the answer to {method} {path} is not HTTP"))
    }
}

fn parse(answer: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        dechunked(body)?
    } else {
        body.to_owned()
    };
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    Some(Answer { status, body })
}

fn dechunked(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..size)?);
        body = rest.get(size..)?.strip_prefix("\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_gives_its_status_and_its_json() {
        let answer =
            parse(b"HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n{\"a\":\"b\"}").unwrap();
        assert_eq!((answer.status, answer.body["a"].as_str()), (202, Some("b")));
    }

    #[test]
    fn a_chunked_answer_is_put_together() {
        assert_eq!(
            dechunked("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").as_deref(),
            Some("abcde")
        );
        assert_eq!(dechunked("9\r\nabc\r\n0\r\n\r\n"), None);
    }
}

//! The receivers, and what a request to each comes to.

use std::time::Duration;

use posthorn_tests::authority::{Authority, self_signed_server};
use posthorn_tests::program::At;
use posthorn_tests::receiver::http2::{Http2Receiver, Http2Reply, code};
use posthorn_tests::receiver::{OnAccept, Receiver, Reply};
use rcgen::date_time_ymd;
use serde_json::Value;

/// What is wanted of every attempt.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    /// This status; words where it is none of success.
    Status(u16, &'static str),
    /// No answer: this kind, in these words.
    Failure(&'static str, &'static str),
}

/// An endpoint's URL and what it comes to.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    pub(crate) wanted: Wanted,
    /// Requests that its receiver sees for each attempt.
    pub(crate) requests_each: usize,
    counted: Counted,
}

/// Who counts its requests.
#[derive(Clone, Copy)]
enum Counted {
    Path(&'static str),
    Http2(usize),
    /// There is to be none.
    Nobody,
    /// What breaks before a request is read counts none.
    Uncounted,
}

/// Receivers besides the one that answers by path.
pub(crate) struct Receivers {
    on_accept: Vec<(&'static str, Receiver, Wanted)>,
    tls: Vec<(&'static str, Receiver, &'static str)>,
    http2: Vec<(&'static str, Http2Receiver, Wanted, usize)>,
}

const CLOSED: &str = "the endpoint closed the connection before its answer was complete";
const RESET: &str = "the endpoint reset the connection before its answer was complete";
const SILENT: &str = "the endpoint took the connection but did not answer within 1 s";
const CUT: &str = "the endpoint answered 200, but its body broke off after 10 bytes";

impl Wanted {
    /// What is wrong with an attempt, if anything is.
    pub(crate) fn fault(&self, attempt: &Value) -> Option<String> {
        let duration = attempt.pointer("/duration_ms").and_then(Value::as_u64);
        let slow = duration.is_none_or(|duration| duration > 3_000);
        let field = |name| attempt.pointer(name).unwrap_or(&Value::Null);
        let (status, error) = (field("/status"), field("/error"));
        let right = match *self {
            Self::Status(wanted, words) => {
                *status == wanted && (words.is_empty() == error.is_null()) && {
                    words.is_empty() || error.text("/detail").starts_with(words)
                }
            }
            Self::Failure(kind, words) => {
                status.is_null()
                    && !error.is_null()
                    && error.text("/kind") == kind
                    && error.text("/detail") == words
            }
        };
        (!right || slow).then(|| format!("{status} {error} after {duration:?} ms"))
    }
}

impl Hostile {
    /// How many requests its receiver has seen, where that can be told.
    pub(crate) fn seen(&self, by_path: &Receiver, others: &Receivers) -> Option<usize> {
        match self.counted {
            Counted::Path(path) => Some(by_path.requests_to(path).len()),
            Counted::Http2(which) => others
                .http2
                .get(which)
                .map(|(_, it, ..)| it.requests().len()),
            Counted::Nobody => Some(0),
            Counted::Uncounted => None,
        }
    }
}

impl Receivers {
    /// Starts them.
    pub(crate) async fn start(authority: &Authority) -> Self {
        Self {
            on_accept: broken_on_accept().await,
            tls: broken_handshakes(authority).await,
            http2: over_http2(authority).await,
        }
    }

    /// All of them, and the paths of this one.
    pub(crate) fn all(&self, by_path: &Receiver) -> Vec<Hostile> {
        let mut all = Vec::new();
        for (path, reply, wanted) in answers() {
            by_path.script(path, reply);
            all.push(Hostile {
                name: path,
                url: by_path.url(path),
                wanted,
                requests_each: 1,
                counted: Counted::Path(path),
            });
        }
        for (name, receiver, wanted) in &self.on_accept {
            all.push(Hostile {
                name,
                url: receiver.url("/"),
                wanted: *wanted,
                requests_each: 1,
                counted: Counted::Uncounted,
            });
        }
        for (name, receiver, words) in &self.tls {
            all.push(Hostile {
                name,
                url: receiver.url("/").replace("http:", "https:"),
                wanted: Wanted::Failure("tls", words),
                requests_each: 0,
                counted: Counted::Nobody,
            });
        }
        for (which, (name, receiver, wanted, requests_each)) in self.http2.iter().enumerate() {
            all.push(Hostile {
                name,
                url: receiver.url("/"),
                wanted: *wanted,
                requests_each: *requests_each,
                counted: Counted::Http2(which),
            });
        }
        all
    }
}

/// What a receiver answers to a request that it has read.
fn answers() -> Vec<(&'static str, Reply, Wanted)> {
    let mut all = Vec::from(odd_answers());
    all.extend(endless_answers());
    all.extend(broken_answers());
    all.extend(malformed_answers());
    all
}

fn with_length(length: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")
}

fn odd_answers() -> [(&'static str, Reply, Wanted); 5] {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n";
    let moved = "the endpoint answered 302 and points to /ok";
    [
        ("/ok", Reply::status(200), Wanted::Status(200, "")),
        (
            "/full-204",
            Reply::status(204).body("illegal").then_close(),
            Wanted::Status(204, ""),
        ),
        (
            "/moved",
            Reply::status(302).header("location", "/ok"),
            Wanted::Status(302, moved),
        ),
        (
            "/switching",
            Reply::raw(switching).then_hang(),
            Wanted::Status(101, "the endpoint answered 101"),
        ),
        (
            "/999",
            Reply::status(999),
            Wanted::Status(999, "the endpoint answered 999"),
        ),
    ]
}

fn endless_answers() -> [(&'static str, Reply, Wanted); 6] {
    let (tick, chunk) = (Duration::from_millis(50), vec![b'x'; 16 * 1024]);
    let silent = Wanted::Failure("timeout", SILENT);
    let processing = "HTTP/1.1 102 Processing\r\n\r\n";
    let gigabyte = Reply::raw(with_length("1073741824"));
    [
        ("/hang", Reply::hang(), silent),
        (
            "/drip",
            Reply::drip(with_length("0").repeat(20), tick),
            silent,
        ),
        (
            "/endless-102",
            Reply::raw("").then_endless(processing, tick),
            silent,
        ),
        (
            "/slow-body",
            Reply::endless(b".", tick),
            Wanted::Status(200, ""),
        ),
        (
            "/endless-body",
            Reply::endless(&chunk, Duration::ZERO),
            Wanted::Status(200, ""),
        ),
        (
            "/huge-body",
            gigabyte.then_endless(chunk, Duration::ZERO),
            Wanted::Status(200, ""),
        ),
    ]
}

fn broken_answers() -> [(&'static str, Reply, Wanted); 4] {
    let short = || Reply::raw(with_length("100") + "0123456789");
    [
        ("/empty", Reply::close(), Wanted::Failure("connect", CLOSED)),
        ("/reset", Reply::reset(), Wanted::Failure("connect", RESET)),
        (
            "/short",
            short().then_close(),
            Wanted::Failure("connect", CUT),
        ),
        (
            "/reset-body",
            short().then_reset(),
            Wanted::Failure("connect", CUT),
        ),
    ]
}

fn malformed_answers() -> Vec<(&'static str, Reply, Wanted)> {
    let too_large = "the head of the answer is larger than 32 KiB or 100 headers";
    let endless =
        Reply::raw("HTTP/1.1 200 OK\r\n").then_endless("x-more: and more\r\n", Duration::ZERO);
    let large = Reply::status(200).header("x-large", &"v".repeat(200_000));
    let raw = |answer: &'static str| Reply::raw(answer).then_close();
    let all = [
        ("/endless-head", endless, too_large),
        ("/large-head", large.then_close(), too_large),
        (
            "/ssh",
            raw("SSH-2.0-OpenSSH_9.2\r\n\r\n"),
            "the answer is not valid HTTP (invalid HTTP version parsed)",
        ),
        (
            "/000",
            raw("HTTP/1.1 000 Zero\r\n\r\n"),
            "the answer has no valid status",
        ),
        (
            "/lengths",
            raw("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok"),
            "the answer is not valid HTTP (invalid content-length parsed)",
        ),
        (
            "/chunks",
            raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
            "the endpoint answered 200, but its body is not valid HTTP after 0 bytes",
        ),
    ];
    let wanted = |words| Wanted::Failure("protocol", words);
    all.map(|(path, reply, words)| (path, reply, wanted(words)))
        .into()
}

/// Connections that break before a request is read.
async fn broken_on_accept() -> Vec<(&'static str, Receiver, Wanted)> {
    let mut all = Vec::new();
    for (name, what, wanted) in [
        (
            "hang on accept",
            OnAccept::Hang,
            Wanted::Failure("timeout", SILENT),
        ),
        (
            "reset in the request",
            OnAccept::ResetAfter(40),
            Wanted::Failure("connect", RESET),
        ),
    ] {
        let receiver = Receiver::start().await.unwrap();
        receiver.on_accept(what);
        all.push((name, receiver, wanted));
    }
    all
}

/// Handshakes that end before a byte of HTTP.
async fn broken_handshakes(authority: &Authority) -> Vec<(&'static str, Receiver, &'static str)> {
    let unknown = "the certificate's issuer is not known; it may be self-signed, or an intermediate certificate is missing";
    let expired = authority.server_with(|params| params.not_after = date_time_ymd(2001, 1, 1));
    let mut all = Vec::new();
    for (name, config, words) in [
        ("expired", expired, "the certificate has expired"),
        (
            "another name",
            authority.server_of(&["other.test"]),
            "the certificate is for another host name",
        ),
        (
            "missing intermediate",
            authority.intermediate().server(),
            unknown,
        ),
        ("self-signed", self_signed_server(), unknown),
    ] {
        all.push((name, Receiver::start_tls(config).await.unwrap(), words));
    }
    for (name, what, words) in [
        (
            "no TLS",
            OnAccept::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "the endpoint does not speak TLS on this port",
        ),
        (
            "TLS 1.0",
            OnAccept::Say(b"\x15\x03\x01\x00\x02\x02\x46"),
            "the endpoint offers neither TLS 1.2 nor 1.3 with a current cipher suite",
        ),
        (
            "reset in the handshake",
            OnAccept::ResetAfter(5),
            "the endpoint reset the connection during the handshake",
        ),
    ] {
        let receiver = Receiver::start().await.unwrap();
        receiver.on_accept(what);
        all.push((name, receiver, words));
    }
    all
}

/// What goes wrong over HTTP/2.
async fn over_http2(authority: &Authority) -> Vec<(&'static str, Http2Receiver, Wanted, usize)> {
    let connect = |words| Wanted::Failure("connect", words);
    let refused = "the endpoint refused the request, and once more on a new connection (HTTP/2 REFUSED_STREAM)";
    let mut all = Vec::new();
    for (name, reply, wanted, requests_each) in [
        (
            "GOAWAY after each",
            Http2Reply::status(200).then_go_away(code::NO_ERROR),
            Wanted::Status(200, ""),
            1,
        ),
        (
            "refused",
            Http2Reply::reset(code::REFUSED_STREAM),
            connect(refused),
            2,
        ),
        (
            "broken off",
            Http2Reply::reset(code::INTERNAL_ERROR),
            connect("the endpoint broke the request off (HTTP/2 INTERNAL_ERROR)"),
            1,
        ),
        ("closed", Http2Reply::close(), connect(CLOSED), 1),
        (
            "hanging",
            Http2Reply::hang(),
            Wanted::Failure("timeout", SILENT),
            1,
        ),
        (
            "stalled body",
            Http2Reply::head(200).data("a"),
            Wanted::Status(200, ""),
            1,
        ),
    ] {
        let receiver = Http2Receiver::start(&authority.server()).await.unwrap();
        receiver.settings(&[(code::MAX_CONCURRENT_STREAMS, 1)]);
        receiver.script([reply]);
        all.push((name, receiver, wanted, requests_each));
    }
    all
}

//! What a receiver does with a request.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

/// One thing that a reply does on the connection.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Wait(Duration),
    Write(Bytes),
    /// A byte at a time.
    Drip(Bytes, Duration),
    /// When the next request comes, before it is read.
    Unasked(Bytes),
    /// Over and over, until the other side goes.
    Endless(Bytes, Duration),
}

/// What becomes of the connection then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finally {
    KeepAlive,
    Close,
    Reset,
    Hang,
}

/// What a receiver does with one request.
#[derive(Clone, Debug)]
pub struct Reply {
    delay: Duration,
    content: Content,
    finally: Finally,
}

#[derive(Clone, Debug)]
enum Content {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Bytes,
    },
    Steps(Vec<Step>),
}

impl Reply {
    /// A proper answer without a body; the connection stays open.
    #[must_use]
    pub fn status(status: u16) -> Self {
        let content = Content::Answer {
            status,
            headers: Vec::new(),
            body: Bytes::new(),
        };
        Self {
            delay: Duration::ZERO,
            content,
            finally: Finally::KeepAlive,
        }
    }

    /// Adds a header to a proper answer.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Content::Answer { headers, .. } = &mut self.content {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Sets the body of a proper answer.
    #[must_use]
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        if let Content::Answer { body, .. } = &mut self.content {
            *body = bytes.into();
        }
        self
    }

    /// Waits before it does anything else.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// These bytes, whatever they are.
    #[must_use]
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::steps(vec![Step::Write(bytes.into())], Finally::KeepAlive)
    }

    /// Nothing, for ever, on an open connection.
    #[must_use]
    pub fn hang() -> Self {
        Self::steps(Vec::new(), Finally::Hang)
    }

    /// Nothing, and the connection is closed.
    #[must_use]
    pub fn close() -> Self {
        Self::steps(Vec::new(), Finally::Close)
    }

    /// Nothing, and the connection is reset.
    #[must_use]
    pub fn reset() -> Self {
        Self::steps(Vec::new(), Finally::Reset)
    }

    /// A head, one byte at a time.
    #[must_use]
    pub fn drip(head: impl Into<Bytes>, pause: Duration) -> Self {
        Self::steps(vec![Step::Drip(head.into(), pause)], Finally::Hang)
    }

    /// A head of status 200, then chunks without end.
    #[must_use]
    pub fn endless(chunk: &[u8], pause: Duration) -> Self {
        let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
        Self::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            .then_endless(framed, pause)
    }

    /// Bytes written over and over after what went before.
    #[must_use]
    pub fn then_endless(mut self, bytes: impl Into<Bytes>, pause: Duration) -> Self {
        if let Content::Steps(steps) = &mut self.content {
            steps.push(Step::Endless(bytes.into(), pause));
        }
        self
    }

    /// Keeps these bytes until the next request comes on the connection, and writes them before it is read.
    #[must_use]
    pub fn then_unasked(mut self, bytes: impl Into<Bytes>) -> Self {
        if let Content::Steps(steps) = &mut self.content {
            steps.push(Step::Unasked(bytes.into()));
        }
        self
    }

    /// Closes the connection when it has done the rest.
    #[must_use]
    pub fn then_close(self) -> Self {
        Self {
            finally: Finally::Close,
            ..self
        }
    }

    /// Resets the connection when it has done the rest.
    #[must_use]
    pub fn then_reset(self) -> Self {
        Self {
            finally: Finally::Reset,
            ..self
        }
    }

    /// Holds the connection open when it has done the rest, without reading on.
    #[must_use]
    pub fn then_hang(self) -> Self {
        Self {
            finally: Finally::Hang,
            ..self
        }
    }

    fn steps(steps: Vec<Step>, finally: Finally) -> Self {
        Self {
            delay: Duration::ZERO,
            content: Content::Steps(steps),
            finally,
        }
    }

    /// What is to be done, in order.
    pub(super) fn into_steps(self) -> (Vec<Step>, Finally) {
        let mut steps = vec![Step::Wait(self.delay)];
        match self.content {
            Content::Answer {
                status,
                headers,
                body,
            } => {
                let head: Vec<_> = headers
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}\r\n"))
                    .collect();
                let head = head.concat();
                // RFC 9110, 8.6: no length on 1xx and 204.
                let length = match status {
                    0..200 | 204 => String::new(),
                    _ => format!("content-length: {}\r\n", body.len()),
                };
                let mut answer =
                    format!("HTTP/1.1 {status} Scripted\r\n{head}{length}\r\n").into_bytes();
                answer.extend_from_slice(&body);
                steps.push(Step::Write(answer.into()));
            }
            Content::Steps(more) => steps.extend(more),
        }
        (steps, self.finally)
    }
}

/// What a path does with one request after the other. The last reply stands for all that follow.
#[derive(Clone, Debug)]
pub struct Script {
    before: VecDeque<Reply>,
    last: Reply,
    limit: Option<Limit>,
}

/// What a receiver takes.
#[derive(Clone, Debug)]
struct Limit {
    per_second: usize,
    /// When it took what it took within the last second.
    taken: VecDeque<Instant>,
    /// How it answers what is more.
    over: Reply,
}

impl Limit {
    fn takes(&mut self, at: Instant) -> bool {
        let old = |first: &mut Instant| at.duration_since(*first) >= Duration::from_secs(1);
        while self.taken.pop_front_if(old).is_some() {}
        let takes = self.taken.len() < self.per_second;
        if takes {
            self.taken.push_back(at);
        }
        takes
    }
}

impl Script {
    /// The same for every request.
    #[must_use]
    pub fn always(reply: Reply) -> Self {
        Self {
            before: VecDeque::new(),
            last: reply,
            limit: None,
        }
    }

    /// This for the first `count` requests; go on with [`Script::then`].
    #[must_use]
    pub fn first(count: usize, reply: Reply) -> Self {
        Self {
            before: vec![reply.clone(); count].into(),
            last: reply,
            limit: None,
        }
    }

    /// This for the next `count` requests.
    #[must_use]
    pub fn then_times(mut self, count: usize, reply: Reply) -> Self {
        self.before.extend(vec![reply.clone(); count]);
        Self {
            last: reply,
            ..self
        }
    }

    /// This for all that follow.
    #[must_use]
    pub fn then(self, reply: Reply) -> Self {
        Self {
            last: reply,
            ..self
        }
    }

    /// No more than so many in any second; what is more is answered by `over`, and uses up nothing of the script.
    #[must_use]
    pub fn at_most(self, per_second: usize, over: Reply) -> Self {
        let limit = Some(Limit {
            per_second,
            taken: VecDeque::new(),
            over,
        });
        Self { limit, ..self }
    }

    pub(super) fn next(&mut self, at: Instant) -> Reply {
        if let Some(limit) = &mut self.limit
            && !limit.takes(at)
        {
            return limit.over.clone();
        }
        self.before.pop_front().unwrap_or_else(|| self.last.clone())
    }
}

impl From<Reply> for Script {
    fn from(reply: Reply) -> Self {
        Self::always(reply)
    }
}

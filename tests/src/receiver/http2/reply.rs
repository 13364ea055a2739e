//! What is done with one request: frames, and what becomes of the connection.

use std::time::Duration;

use bytes::Bytes;

/// Numbers of RFC 9113.
pub mod code {
    /// A frame of a body.
    pub const DATA: u8 = 0;
    /// A frame of a head.
    pub const HEADERS: u8 = 1;
    /// A frame that ends a stream.
    pub const RST_STREAM: u8 = 3;
    /// A frame of settings.
    pub const SETTINGS: u8 = 4;
    /// A frame that asks whether the other side lives.
    pub const PING: u8 = 6;
    /// A frame that announces the end of the connection.
    pub const GOAWAY: u8 = 7;
    /// A frame that lets the other side send more.
    pub const WINDOW_UPDATE: u8 = 8;
    /// A frame that goes on with a head.
    pub const CONTINUATION: u8 = 9;
    /// The flag of an answered SETTINGS or PING.
    pub const ACK: u8 = 1;
    /// The flag of a stream's last frame.
    pub const END_STREAM: u8 = 1;
    /// The flag of a head's last frame.
    pub const END_HEADERS: u8 = 4;
    /// The setting that bounds the streams under way.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// The setting of how much of a body may be sent unasked.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// Nothing is wrong.
    pub const NO_ERROR: u32 = 0;
    /// Something went wrong inside.
    pub const INTERNAL_ERROR: u32 = 2;
    /// Nothing was done with the stream.
    pub const REFUSED_STREAM: u32 = 7;
    /// The stream is not wanted any more.
    pub const CANCEL: u32 = 8;
    /// The other side asks too much.
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// A frame (RFC 9113, 4.1).
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// One step of a reply.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A head with this status; the stream ends with it, or goes on.
    Head(u16, u8),
    /// A piece of the body.
    Data(Bytes, u8),
    Reset(u32),
    /// With the stream's own number as the last, or with the one before it.
    GoAway(Last, u32),
    /// These bytes, whatever they are.
    Raw(Bytes),
    /// These bytes over and over; what comes meanwhile is read, or not.
    Flood(Bytes, Reading),
    Close,
    ResetConnection,
}

/// Which stream a GOAWAY names as the last that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    This,
    Before,
}

/// Whether what comes is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Goes,
    Stops,
}

/// What is done with one request. Nothing at all unless told.
#[derive(Clone, Debug, Default)]
pub struct Http2Reply {
    pub(super) steps: Vec<Step>,
    /// Not when the request has ended, but when its head has come.
    pub(super) at_once: bool,
    pub(super) delay: Duration,
}

impl Http2Reply {
    /// A proper answer without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::default().then(Step::Head(status, code::END_STREAM))
    }

    /// A head whose stream goes on.
    #[must_use]
    pub fn head(status: u16) -> Self {
        Self::default().then(Step::Head(status, 0))
    }

    /// Nothing, for ever, on an open stream.
    #[must_use]
    pub fn hang() -> Self {
        Self::default()
    }

    /// The stream is reset.
    #[must_use]
    pub fn reset(code: u32) -> Self {
        Self::default().then(Step::Reset(code))
    }

    /// The connection takes no more requests, and this one is the last that was looked at.
    #[must_use]
    pub fn go_away(code: u32) -> Self {
        Self::default().then(Step::GoAway(Last::This, code))
    }

    /// The connection takes no more requests, and this one was not looked at any more.
    #[must_use]
    pub fn go_away_before(code: u32) -> Self {
        Self::default().then(Step::GoAway(Last::Before, code))
    }

    /// The connection is closed.
    #[must_use]
    pub fn close() -> Self {
        Self::default().then(Step::Close)
    }

    /// Does it as soon as the head of the request has come.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self {
            at_once: true,
            ..self
        }
    }

    /// Waits before it does anything else.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Then a piece of the body; more may follow.
    #[must_use]
    pub fn data(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Data(bytes.into(), 0))
    }

    /// Then the last piece of the body.
    #[must_use]
    pub fn last_data(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Data(bytes.into(), code::END_STREAM))
    }

    /// Then the stream is reset.
    #[must_use]
    pub fn then_reset(self, code: u32) -> Self {
        self.then(Step::Reset(code))
    }

    /// Then a GOAWAY that names this request as the last.
    #[must_use]
    pub fn then_go_away(self, code: u32) -> Self {
        self.then(Step::GoAway(Last::This, code))
    }

    /// Then these bytes.
    #[must_use]
    pub fn then_raw(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Raw(bytes.into()))
    }

    /// Then bytes over and over. What comes meanwhile is read.
    #[must_use]
    pub fn then_flood(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Flood(bytes.into(), Reading::Goes))
    }

    /// Then bytes over and over, and nothing is read any more.
    #[must_use]
    pub fn then_deaf_flood(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Flood(bytes.into(), Reading::Stops))
    }

    /// Then the connection is closed.
    #[must_use]
    pub fn then_close(self) -> Self {
        self.then(Step::Close)
    }

    /// Then the TCP connection is reset.
    #[must_use]
    pub fn then_reset_connection(self) -> Self {
        self.then(Step::ResetConnection)
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }
}

/// The head of an answer as HPACK has it (RFC 7541): the name by its number in the static table, the value as it is.
#[must_use]
pub fn head(status: u16) -> Vec<u8> {
    let digits = format!("{status:03}");
    let mut block = vec![0x08, 3];
    block.extend_from_slice(digits.as_bytes());
    block
}

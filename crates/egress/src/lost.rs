//! A request without an answer, and whether it may be sent once more.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::TrySendError;

use crate::failure::find;

/// Why there is no answer, with the request where nobody can have acted on it.
pub(crate) struct Lost {
    /// What broke.
    pub(crate) error: hyper::Error,
    /// Whether it may be sent once more.
    pub(crate) fate: Fate,
}

/// What became of a request without an answer.
pub(crate) enum Fate {
    /// Nobody knows.
    Unknown,
    /// Not one byte of it was written.
    Unwritten(Request<Full<Bytes>>),
    /// The other side says that it has done nothing with it.
    Refused(Request<Full<Bytes>>),
}

impl Lost {
    /// On a connection of HTTP/1.1.
    pub(crate) fn on_http1(mut error: TrySendError<Request<Full<Bytes>>>) -> Self {
        let fate = match error.take_message() {
            Some(request) => Fate::Unwritten(request),
            None => Fate::Unknown,
        };
        Self {
            error: error.into_error(),
            fate,
        }
    }

    /// On a connection of HTTP/2. `again` is the request itself.
    pub(crate) fn on_http2(
        error: TrySendError<Request<Full<Bytes>>>,
        again: Request<Full<Bytes>>,
    ) -> Self {
        let lost = Self::on_http1(error);
        match lost.fate {
            Fate::Unknown if was_refused(&lost.error) => Self {
                fate: Fate::Refused(again),
                ..lost
            },
            _ => lost,
        }
    }
}

/// The other side says that it has done nothing with a request (RFC 9113, 8.7): it refused its stream, or closes the connection in
/// peace and names an earlier one as the last. A GOAWAY with an error asks us for something else than the same again.
fn was_refused(error: &hyper::Error) -> bool {
    let Some(error) = find::<h2::Error>(error).filter(|error| error.is_remote()) else {
        return false;
    };
    let reason = error.reason();
    error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)
        || error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
}

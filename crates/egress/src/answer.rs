//! What an endpoint answered, as much of it as is kept.

use std::{borrow::Cow, fmt, net::SocketAddr};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header::RETRY_AFTER, response::Parts};
use http_body_util::BodyExt;
use hyper::body::Body as HttpBody;
use posthorn_domain::limits;

use crate::mask::mask_value;

/// An answer: a head, and as much of the body as came in time and fits.
#[derive(Clone, Debug)]
pub struct Answer {
    /// 100 to 999, as it came.
    pub status: u16,
    headers: Headers,
    /// The value of `retry-after` (the first, if there are more), whatever became of the kept headers.
    pub retry_after: Option<String>,
    /// The beginning of the body, at most [`limits::RESPONSE_BODY_BYTES`].
    pub body: Bytes,
    /// Bytes of the body that were read before it ended or was cut.
    pub size: u64,
    /// The body did not end: it was larger than is kept, the deadline came, or (unless the status is 2xx) it broke off.
    pub cut: bool,
    /// Whom the connection went to.
    pub remote_address: Option<SocketAddr>,
}

/// Headers as they came, shown only as they may be.
#[derive(Clone)]
struct Headers(HeaderMap);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(keep(&self.0)).finish()
    }
}

impl Answer {
    /// An answer with its head; its body counts as cut until it has ended.
    pub(crate) fn begin(head: Parts, remote_address: Option<SocketAddr>) -> Self {
        Self {
            status: head.status.as_u16(),
            retry_after: head
                .headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
            headers: Headers(head.headers),
            body: Bytes::new(),
            size: 0,
            cut: true,
            remote_address,
        }
    }

    /// The headers that may be kept: names in lower case and values in the order they came; credentials are masked, bytes
    /// that are not UTF-8 replaced. At most [`limits::RESPONSE_HEADERS`] of them and
    /// [`limits::RESPONSE_HEADERS_KEPT_BYTES`] in all. Made when asked for: of most answers nothing is kept.
    #[must_use]
    pub fn headers(&self) -> Vec<(String, String)> {
        keep(&self.headers.0)
    }

    /// The first value of a header, as it may be shown.
    #[must_use]
    pub fn header(&self, name: &HeaderName) -> Option<Cow<'_, str>> {
        let value = self.headers.0.get(name)?;
        Some(mask_value(name.as_str(), value.as_bytes()))
    }

    /// The status is 2xx.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A body as it comes in.
#[derive(Default)]
pub(crate) struct Body {
    kept: BytesMut,
    read: u64,
    ended: bool,
}

impl Body {
    /// Reads until the body ends or there is more than is kept. What has been read stays if this is dropped half-way.
    pub(crate) async fn read(
        &mut self,
        mut incoming: impl HttpBody<Data = Bytes, Error = hyper::Error> + Unpin,
    ) -> Result<(), hyper::Error> {
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            self.read += data.len() as u64;
            let room = limits::RESPONSE_BODY_BYTES - self.kept.len();
            self.kept
                .extend_from_slice(data.get(..room).unwrap_or(&data));
            if data.len() > room {
                return Ok(());
            }
        }
        self.ended = true;
        Ok(())
    }

    /// It was read to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Completes an answer.
    pub(crate) fn finish(self, answer: Answer) -> Answer {
        Answer {
            body: self.kept.freeze(),
            size: self.read,
            cut: !self.ended,
            ..answer
        }
    }
}

fn keep(headers: &HeaderMap) -> Vec<(String, String)> {
    let mut room = limits::RESPONSE_HEADERS_KEPT_BYTES;
    let mut kept = Vec::with_capacity(headers.len().min(limits::RESPONSE_HEADERS));
    for (name, value) in headers.iter().take(limits::RESPONSE_HEADERS) {
        let value = mask_value(name.as_str(), value.as_bytes());
        let Some(left) = room.checked_sub(name.as_str().len() + value.len()) else {
            // A large one does not take the place of the small ones after it.
            continue;
        };
        room = left;
        kept.push((name.as_str().to_owned(), value.into_owned()));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_headers_are_bounded_and_masked() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "x-large",
            "v".repeat(limits::RESPONSE_HEADERS_KEPT_BYTES)
                .parse()
                .unwrap(),
        );
        headers.insert("set-cookie", "session=1".parse().unwrap());
        for n in 0..200 {
            headers.insert(
                http::HeaderName::try_from(format!("x-{n}")).unwrap(),
                "v".parse().unwrap(),
            );
        }
        let kept = keep(&headers);
        assert!(kept.len() < limits::RESPONSE_HEADERS, "{}", kept.len());
        assert!(kept.contains(&("set-cookie".to_owned(), "[masked]".to_owned())));
        assert!(!kept.iter().any(|(name, _)| name == "x-large"));
    }
}

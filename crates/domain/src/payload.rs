//! Is a payload JSON? A check of the bytes as they are, without building anything from them.
//!
//! Strict RFC 8259: one value, UTF-8, no byte order mark, no more than 128 levels of arrays and objects.
//! Escapes of lone surrogates and of NUL are JSON, and numbers have no bounds: the bytes are kept and sent
//! as they came (INV-3), so nothing has to fit into a type of ours.

use crate::limits::PAYLOAD_DEPTH;

/// Where and why a payload is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// A byte order mark at the beginning.
    #[error("a JSON text has no byte order mark")]
    ByteOrderMark,
    /// Bytes that are not UTF-8.
    #[error("the payload is not UTF-8 at byte {0}")]
    Utf8(usize),
    /// Arrays and objects nested too deep.
    #[error("the payload has more than 128 levels at byte {0}")]
    TooDeep(usize),
    /// A byte that cannot stand there.
    #[error("the payload is not JSON at byte {0}")]
    Syntax(usize),
    /// It ends in the middle.
    #[error("the payload ends before its JSON value does")]
    End,
}

/// Checks that the bytes are one JSON value.
///
/// # Errors
///
/// [`PayloadError`] says where they are not, as an offset from 0.
pub fn check_json(bytes: &[u8]) -> Result<(), PayloadError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(PayloadError::ByteOrderMark);
    }
    if let Err(error) = core::str::from_utf8(bytes) {
        return Err(PayloadError::Utf8(error.valid_up_to()));
    }
    let mut reader = Reader { bytes, at: 0 };
    let mut open = Nesting::default();
    loop {
        reader.skip_space();
        if !reader.begin_value(&mut open)? {
            continue;
        }
        if !reader.end_values(&mut open)? {
            break;
        }
    }
    reader.skip_space();
    if reader.at == bytes.len() {
        Ok(())
    } else {
        Err(PayloadError::Syntax(reader.at))
    }
}

/// What is open around the reader: one bit a level, set for an object.
#[derive(Default)]
struct Nesting {
    objects: u128,
    depth: usize,
}

impl Nesting {
    fn push(&mut self, kind: Container, at: usize) -> Result<(), PayloadError> {
        if self.depth == PAYLOAD_DEPTH {
            return Err(PayloadError::TooDeep(at));
        }
        self.depth += 1;
        self.objects = (self.objects << 1) | u128::from(kind == Container::Object);
        Ok(())
    }

    fn pop(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.objects >>= 1;
    }

    fn innermost(&self) -> Option<Container> {
        (self.depth > 0).then_some(if self.objects & 1 == 1 {
            Container::Object
        } else {
            Container::Array
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Container {
    Array,
    Object,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads a scalar, an empty container, or the opening of one. True when a value is complete.
    fn begin_value(&mut self, open: &mut Nesting) -> Result<bool, PayloadError> {
        let start = self.at;
        match self.next()? {
            b'{' => {
                open.push(Container::Object, start)?;
                self.skip_space();
                if self.take(b'}') {
                    open.pop();
                    return Ok(true);
                }
                self.key().map(|()| false)
            }
            b'[' => {
                open.push(Container::Array, start)?;
                self.skip_space();
                let empty = self.take(b']');
                if empty {
                    open.pop();
                }
                Ok(empty)
            }
            b'"' => self.string().map(|()| true),
            b't' => self.word(b"rue").map(|()| true),
            b'f' => self.word(b"alse").map(|()| true),
            b'n' => self.word(b"ull").map(|()| true),
            first @ (b'-' | b'0'..=b'9') => self.number(first).map(|()| true),
            _ => Err(PayloadError::Syntax(start)),
        }
    }

    /// After a value: closes what ends here. True when another value follows, false when all is closed.
    fn end_values(&mut self, open: &mut Nesting) -> Result<bool, PayloadError> {
        while let Some(container) = open.innermost() {
            self.skip_space();
            let at = self.at;
            match (self.next()?, container) {
                (b',', Container::Array) => return Ok(true),
                (b',', Container::Object) => {
                    self.skip_space();
                    return self.key().map(|()| true);
                }
                (b']', Container::Array) | (b'}', Container::Object) => open.pop(),
                _ => return Err(PayloadError::Syntax(at)),
            }
        }
        Ok(false)
    }

    fn key(&mut self) -> Result<(), PayloadError> {
        self.expect(|b| b == b'"')?;
        self.string()?;
        self.skip_space();
        self.expect(|b| b == b':')
    }

    /// The rest of a string, after its opening quote.
    fn string(&mut self) -> Result<(), PayloadError> {
        loop {
            self.at += plain(self.bytes.get(self.at..).unwrap_or_default());
            let at = self.at;
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                _ => return Err(PayloadError::Syntax(at)),
            }
        }
    }

    fn escape(&mut self) -> Result<(), PayloadError> {
        let at = self.at;
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => (0..4).try_for_each(|_| self.expect(|b| b.is_ascii_hexdigit())),
            _ => Err(PayloadError::Syntax(at)),
        }
    }

    fn number(&mut self, first: u8) -> Result<(), PayloadError> {
        let leading = if first == b'-' { self.digit()? } else { first };
        if leading != b'0' {
            self.skip_digits();
        }
        if self.take(b'.') {
            self.digit()?;
            self.skip_digits();
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digit()?;
            self.skip_digits();
        }
        Ok(())
    }

    fn word(&mut self, rest: &[u8]) -> Result<(), PayloadError> {
        rest.iter()
            .try_for_each(|&wanted| self.expect(|b| b == wanted))
    }

    fn digit(&mut self) -> Result<u8, PayloadError> {
        let digit = self.peek();
        self.expect(|b| b.is_ascii_digit())?;
        digit.ok_or(PayloadError::End)
    }

    fn skip_digits(&mut self) {
        while self.peek().is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let there = self.peek() == Some(wanted);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, fits: impl FnOnce(u8) -> bool) -> Result<(), PayloadError> {
        let at = self.at;
        if fits(self.next()?) {
            Ok(())
        } else {
            Err(PayloadError::Syntax(at))
        }
    }

    fn next(&mut self) -> Result<u8, PayloadError> {
        let byte = self.peek().ok_or(PayloadError::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// How many bytes stand for themselves at the beginning of a string's rest. Most do, so sixteen are looked at together.
fn plain(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<16>();
    let whole = chunks
        .iter()
        .take_while(|chunk| !chunk.iter().fold(false, |any, &b| any | is_special(b)))
        .count();
    let rest = bytes.get(whole * 16..).unwrap_or_default();
    whole * 16
        + rest
            .iter()
            .position(|&b| is_special(b))
            .unwrap_or(rest.len())
}

#[expect(
    clippy::needless_bitwise_bool,
    reason = "without a branch sixteen of these are a few instructions: a string is read seven times as fast"
)]
const fn is_special(b: u8) -> bool {
    (b == b'"') | (b == b'\\') | (b < b' ')
}

#[cfg(test)]
mod tests;

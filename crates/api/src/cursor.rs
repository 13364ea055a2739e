//! Cursors: where a page of a list begins, in a form that clients cannot build or bend.
//!
//! A cursor is base64url of a version byte, a direction byte, the key of the row at the edge, and 8 bytes of
//! SHA-256 over those and the list that it belongs to: its name, tenant, filter and order. A cursor of another
//! list, filter, order or tenant, or one that was changed, does not check out. The digest is no secret: a
//! forged cursor reaches no more than the tenant's own rows, which row-level security and every statement hold.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const VERSION: u8 = 1;
const CHECK_BYTES: usize = 8;

/// On which side of the row at the edge the page lies, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The rows that follow it.
    After,
    /// The rows that come before it.
    Before,
}

impl Side {
    const fn byte(self) -> u8 {
        match self {
            Self::After => b'a',
            Self::Before => b'b',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'a' => Some(Self::After),
            b'b' => Some(Self::Before),
            _ => None,
        }
    }
}

/// A key that rows of a list are ordered by, as bytes.
pub(crate) trait CursorKey: Sized {
    /// The key's bytes, always the same number.
    fn to_bytes(&self) -> Vec<u8>;
    /// The key again, unless the bytes are none.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

/// Writes a cursor for `binding`: the text that names list, tenant, filter and order.
pub(crate) fn encode<K: CursorKey>(side: Side, key: &K, binding: &str) -> String {
    let mut bytes = vec![VERSION, side.byte()];
    bytes.extend(key.to_bytes());
    let check = check(&bytes, binding);
    bytes.extend(check);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads a cursor. `None` when it is not one that [`encode`] wrote for the same binding.
pub(crate) fn decode<K: CursorKey>(text: &str, binding: &str) -> Option<(Side, K)> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECK_BYTES)?)?;
    if check(body, binding).as_slice() != sum {
        return None;
    }
    let (&version, rest) = body.split_first()?;
    let (&side, key) = rest.split_first()?;
    if version != VERSION {
        return None;
    }
    Some((Side::from_byte(side)?, K::from_bytes(key)?))
}

fn check(body: &[u8], binding: &str) -> Vec<u8> {
    let mut text = binding.as_bytes().to_vec();
    text.push(0);
    text.extend_from_slice(body);
    digest(&SHA256, &text)
        .as_ref()
        .iter()
        .take(CHECK_BYTES)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq)]
    struct Key(u64);

    impl CursorKey for Key {
        fn to_bytes(&self) -> Vec<u8> {
            self.0.to_be_bytes().to_vec()
        }
        fn from_bytes(bytes: &[u8]) -> Option<Self> {
            Some(Self(u64::from_be_bytes(bytes.try_into().ok()?)))
        }
    }

    #[test]
    fn a_cursor_leads_back_to_its_row() {
        for side in [Side::After, Side::Before] {
            let text = encode(side, &Key(7), "events");
            assert_eq!(decode(&text, "events"), Some((side, Key(7))));
        }
    }

    #[test]
    fn a_cursor_of_another_filter_is_refused() {
        let text = encode(Side::After, &Key(7), "events desc");
        assert_eq!(decode::<Key>(&text, "events asc"), None);
    }

    #[test]
    fn a_changed_character_anywhere_is_refused() {
        let text = encode(Side::After, &Key(7), "events");
        for at in 0..text.len() {
            let mut bent = text.clone().into_bytes();
            bent[at] = if bent[at] == b'A' { b'B' } else { b'A' };
            let bent = String::from_utf8(bent).unwrap();
            assert_eq!(decode::<Key>(&bent, "events"), None, "{bent}");
        }
    }

    #[test]
    fn a_text_that_is_no_cursor_is_refused() {
        for text in ["", "a", "====", "AAAAAAAAAAA", "not a cursor", "\u{0}"] {
            assert_eq!(decode::<Key>(text, "events"), None, "{text:?}");
        }
    }

    /// Bytes of any number in base64url, which is nearer to a cursor than any text.
    fn near_cursors() -> impl Strategy<Value = String> {
        prop_oneof![
            "\\PC{0,40}",
            proptest::collection::vec(any::<u8>(), 0..32)
                .prop_map(|bytes| URL_SAFE_NO_PAD.encode(bytes)),
        ]
    }

    proptest! {
        #[test]
        fn nothing_that_was_not_written_here_is_read(text in near_cursors(), binding in "[a-z ]{0,8}") {
            prop_assert_eq!(decode::<Key>(&text, &binding), None);
        }

        /// One text for one place: another spelling of the same bytes is refused, too.
        #[test]
        fn a_cursor_reads_back_and_with_anything_changed_does_not(
            key in any::<u64>(), before in any::<bool>(), at in 0_usize..24, change in 1_u8..=255, more in "[A-Za-z0-9=_ -]{1,4}",
        ) {
            let side = if before { Side::Before } else { Side::After };
            let text = encode(side, &Key(key), "events");
            prop_assert_eq!(decode(&text, "events"), Some((side, Key(key))));
            prop_assert_eq!(decode::<Key>(&format!("{text}{more}"), "events"), None);
            let mut bytes = text.clone().into_bytes();
            let last = bytes.len() - 1;
            bytes[at.min(last)] ^= change;
            let bent = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(decode::<Key>(&bent, "events"), None, "{}", bent);
        }
    }
}

//! Crockford's base32 in lower case: digits and letters without `i l o u`, five bits a character.
//!
//! Strict: one text for each value. Upper case, the look-alikes that Crockford reads leniently and
//! hyphens are refused, since an id is compared and searched as text.
//! <https://www.crockford.com/base32.html>

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// By character, what it stands for; [`NONE`] where it is not of the alphabet.
const VALUES: [u8; 256] = values();
const NONE: u8 = u8::MAX;

/// Characters of 128 bits: 26 × 5 = 130, so the first one holds only 3 bits.
pub(crate) const U128_LEN: usize = 26;

/// Why a text is not a number in this alphabet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Length,
    Character,
    Overflow,
}

/// Appends the 26 characters of `value`, most significant first: texts sort as their numbers do.
pub(crate) fn push_u128(out: &mut String, value: u128) {
    push_bits(out, value, U128_LEN);
}

/// Appends the lowest `len * 5` bits of `value`.
pub(crate) fn push_bits(out: &mut String, value: u128, len: usize) {
    for place in (0..len).rev() {
        let digit = usize::try_from((value >> (place * 5)) & 31).unwrap_or(0);
        out.push(char::from(ALPHABET.get(digit).copied().unwrap_or(b'0')));
    }
}

/// Reads exactly 26 characters.
pub(crate) fn parse_u128(text: &str) -> Result<u128, DecodeError> {
    if text.len() != U128_LEN {
        return Err(DecodeError::Length);
    }
    let mut value: u128 = 0;
    for (place, byte) in text.bytes().enumerate() {
        let digit = digit(byte).ok_or(DecodeError::Character)?;
        if place == 0 && digit > 7 {
            return Err(DecodeError::Overflow);
        }
        value = (value << 5) | u128::from(digit);
    }
    Ok(value)
}

/// The value of one character; `None` when it is not of the alphabet.
pub(crate) fn digit(byte: u8) -> Option<u8> {
    let value = VALUES.get(usize::from(byte)).copied();
    value.filter(|&value| value != NONE)
}

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "worked out while compiling, which fails where it is out of bounds; 32 values fit"
)]
const fn values() -> [u8; 256] {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_range_have_these_texts() {
        let mut text = String::new();
        push_u128(&mut text, 0);
        assert_eq!(text, "00000000000000000000000000");
        text.clear();
        push_u128(&mut text, u128::MAX);
        assert_eq!(text, "7zzzzzzzzzzzzzzzzzzzzzzzzz");
    }

    #[test]
    fn a_number_over_128_bits_is_refused() {
        assert_eq!(
            parse_u128("80000000000000000000000000"),
            Err(DecodeError::Overflow)
        );
    }

    #[test]
    fn look_alikes_and_upper_case_are_refused() {
        for letter in ["i", "l", "o", "u", "A", "Z", "-", " ", "é"] {
            let text = format!("0{}{letter}", "0".repeat(25 - letter.len()));
            assert_eq!(parse_u128(&text), Err(DecodeError::Character), "{letter}");
        }
    }
}

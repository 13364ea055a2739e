//! API keys: how one is spelled, checked and hashed.
//!
//! Text: `ph_live_` or `ph_test_`, then 52 characters of lower-case Crockford base32 for 256 random bits,
//! then 7 for the CRC-32 (IEEE 802.3) of everything before them. The checksum tells a mistyped or cut key
//! from an unknown one without a look-up, and lets secret scanners be sure. Only SHA-256 of the whole text
//! is kept (INV-10): 256 random bits need no slow hash.

use core::fmt;

use aws_lc_rs::digest;
use secrecy::SecretString;
use secrecy::zeroize::Zeroize;

use crate::crockford;
use crate::word::words;

words! {
    /// What a tenant is for.
    "environment" Environment {
        /// Real customers.
        Live = "live",
        /// Trying things out.
        Test = "test",
    }
}

/// Characters that hold 256 bits.
const BODY_LEN: usize = 52;
/// Characters that hold 32 bits.
const CHECKSUM_LEN: usize = 7;
/// Characters of the random part that are shown to tell keys apart: 20 bits of 256.
const SHOWN_LEN: usize = 4;

/// Why a text is not an API key. The text is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It does not begin with `ph_live_` or `ph_test_`.
    #[error("an API key begins with ph_live_ or ph_test_")]
    Prefix,
    /// It is cut, has a foreign character, or its checksum does not fit.
    #[error("the API key is mistyped or cut")]
    Checksum,
}

/// SHA-256 of an API key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The 32 bytes, as the database keeps them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// Makes a key of 256 random bits. It is shown once and kept nowhere.
#[must_use]
pub fn mint(environment: Environment, mut random: [u8; 32]) -> SecretString {
    let mut text = String::with_capacity(prefix(environment).len() + BODY_LEN + CHECKSUM_LEN);
    text.push_str(prefix(environment));
    push_body(&mut text, &random);
    let checksum = crc32(text.as_bytes());
    crockford::push_bits(&mut text, u128::from(checksum), CHECKSUM_LEN);
    random.zeroize();
    text.into()
}

/// Checks the spelling of a key and gives its hash for the look-up.
///
/// # Errors
///
/// [`KeyError`]: it is no key of ours, whoever is asked.
pub fn check(text: &str) -> Result<KeyHash, KeyError> {
    let environment = environment(text).ok_or(KeyError::Prefix)?;
    let body_end = prefix(environment).len() + BODY_LEN;
    let (signed, checksum) = text.split_at_checked(body_end).ok_or(KeyError::Checksum)?;
    let random = signed
        .strip_prefix(prefix(environment))
        .ok_or(KeyError::Prefix)?;
    if !random.bytes().all(|b| crockford::digit(b).is_some()) {
        return Err(KeyError::Checksum);
    }
    let mut wanted = String::with_capacity(CHECKSUM_LEN);
    crockford::push_bits(
        &mut wanted,
        u128::from(crc32(signed.as_bytes())),
        CHECKSUM_LEN,
    );
    if wanted == checksum {
        Ok(KeyHash(hash(text)))
    } else {
        Err(KeyError::Checksum)
    }
}

/// SHA-256 of the whole text.
#[must_use]
pub fn hash(text: &str) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().try_into().unwrap_or_default()
}

/// The environment that a key says it is of.
#[must_use]
pub fn environment(text: &str) -> Option<Environment> {
    Environment::ALL
        .iter()
        .copied()
        .find(|&environment| text.starts_with(prefix(environment)))
}

/// The beginning of a key that may be shown to tell keys apart, such as `ph_live_3k9q`.
#[must_use]
pub fn display_prefix(text: &str) -> String {
    let shown = environment(text).map_or(0, |environment| prefix(environment).len() + SHOWN_LEN);
    text.chars().take(shown).collect()
}

const fn prefix(environment: Environment) -> &'static str {
    match environment {
        Environment::Live => "ph_live_",
        Environment::Test => "ph_test_",
    }
}

/// 256 bits as 52 characters: the first 128 bits as 26, then the others.
fn push_body(out: &mut String, random: &[u8; 32]) {
    let (halves, _) = random.as_chunks::<16>();
    for half in halves {
        crockford::push_u128(out, u128::from_be_bytes(*half));
    }
}

/// CRC-32 of IEEE 802.3: reflected, polynomial `0xedb88320`. By the byte, for every request's key is checked.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        let [low, ..] = crc.to_le_bytes();
        let step = CRC32_STEPS.get(usize::from(low ^ byte)).copied();
        (crc >> 8) ^ step.unwrap_or_default()
    })
}

/// What eight steps of the polynomial make of each byte.
const CRC32_STEPS: [u32; 256] = crc32_steps();

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "worked out while compiling, which fails where it is out of bounds; 256 bytes fit"
)]
const fn crc32_steps() -> [u32; 256] {
    let mut steps = [0; 256];
    let mut byte = 0;
    while byte < steps.len() {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        steps[byte] = crc;
        byte += 1;
    }
    steps
}

#[cfg(test)]
mod tests;

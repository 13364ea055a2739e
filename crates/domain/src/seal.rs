//! Sealing of secrets at rest: AES-256-GCM under a ring of master keys.
//!
//! The first key of the ring seals, every key opens what it sealed, so that a key is changed by putting a
//! new one in front. What a sealed text is for (tenant and object) is bound to it as associated data: a
//! row copied elsewhere does not open. Sealed bytes are the nonce (12), the ciphertext and the tag (16).
//! The nonce is random and given by the caller; one key should seal fewer than 2^32 texts.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::{Zeroize, Zeroizing};
use secrecy::{SecretSlice, SecretString};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;
const KEY_ID_CHARS: usize = 32;
const KEYS: usize = 16;

/// Why a text is not a key ring. No part of the text is kept but an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// There is no key.
    #[error("the key ring is empty")]
    Empty,
    /// Over 16 keys.
    #[error("a key ring has at most 16 keys")]
    TooMany,
    /// An entry without a colon.
    #[error("entry {0} of the key ring is not id:base64")]
    Entry(usize),
    /// An id that is not 1 to 32 of `A-Z a-z 0-9 _ -`.
    #[error("the id in entry {0} of the key ring is not 1 to 32 of A-Z a-z 0-9 _ -")]
    Id(usize),
    /// A key that is not 32 bytes in padded standard base64.
    #[error("master key {0} is not 32 bytes in base64")]
    Key(String),
    /// Two keys of one id.
    #[error("master key {0} is in the ring twice")]
    Twice(String),
}

/// Why a sealed text does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The ring has no key of this id.
    #[error("master key {0} is not in the ring")]
    UnknownKey(String),
    /// The bytes were changed, belong elsewhere, or were sealed by another key of the same id.
    #[error("the sealed text does not open with its master key")]
    Broken,
    /// The cryptographic library refused to seal.
    #[error("the text could not be sealed")]
    Seal,
}

/// A sealed text and the id of the key that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The id of the master key.
    pub key_id: String,
    /// Nonce, ciphertext and tag.
    pub bytes: Vec<u8>,
}

/// The master keys. No `Debug`, no `Serialize`.
pub struct KeyRing {
    current: MasterKey,
    older: Vec<MasterKey>,
}

struct MasterKey {
    id: String,
    key: LessSafeKey,
}

impl KeyRing {
    /// Reads `id:base64,…`; the first key seals. White space around an entry is ignored, so that a file may
    /// end in a newline.
    ///
    /// # Errors
    ///
    /// [`KeyRingError`] names the entry and the rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<MasterKey> = Vec::new();
        if text.trim().is_empty() {
            return Err(KeyRingError::Empty);
        }
        for (place, entry) in text.split(',').enumerate() {
            if place == KEYS {
                return Err(KeyRingError::TooMany);
            }
            let key = MasterKey::parse(place + 1, entry.trim())?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeyRingError::Twice(key.id));
            }
            keys.push(key);
        }
        let current = if keys.is_empty() {
            return Err(KeyRingError::Empty);
        } else {
            keys.remove(0)
        };
        Ok(Self {
            current,
            older: keys,
        })
    }

    /// The text of a new key for a ring, `id:base64`.
    ///
    /// # Errors
    ///
    /// [`KeyRingError::Id`] when the id is not one.
    pub fn generate(id: &str, mut random: [u8; 32]) -> Result<SecretString, KeyRingError> {
        if !is_key_id(id) {
            return Err(KeyRingError::Id(1));
        }
        let mut text = format!("{id}:");
        STANDARD.encode_string(random, &mut text);
        random.zeroize();
        Ok(text.into())
    }

    /// The id of the key that seals.
    #[must_use]
    pub fn current_id(&self) -> &str {
        &self.current.id
    }

    /// The ids of all keys, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys().map(|key| key.id.as_str())
    }

    /// Seals a text for what `aad` names. The nonce must be random and new.
    ///
    /// # Errors
    ///
    /// [`SealError::Seal`] when the text is longer than the cipher allows (64 GiB).
    pub fn seal(
        &self,
        plain: &[u8],
        aad: &[u8],
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Sealed, SealError> {
        let mut body = Zeroizing::new(plain.to_vec());
        let tag = self
            .current
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(aad),
                body.as_mut_slice(),
            )
            .map_err(|_| SealError::Seal)?;
        let mut bytes = Vec::with_capacity(NONCE_BYTES + body.len() + tag.as_ref().len());
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&body);
        bytes.extend_from_slice(tag.as_ref());
        Ok(Sealed {
            key_id: self.current.id.clone(),
            bytes,
        })
    }

    /// Opens a sealed text that was sealed for what `aad` names.
    ///
    /// # Errors
    ///
    /// [`SealError::UnknownKey`] or [`SealError::Broken`]; nothing of the text is given then.
    pub fn open(
        &self,
        key_id: &str,
        bytes: &[u8],
        aad: &[u8],
    ) -> Result<SecretSlice<u8>, SealError> {
        let master = self.keys().find(|key| key.id == key_id);
        let master = master.ok_or_else(|| SealError::UnknownKey(key_id.to_owned()))?;
        let (nonce, rest) = bytes
            .split_first_chunk::<NONCE_BYTES>()
            .ok_or(SealError::Broken)?;
        let mut body = Zeroizing::new(rest.to_vec());
        let plain = master
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(aad),
                body.as_mut_slice(),
            )
            .map_err(|_| SealError::Broken)?;
        Ok(plain.to_vec().into())
    }

    fn keys(&self) -> impl Iterator<Item = &MasterKey> {
        core::iter::once(&self.current).chain(&self.older)
    }
}

impl MasterKey {
    fn parse(place: usize, entry: &str) -> Result<Self, KeyRingError> {
        let (id, key) = entry.split_once(':').ok_or(KeyRingError::Entry(place))?;
        if !is_key_id(id) {
            return Err(KeyRingError::Id(place));
        }
        let wrong = || KeyRingError::Key(id.to_owned());
        let bytes = STANDARD
            .decode(key)
            .map(Zeroizing::new)
            .map_err(|_| wrong())?;
        if bytes.len() != KEY_BYTES {
            return Err(wrong());
        }
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| wrong())?;
        Ok(Self {
            id: id.to_owned(),
            key: LessSafeKey::new(key),
        })
    }
}

fn is_key_id(id: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    (1..=KEY_ID_CHARS).contains(&id.len()) && id.bytes().all(known)
}

#[cfg(test)]
mod tests;

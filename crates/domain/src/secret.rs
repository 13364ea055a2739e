//! Signing secrets of Standard Webhooks: `whsec_` for HMAC-SHA256, `whsk_` and `whpk_` for ed25519.
//!
//! A secret is taken in its canonical form only (prefix, then padded standard base64), so that nothing
//! that was accepted fails when it is used. A secret has no `Debug` and no `Serialize`; its bytes are
//! wiped when it is dropped.
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretBox, SecretSlice, SecretString};

use crate::endpoint::SigningScheme;

/// Bytes of a `whsec_` secret: at least as many as give 192 bits, at most one block of SHA-256.
pub const V1_BYTES: core::ops::RangeInclusive<usize> = 24..=64;

const V1_PREFIX: &str = "whsec_";
const V1A_PREFIX: &str = "whsk_";
const PUBLIC_PREFIX: &str = "whpk_";

/// Why a text is not a signing secret. The text is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It begins with neither `whsec_` nor `whsk_`.
    #[error("a signing secret begins with whsec_ or whsk_")]
    Prefix,
    /// It is a public key.
    #[error("whpk_ is a public key; a signing secret begins with whsec_ or whsk_")]
    PublicKey,
    /// What follows the prefix is not padded standard base64.
    #[error("after its prefix a signing secret is standard base64 with padding, and nothing else")]
    Base64,
    /// A `whsec_` secret of another length.
    #[error("a whsec_ secret holds 24 to 64 bytes")]
    V1Length,
    /// A `whsk_` secret of another length.
    #[error("a whsk_ secret holds 64 bytes: the seed, then the public key")]
    V1aLength,
    /// The two halves of a `whsk_` secret do not belong together.
    #[error("the public key in the whsk_ secret is not that of its seed")]
    V1aMismatch,
}

/// A secret that signs the attempts of one endpoint.
pub enum SigningSecret {
    /// A shared secret.
    V1(V1Secret),
    /// A key pair.
    V1a(V1aSecret),
}

/// A shared secret for HMAC-SHA256. Only its bytes are kept: a key that is ready for use takes 1.2 kB, too
/// much for each of a million endpoints, and half a microsecond to make. Made by [`SigningSecret::parse`] and [`SigningSecret::generate_v1`].
pub struct V1Secret {
    bytes: SecretSlice<u8>,
}

impl V1Secret {
    /// The key to sign with, made anew for each use.
    pub(crate) fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.bytes.expose_secret())
    }
}

/// An ed25519 key pair. Made by [`SigningSecret::parse`] and [`SigningSecret::generate_v1a`].
pub struct V1aSecret {
    seed: SecretBox<[u8; 32]>,
    public: [u8; 32],
    pub(crate) pair: Ed25519KeyPair,
}

impl SigningSecret {
    /// Takes the canonical text of a secret.
    ///
    /// # Errors
    ///
    /// [`SecretError`] names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        if let Some(rest) = text.strip_prefix(V1_PREFIX) {
            let bytes = decode(rest)?;
            if V1_BYTES.contains(&bytes.len()) {
                Ok(Self::v1(&bytes))
            } else {
                Err(SecretError::V1Length)
            }
        } else if let Some(rest) = text.strip_prefix(V1A_PREFIX) {
            let bytes = decode(rest)?;
            let (seed, public) = bytes.split_at_checked(32).ok_or(SecretError::V1aLength)?;
            let public: [u8; 32] = public.try_into().map_err(|_| SecretError::V1aLength)?;
            let pair = Ed25519KeyPair::from_seed_and_public_key(seed, &public)
                .map_err(|_| SecretError::V1aMismatch)?;
            let seed: [u8; 32] = seed.try_into().map_err(|_| SecretError::V1aLength)?;
            Ok(Self::V1a(V1aSecret {
                seed: SecretBox::new(Box::new(seed)),
                public,
                pair,
            }))
        } else if text.starts_with(PUBLIC_PREFIX) {
            Err(SecretError::PublicKey)
        } else {
            Err(SecretError::Prefix)
        }
    }

    /// Makes a shared secret of 32 random bytes.
    #[must_use]
    pub fn generate_v1(random: [u8; 32]) -> Self {
        Self::v1(&random)
    }

    /// Makes a key pair of 32 random bytes.
    ///
    /// # Errors
    ///
    /// [`SecretError::V1aMismatch`] when the cryptographic library refuses the seed; it refuses none.
    pub fn generate_v1a(seed: [u8; 32]) -> Result<Self, SecretError> {
        let pair =
            Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| SecretError::V1aMismatch)?;
        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(|_| SecretError::V1aMismatch)?;
        Ok(Self::V1a(V1aSecret {
            seed: SecretBox::new(Box::new(seed)),
            public,
            pair,
        }))
    }

    /// The canonical text, `whsec_…` or `whsk_…`: to be sealed, or shown to who may see it.
    #[must_use]
    pub fn expose(&self) -> SecretString {
        match self {
            Self::V1(secret) => encode(V1_PREFIX, secret.bytes.expose_secret()),
            Self::V1a(secret) => {
                let mut both = Zeroizing::new([0_u8; 64]);
                let (seed, public) = both.split_at_mut(32);
                seed.copy_from_slice(secret.seed.expose_secret());
                public.copy_from_slice(&secret.public);
                encode(V1A_PREFIX, both.as_slice())
            }
        }
    }

    /// The text of the public key, `whpk_…`; `None` for a shared secret.
    #[must_use]
    pub fn public_key(&self) -> Option<String> {
        match self {
            Self::V1(_) => None,
            Self::V1a(secret) => Some(format!("{PUBLIC_PREFIX}{}", STANDARD.encode(secret.public))),
        }
    }

    /// The scheme that it signs with.
    #[must_use]
    pub const fn scheme(&self) -> SigningScheme {
        match self {
            Self::V1(_) => SigningScheme::V1,
            Self::V1a(_) => SigningScheme::V1a,
        }
    }

    /// `v1` or `v1a`, as in the signature and in the database.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        self.scheme().as_str()
    }

    fn v1(bytes: &[u8]) -> Self {
        Self::V1(V1Secret {
            bytes: bytes.to_vec().into(),
        })
    }

    pub(crate) const fn public_bytes(&self) -> Option<[u8; 32]> {
        match self {
            Self::V1(_) => None,
            Self::V1a(secret) => Some(secret.public),
        }
    }
}

/// Reads the text of a public key, `whpk_…`.
pub(crate) fn parse_public(text: &str) -> Result<[u8; 32], SecretError> {
    let rest = text
        .strip_prefix(PUBLIC_PREFIX)
        .ok_or(SecretError::Prefix)?;
    let bytes = decode(rest)?;
    bytes
        .as_slice()
        .try_into()
        .map_err(|_| SecretError::V1aLength)
}

fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    // Longer than any secret: refused before it is decoded.
    if text.len() > 4 * V1_BYTES.end() {
        return Err(SecretError::Base64);
    }
    STANDARD
        .decode(text)
        .map(Zeroizing::new)
        .map_err(|_| SecretError::Base64)
}

fn encode(prefix: &str, bytes: &[u8]) -> SecretString {
    let mut text = String::with_capacity(prefix.len() + bytes.len().div_ceil(3) * 4);
    text.push_str(prefix);
    STANDARD.encode_string(bytes, &mut text);
    text.into()
}

#[cfg(test)]
mod tests;

//! Signatures of Standard Webhooks 1.0: of `{webhook-id}.{webhook-timestamp}.{body}`, the bytes as sent.
//!
//! `v1` is HMAC-SHA256 with the *decoded* secret, `v1a` ed25519; both in standard base64 after the scheme
//! and a comma. A header may hold several, one space between, so that a secret can be changed without a
//! gap (INV-4: made when an attempt is sent, with the secrets in force then).

use aws_lc_rs::{constant_time, hmac, signature as asymmetric};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::limits;
use crate::secret::{SecretError, SigningSecret, parse_public};

/// One signature, such as `v1,tZ1I4/hDyg…`. `timestamp` is in Unix seconds.
#[must_use]
pub fn sign(secret: &SigningSecret, id: &str, timestamp: i64, body: &[u8]) -> String {
    match secret {
        SigningSecret::V1(secret) => {
            format!(
                "v1,{}",
                STANDARD.encode(mac(&secret.key(), id, timestamp, body))
            )
        }
        SigningSecret::V1a(secret) => {
            let signature = secret.pair.sign(&signed_content(id, timestamp, body));
            format!("v1a,{}", STANDARD.encode(signature))
        }
    }
}

/// The value of `webhook-signature`: a signature for each secret in the order given, one space between.
#[must_use]
pub fn signature_header(
    secrets: &[&SigningSecret],
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let signatures: Vec<_> = secrets
        .iter()
        .map(|secret| sign(secret, id, timestamp, body))
        .collect();
    signatures.join(" ")
}

/// What a receiver verifies with.
#[derive(Clone)]
pub enum VerifyingKey {
    /// A shared secret.
    V1(Box<hmac::Key>),
    /// A public key.
    V1a([u8; 32]),
}

impl VerifyingKey {
    /// Takes `whsec_…`, `whpk_…`, or `whsk_…` for its public half.
    ///
    /// # Errors
    ///
    /// [`SecretError`] names the rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        match parse_public(text) {
            Err(SecretError::Prefix) => {
                SigningSecret::parse(text).map(|secret| Self::from(&secret))
            }
            other => other.map(Self::V1a),
        }
    }
}

impl From<&SigningSecret> for VerifyingKey {
    fn from(secret: &SigningSecret) -> Self {
        match (secret, secret.public_bytes()) {
            (SigningSecret::V1(secret), _) => Self::V1(Box::new(secret.key())),
            (SigningSecret::V1a(_), public) => Self::V1a(public.unwrap_or_default()),
        }
    }
}

/// True when the header holds a signature that one of the keys made of this id, timestamp and body.
///
/// A signature is compared whole and in constant time. A header over 8 KiB or 32 signatures is refused
/// unread. Whether the timestamp is near enough is for the caller to say.
#[must_use]
pub fn verify(header: &str, keys: &[VerifyingKey], id: &str, timestamp: i64, body: &[u8]) -> bool {
    if header.len() > limits::SIGNATURE_HEADER_BYTES
        || header.split(' ').count() > limits::SIGNATURES
    {
        return false;
    }
    let content = signed_content(id, timestamp, body);
    header
        .split(' ')
        .filter_map(parse_signature)
        .any(|(scheme, signature)| {
            keys.iter().any(|key| match key {
                VerifyingKey::V1(key) => scheme == "v1" && is_mac(key, &content, &signature),
                VerifyingKey::V1a(public) => {
                    scheme == "v1a" && is_signed(*public, &content, &signature)
                }
            })
        })
}

fn parse_signature(text: &str) -> Option<(&str, Vec<u8>)> {
    let (scheme, signature) = text.split_once(',')?;
    Some((scheme, STANDARD.decode(signature).ok()?))
}

fn is_mac(key: &hmac::Key, content: &[u8], signature: &[u8]) -> bool {
    let wanted = hmac::sign(key, content);
    constant_time::verify_slices_are_equal(wanted.as_ref(), signature).is_ok()
}

fn is_signed(public: [u8; 32], content: &[u8], signature: &[u8]) -> bool {
    asymmetric::UnparsedPublicKey::new(&asymmetric::ED25519, public)
        .verify(content, signature)
        .is_ok()
}

/// HMAC without a copy of the body.
fn mac(key: &hmac::Key, id: &str, timestamp: i64, body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(head(id, timestamp).as_bytes());
    context.update(body);
    context.sign()
}

fn signed_content(id: &str, timestamp: i64, body: &[u8]) -> Vec<u8> {
    let mut content = head(id, timestamp).into_bytes();
    content.extend_from_slice(body);
    content
}

fn head(id: &str, timestamp: i64) -> String {
    format!("{id}.{timestamp}.")
}

#[cfg(test)]
mod tests;

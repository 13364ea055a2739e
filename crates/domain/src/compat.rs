//! Signatures in the form of others, beside those of Standard Webhooks: a receiver that verifies what another sender signed
//! need not change when its sender moves here.
//!
//! | kind | header | value |
//! | --- | --- | --- |
//! | `github` | `x-hub-signature-256` | `sha256=` and HMAC-SHA256 of the body |
//! | `stripe` | `stripe-signature` | `t=` and the timestamp, `,v1=` and HMAC-SHA256 of the timestamp, a dot and the body |
//! | `hmac_sha256` | the tenant's choice | HMAC-SHA256 of the body |
//!
//! Each in lower-case hexadecimal, the timestamp in Unix seconds. Such a secret is used as it stands, whatever it looks like:
//! of Stripe's, too, `whsec_` is a part.
//! <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>,
//! <https://docs.stripe.com/webhooks#verify-manually>

use core::fmt::Write as _;

use aws_lc_rs::hmac;
use secrecy::{ExposeSecret as _, SecretString};

use crate::header::{HeaderError, header_name};
use crate::limits;
use crate::word::words;

words! {
    /// Whose form a signature has.
    "kind of compatibility" CompatKind {
        /// GitHub's.
        Github = "github",
        /// Stripe's.
        Stripe = "stripe",
        /// The bare HMAC-SHA256.
        HmacSha256 = "hmac_sha256",
    }
}

impl CompatKind {
    /// The header that the other uses, where there is one.
    const fn own_header(self) -> Option<&'static str> {
        match self {
            Self::Github => Some("x-hub-signature-256"),
            Self::Stripe => Some("stripe-signature"),
            Self::HmacSha256 => None,
        }
    }
}

/// What is wrong with a form of others, or its secret. The secret is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompatError {
    /// It is not said whose form.
    #[error("say which kind of signature: github, stripe or hmac_sha256")]
    KindMissing,
    /// There is no secret yet.
    #[error("such a signature has a secret of its own")]
    SecretMissing,
    /// Nobody's form names its header.
    #[error("a signature of the kind hmac_sha256 needs a header")]
    HeaderMissing,
    /// The header cannot be used.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The secret cannot be used.
    #[error("such a secret has 16 to 256 printable ASCII characters, and is used as it stands")]
    Secret,
}

/// A secret that is used as it stands. No `Debug`, no `Serialize`.
#[derive(Clone)]
pub struct CompatSecret(SecretString);

impl CompatSecret {
    /// Takes 16 to 256 printable ASCII characters, the space among them.
    ///
    /// # Errors
    ///
    /// [`CompatError::Secret`] when it is none.
    pub fn parse(text: &str) -> Result<Self, CompatError> {
        let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if printable && limits::COMPAT_SECRET_CHARS.contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(CompatError::Secret)
        }
    }

    /// The text: to be sealed, or shown to who may see it.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Whose form, and in which header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatForm {
    kind: CompatKind,
    header: Option<String>,
}

impl CompatForm {
    /// A form of this kind, in the header that is given or else the other's own. A name is kept in lower case.
    ///
    /// # Errors
    ///
    /// [`CompatError::HeaderMissing`] or [`CompatError::Header`].
    pub fn new(kind: CompatKind, header: Option<&str>) -> Result<Self, CompatError> {
        let header = header.map(header_name).transpose()?;
        if header.is_none() && kind.own_header().is_none() {
            return Err(CompatError::HeaderMissing);
        }
        Ok(Self { kind, header })
    }

    /// Whose.
    #[must_use]
    pub const fn kind(&self) -> CompatKind {
        self.kind
    }

    /// The header, in lower case.
    #[must_use]
    pub fn header(&self) -> &str {
        self.header
            .as_deref()
            .or(self.kind.own_header())
            .unwrap_or_default()
    }

    /// The header, where one was given.
    #[must_use]
    pub fn given_header(&self) -> Option<&str> {
        self.header.as_deref()
    }
}

/// A form with its secret: what signs.
#[derive(Clone)]
pub struct Compat {
    /// Whose form.
    pub form: CompatForm,
    /// What it signs with.
    pub secret: CompatSecret,
}

impl Compat {
    /// The value of the header. `timestamp` is in Unix seconds.
    #[must_use]
    pub fn sign(&self, timestamp: i64, body: &[u8]) -> String {
        match self.form.kind {
            CompatKind::Github => format!("sha256={}", self.mac(&[body])),
            CompatKind::Stripe => {
                let head = format!("{timestamp}.");
                let mac = self.mac(&[head.as_bytes(), body]);
                format!("t={timestamp},v1={mac}")
            }
            CompatKind::HmacSha256 => self.mac(&[body]),
        }
    }

    /// HMAC-SHA256 of the parts one after the other, in hexadecimal.
    fn mac(&self, parts: &[&[u8]]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.expose().as_bytes());
        let mut context = hmac::Context::with_key(&key);
        for part in parts {
            context.update(part);
        }
        let mut text = String::with_capacity(64);
        for byte in context.sign().as_ref() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests;

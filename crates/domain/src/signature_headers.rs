//! The headers that signatures stand in: an endpoint's own headers may have none of their names.

use crate::compat::{CompatError, CompatForm};
use crate::header::{HeaderError, HeaderFault, HeadersError, alike};
use crate::limits;

/// Why a text is no prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a prefix has 1 to 32 of a-z 0-9 -, begins with a letter, ends with a letter or digit, and does not begin with posthorn"
)]
pub struct HeaderPrefixError;

/// What the names of the signature's headers begin with: `webhook`, as Standard Webhooks says, or what a receiver knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderPrefix(String);

const STANDARD: &str = "webhook";

impl Default for HeaderPrefix {
    fn default() -> Self {
        Self(STANDARD.to_owned())
    }
}

impl HeaderPrefix {
    /// Takes a prefix, without the `-` that follows it. It is kept in lower case.
    ///
    /// # Errors
    ///
    /// [`HeaderPrefixError`] when it is none.
    pub fn parse(text: &str) -> Result<Self, HeaderPrefixError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let fits = (1..=limits::HEADER_PREFIX_CHARS).contains(&text.len())
            && text.bytes().all(known)
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && !text.ends_with('-');
        let text = text.to_ascii_lowercase();
        if fits && !text.starts_with("posthorn") {
            Ok(Self(text))
        } else {
            Err(HeaderPrefixError)
        }
    }

    /// The prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is that of Standard Webhooks.
    #[must_use]
    pub fn is_standard(&self) -> bool {
        self.0 == STANDARD
    }
}

/// The names that an endpoint's signatures take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureHeaders {
    /// The event's id.
    pub id: String,
    /// When the attempt was made.
    pub timestamp: String,
    /// The signatures of Standard Webhooks.
    pub signature: String,
    compat: Option<String>,
}

impl SignatureHeaders {
    /// The names under a prefix, and that of a form of others.
    ///
    /// # Errors
    ///
    /// [`CompatError::Header`] where the two would share a header.
    pub fn new(prefix: &HeaderPrefix, compat: Option<&CompatForm>) -> Result<Self, CompatError> {
        let name = |what: &str| format!("{}-{what}", prefix.as_str());
        let standard = Self {
            id: name("id"),
            timestamp: name("timestamp"),
            signature: name("signature"),
            compat: None,
        };
        let header = compat.map(CompatForm::header);
        if let Some(header) = header.filter(|header| standard.take(header)) {
            return Err(HeaderError::Reserved(header.to_owned()).into());
        }
        Ok(Self {
            compat: header.map(str::to_owned),
            ..standard
        })
    }

    /// Whether a signature stands in the header of this name, or in one that a receiver may take for it.
    #[must_use]
    pub fn take(&self, name: &str) -> bool {
        [&self.id, &self.timestamp, &self.signature]
            .into_iter()
            .chain(&self.compat)
            .any(|own| alike(own, name))
    }

    /// Nothing, where none of the names is taken.
    ///
    /// # Errors
    ///
    /// [`HeaderError::Reserved`] for each that is.
    pub fn leave_free<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), HeadersError> {
        let taken = names.into_iter().filter(|name| self.take(name));
        let faults = taken.map(|name| HeaderFault {
            name: Some(name.to_owned()),
            error: HeaderError::Reserved(name.to_ascii_lowercase()),
        });
        HeadersError::of(faults.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::CompatKind;

    fn under(prefix: &str) -> SignatureHeaders {
        SignatureHeaders::new(&HeaderPrefix::parse(prefix).unwrap(), None).unwrap()
    }

    #[test]
    fn a_prefix_is_kept_in_lower_case_and_names_three_headers() {
        let names = under("X-Acme");
        assert_eq!(
            [names.id, names.timestamp, names.signature],
            ["x-acme-id", "x-acme-timestamp", "x-acme-signature"]
        );
    }

    #[test]
    fn what_is_no_prefix_is_refused() {
        let long = "a".repeat(33);
        for text in [
            "",
            "-a",
            "a-",
            "1a",
            "a_b",
            "a b",
            "a:",
            "\u{e9}",
            "Posthorn",
            "posthorn-x",
            &long,
        ] {
            assert!(HeaderPrefix::parse(text).is_err(), "{text:?}");
        }
        for text in ["webhook", "svix", "x", "a1-b2"] {
            assert!(HeaderPrefix::parse(text).is_ok(), "{text:?}");
        }
        assert!(HeaderPrefix::parse("Webhook").unwrap().is_standard());
    }

    #[test]
    fn names_that_signatures_take_are_not_free_in_any_spelling() {
        let form = CompatForm::new(CompatKind::Stripe, None).unwrap();
        let prefix = HeaderPrefix::parse("svix").unwrap();
        let names = SignatureHeaders::new(&prefix, Some(&form)).unwrap();
        for name in [
            "svix-id",
            "Svix_Signature",
            "SVIX-TIMESTAMP",
            "stripe_signature",
        ] {
            assert!(names.leave_free([name]).is_err(), "{name}");
        }
        assert_eq!(names.leave_free(["svix-trace", "x-signature"]), Ok(()));
    }

    #[test]
    fn a_form_of_others_has_a_header_of_its_own() {
        let form = CompatForm::new(CompatKind::Github, Some("svix_signature")).unwrap();
        let prefix = HeaderPrefix::parse("svix").unwrap();
        assert!(SignatureHeaders::new(&prefix, Some(&form)).is_err());
        assert!(SignatureHeaders::new(&HeaderPrefix::default(), Some(&form)).is_ok());
    }
}

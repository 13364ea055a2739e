//! How an endpoint's requests are signed: the fields of `signing`, and the secret, checked. Create and change share every rule.

use std::fmt;

use posthorn_domain::compat::{Compat, CompatError, CompatKind, CompatSecret};
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature_headers::{HeaderPrefix, SignatureHeaders};
use posthorn_store::configure::{CompatChanges, Patch};
use serde::Deserialize;
use utoipa::ToSchema;

use super::rotate_secret::SchemeWord;
use crate::failure::{compat_problem, header_faults};
use crate::faults::Faults;
use crate::openapi::words::described_words;
use crate::problem::Problem;
use crate::wire::{Change, Object, present};

/// How requests are to be signed. What is absent stays, or is the default.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SigningRequest {
    /// `v1`: HMAC-SHA256. `v1a`: ed25519. One or both.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Vec<SchemeWord>>, nullable = false, min_items = 1, max_items = 2, example = json!(["v1"]))]
    schemes: Option<Vec<SigningScheme>>,
    /// What the names of the headers begin with: `PREFIX-id`, `PREFIX-timestamp` and `PREFIX-signature`. 1 to 32 of `a-z 0-9 -`.
    /// Default (null): `webhook`.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 32, example = "webhook")]
    header_prefix: Change<String>,
    /// A further signature in the form of another sender, for receivers that verify that one. Null, the default: none.
    #[serde(default)]
    #[schema(value_type = Option<CompatRequest>)]
    compat: Change<Object<CompatRequest>>,
}

/// A further signature in the form of another sender. Where there is none yet, `kind` and `secret` are required; in a
/// change of one what is absent stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CompatRequest)]
pub(super) struct CompatRequest {
    /// Whose form: `github`, `stripe`, or `hmac_sha256`, the bare HMAC of the body in hexadecimal.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<CompatWord>, nullable = false)]
    kind: Option<CompatKind>,
    /// The header that it stands in. Default (null): the other's own, `x-hub-signature-256` or `stripe-signature`. `hmac_sha256` has none,
    /// and needs one.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "x-hub-signature-256")]
    header: Change<String>,
    /// Its secret: 16 to 256 printable ASCII characters, used as they stand.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, min_length = 16, max_length = 256)]
    secret: Option<String>,
}

impl fmt::Debug for CompatRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompatRequest").finish_non_exhaustive()
    }
}

described_words! {
    /// Whose form a signature has.
    CompatWord as "CompatKind" {
        /// GitHub's: `sha256=` and the HMAC-SHA256 of the body in hexadecimal.
        "github",
        /// Stripe's: `t=` and the time, `v1=` and the HMAC-SHA256 of time and body in hexadecimal.
        "stripe",
        /// The bare HMAC-SHA256 of the body in hexadecimal, in a header that you name.
        "hmac_sha256",
    }
}

/// What becomes of how requests are signed.
#[derive(Default)]
pub(super) struct SigningChanges {
    pub(super) schemes: Option<Vec<SigningScheme>>,
    pub(super) header_prefix: Option<HeaderPrefix>,
    pub(super) compat: Patch<CompatChanges>,
}

impl SigningChanges {
    /// Back to the default.
    pub(super) fn cleared() -> Self {
        Self {
            schemes: Some(vec![SigningScheme::V1]),
            header_prefix: Some(HeaderPrefix::default()),
            compat: Patch::Clear,
        }
    }
}

/// How requests are to be signed from now on.
pub(super) fn signing(request: SigningRequest, faults: &mut Faults) -> SigningChanges {
    let header_prefix = match request.header_prefix {
        Change::Absent => None,
        Change::Null => Some(HeaderPrefix::default()),
        Change::Value(text) => faults.keep(
            "/signing/header_prefix",
            Problem::FieldInvalid,
            HeaderPrefix::parse(&text),
        ),
    };
    SigningChanges {
        schemes: request.schemes.map(|schemes| in_order(schemes, faults)),
        header_prefix,
        compat: match request.compat {
            Change::Absent => Patch::Keep,
            Change::Null => Patch::Clear,
            Change::Value(Object(compat)) => compat.changes(faults).map_or(Patch::Keep, Patch::Set),
        },
    }
}

fn in_order(mut schemes: Vec<SigningScheme>, faults: &mut Faults) -> Vec<SigningScheme> {
    let given = schemes.len();
    schemes.sort_unstable();
    schemes.dedup();
    if schemes.is_empty() || schemes.len() != given {
        faults.add(
            "/signing/schemes",
            Problem::FieldInvalid,
            "v1, v1a, or both, each once",
        );
    }
    schemes
}

impl CompatRequest {
    /// The change. Whether it is whole is seen where it is merged.
    fn changes(self, faults: &mut Faults) -> Option<CompatChanges> {
        let secret = match self.secret {
            None => None,
            Some(text) => Some(keep_compat(CompatSecret::parse(&text), faults)?),
        };
        Some(CompatChanges {
            kind: self.kind,
            header: match self.header {
                Change::Absent => Patch::Keep,
                Change::Null => Patch::Clear,
                Change::Value(header) => Patch::Set(header),
            },
            secret,
        })
    }
}

/// How a new endpoint signs.
pub(super) struct Signs {
    pub(super) schemes: Vec<SigningScheme>,
    pub(super) header_prefix: HeaderPrefix,
    pub(super) compat: Option<Compat>,
    pub(super) secret: Option<SigningSecret>,
}

/// How a new endpoint signs, with a secret that was given.
pub(super) fn whole(
    request: Option<SigningRequest>,
    secret_text: Option<&str>,
    faults: &mut Faults,
) -> Signs {
    let changes = request.map(|request| signing(request, faults));
    let changes = changes.unwrap_or_default();
    let schemes = changes.schemes.unwrap_or_else(|| vec![SigningScheme::V1]);
    Signs {
        header_prefix: changes.header_prefix.unwrap_or_default(),
        compat: match &changes.compat {
            Patch::Set(changes) => compat(changes, faults),
            Patch::Keep | Patch::Clear => None,
        },
        secret: secret_text.and_then(|text| {
            // Which schemes are meant is not known where their field is faulty.
            let any = [SigningScheme::V1, SigningScheme::V1a];
            let suits = if faults.is_left_out("signing") {
                &any
            } else {
                schemes.as_slice()
            };
            secret(text, suits, faults)
        }),
        schemes,
    }
}

impl Signs {
    /// Finds fault with headers of the endpoint that have a name which its signatures take.
    pub(super) fn leave_free<'a>(
        &self,
        headers: impl IntoIterator<Item = &'a str>,
        faults: &mut Faults,
    ) {
        let form = self.compat.as_ref().map(|compat| &compat.form);
        let names = SignatureHeaders::new(&self.header_prefix, form);
        if let Some(names) = keep_compat(names, faults)
            && let Err(error) = names.leave_free(headers)
        {
            header_faults(&error).for_each(|fault| faults.note(fault));
        }
    }
}

/// The further signature of a new endpoint, whose other headers it must not meet.
fn compat(changes: &CompatChanges, faults: &mut Faults) -> Option<Compat> {
    let form = keep_compat(changes.merge(None), faults)?;
    let secret = changes.secret.clone()?;
    Some(Compat { form, secret })
}

fn keep_compat<T>(result: Result<T, CompatError>, faults: &mut Faults) -> Option<T> {
    result
        .map_err(|error| {
            let (pointer, problem) = compat_problem(&error);
            faults.add(pointer, problem, error.to_string());
        })
        .ok()
}

/// A secret that was given, for one of the schemes.
pub(super) fn secret(
    text: &str,
    schemes: &[SigningScheme],
    faults: &mut Faults,
) -> Option<SigningSecret> {
    let secret = faults.keep(
        "/secret",
        Problem::SecretInvalid,
        SigningSecret::parse(text),
    )?;
    if schemes
        .iter()
        .any(|scheme| scheme.as_str() == secret.kind())
    {
        return Some(secret);
    }
    let detail = format!(
        "the secret is for {}, which is not among the signing schemes",
        secret.kind()
    );
    faults.add("/secret", Problem::SecretInvalid, detail);
    None
}

#[cfg(test)]
mod tests;

//! POST /v1/endpoints/{id}/rotate-secret: a signing secret gives way to a new one.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::{HeaderName, HeaderValue};
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::limits;
use posthorn_domain::secret::SigningSecret;
use posthorn_store::configure::{self, ConfigureError, Rotated, Rotation};
use posthorn_store::read::EndpointRef;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::fields::within;
use super::secrets::NO_STORE;
use crate::authenticate::Caller;
use crate::body::JsonOrNothing;
use crate::faults::Faults;
use crate::openapi::words::described_words;
use crate::problem::{Failure, Problem};
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::{Id, Time, present};

/// How a secret is to be changed. What is absent has its default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"overlap_s": 3600}))]
pub(in crate::routes) struct RotateSecret {
    /// The new secret, as `whsec_…` or `whsk_…`. Default: one is generated.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    secret: Option<String>,
    /// Which scheme's secret: `v1` or `v1a`. Default: the one that the given secret is for, or the only one of the endpoint.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<SchemeWord>, nullable = false)]
    scheme: Option<SigningScheme>,
    /// How long the old secret signs beside the new one, in seconds. 0: it signs nothing any more. Default 86,400, a day.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false, minimum = 0, maximum = 604_800, default = 86_400)]
    overlap_s: Option<u32>,
}

described_words! {
    /// A scheme of Standard Webhooks.
    pub(super) SchemeWord as "SigningScheme" {
        /// HMAC-SHA256 with a shared secret.
        "v1",
        /// ed25519 with a key pair: receivers hold the public key alone.
        "v1a",
    }
}

/// The new secret and what signs beside it.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct RotatedSecret {
    /// What it signs with.
    #[schema(extensions(("x-known-values" = json!(["v1", "v1a"]))))]
    scheme: &'static str,
    /// The new shared secret of `v1`; null for `v1a`.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Option<String>,
    /// The public key of the new key pair of `v1a`; null for `v1`.
    public_key: Option<String>,
    /// Since when it signs.
    created_at: Time,
    /// Old secrets that still sign, newest first.
    old: Vec<OldSecret>,
}

/// An old secret that still signs, without its text.
#[derive(Debug, Serialize, ToSchema)]
struct OldSecret {
    /// What it signs with.
    #[schema(extensions(("x-known-values" = json!(["v1", "v1a"]))))]
    scheme: &'static str,
    /// Since when it signs.
    created_at: Time,
    /// From then on it signs no more.
    retires_at: Option<Time>,
}

/// Change the secret of an endpoint.
///
/// From the answer on, requests carry a signature of the new secret, and one of the old until its overlap is over: a receiver that
/// knows either verifies them. The new secret is shown in this answer; later
/// `GET /v1/endpoints/{id}/secrets` shows it to keys with the scope `endpoints:secrets`. At most 5 old secrets sign beside those in force.
#[utoipa::path(
    post,
    path = "/v1/endpoints/{id}/rotate-secret",
    operation_id = "rotate_endpoint_secret",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    request_body(content = Option<RotateSecret>, content_type = "application/json"),
    responses((status = 200, description = "The new secret.", body = RotatedSecret))
)]
pub(super) async fn rotate_endpoint_secret(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
    JsonOrNothing(request, faults): JsonOrNothing<RotateSecret>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<RotatedSecret>), Failure> {
    let pointer = request.scheme_pointer();
    let rotation = request.checked(faults)?;
    let sealer = state.sealer();
    let rotating =
        configure::rotate_secret(state.database(), caller.tenant(), &which, rotation, &sealer);
    let rotated = rotating.await.map_err(|error| match error {
        ConfigureError::SchemeUnused(_) => {
            Failure::field(pointer, Problem::SecretInvalid, error.to_string())
        }
        error => error.into(),
    })?;
    state.catch_up().await;
    Ok((NO_STORE, Json(rotated.into())))
}

impl RotateSecret {
    /// Where the caller said which scheme is meant.
    const fn scheme_pointer(&self) -> &'static str {
        if self.secret.is_some() {
            "/secret"
        } else {
            "/scheme"
        }
    }

    /// The change, or everything that is wrong with the request.
    fn checked(self, mut faults: Faults) -> Result<Rotation, Failure> {
        let secret = self.secret.and_then(|text| {
            faults.keep(
                "/secret",
                Problem::SecretInvalid,
                SigningSecret::parse(&text),
            )
        });
        if let (Some(secret), Some(scheme)) = (&secret, self.scheme)
            && secret.scheme() != scheme
        {
            let detail = format!("the secret is for {}, not for {scheme}", secret.kind());
            faults.add("/secret", Problem::SecretInvalid, detail);
        }
        let longest = limits::SECRET_OVERLAP_MAX.as_secs();
        let overlap = self
            .overlap_s
            .and_then(|seconds| within("/overlap_s", seconds, 0, longest, &mut faults))
            .map_or(limits::SECRET_OVERLAP_DEFAULT, |seconds| {
                Duration::from_secs(u64::from(seconds))
            });
        faults.finish()?;
        Ok(Rotation {
            secret,
            scheme: self.scheme,
            overlap,
        })
    }
}

impl From<Rotated> for RotatedSecret {
    fn from(rotated: Rotated) -> Self {
        let Rotated { new, old } = rotated;
        let public_key = new.secret.public_key();
        let old = old.iter().map(|old| OldSecret {
            scheme: old.secret.kind(),
            created_at: Time(old.created_at),
            retires_at: old.retires_at.map(Time),
        });
        Self {
            scheme: new.secret.kind(),
            secret: public_key
                .is_none()
                .then(|| new.secret.expose().expose_secret().to_owned()),
            public_key,
            created_at: Time(new.created_at),
            old: old.collect(),
        }
    }
}

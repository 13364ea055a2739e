//! GET /v1/endpoints/{id}/secrets: the secrets that sign for an endpoint.

use axum::Json;
use axum::extract::State;
use http::header::CACHE_CONTROL;
use http::{HeaderName, HeaderValue};
use posthorn_store::configure::{self, OpenedSecret};
use posthorn_store::read::EndpointRef;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

use crate::authenticate::Caller;
use crate::problem::Failure;
use crate::query::NoQuery;
use crate::state::ApiState;
use crate::wire::{Id, Time};

/// Secrets that sign for an endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EndpointSecrets {
    /// Newest first. One of each scheme is in force; the others are old and sign until they retire.
    data: Vec<EndpointSecret>,
    /// The signature in the form of another sender, and its secret.
    compat: Option<CompatSecret>,
}

/// A signature in the form of another sender, and its secret.
#[derive(Debug, Serialize, ToSchema)]
struct CompatSecret {
    /// Whose form.
    #[schema(extensions(("x-known-values" = json!(["github", "stripe", "hmac_sha256"]))))]
    kind: &'static str,
    /// The header that it stands in.
    header: String,
    /// The secret.
    secret: String,
}

/// A secret that signs for an endpoint.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::routes) struct EndpointSecret {
    /// What it signs with.
    #[schema(extensions(("x-known-values" = json!(["v1", "v1a"]))))]
    scheme: &'static str,
    /// The shared secret of `v1`. The private key of `v1a` is never read back.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Option<String>,
    /// The public key of `v1a`.
    public_key: Option<String>,
    /// Since when it signs.
    created_at: Time,
    /// From then on it signs no more; null: in force.
    retires_at: Option<Time>,
}

impl From<&OpenedSecret> for EndpointSecret {
    fn from(opened: &OpenedSecret) -> Self {
        let public_key = opened.secret.public_key();
        Self {
            scheme: opened.secret.kind(),
            secret: public_key
                .is_none()
                .then(|| opened.secret.expose().expose_secret().to_owned()),
            public_key,
            created_at: Time(opened.created_at),
            retires_at: opened.retires_at.map(Time),
        }
    }
}

/// What keeps an answer that holds a secret out of caches.
pub(super) const NO_STORE: [(HeaderName, HeaderValue); 1] =
    [(CACHE_CONTROL, HeaderValue::from_static("no-store"))];

/// Read the secrets of an endpoint.
///
/// Those that sign at this moment: what a receiver verifies with. Needs the scope `endpoints:secrets`.
#[utoipa::path(
    get,
    path = "/v1/endpoints/{id}/secrets",
    operation_id = "get_endpoint_secrets",
    tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id, or `uid:` and the tenant's own name for it.")),
    responses((status = 200, description = "The secrets.", body = EndpointSecrets))
)]
pub(super) async fn get_endpoint_secrets(
    State(state): State<ApiState>,
    caller: Caller,
    Id(which): Id<EndpointRef>,
    _: NoQuery,
) -> Result<([(HeaderName, HeaderValue); 1], Json<EndpointSecrets>), Failure> {
    let sealer = state.sealer();
    let secrets =
        configure::endpoint_secrets(state.database(), caller.tenant(), &which, sealer.ring).await?;
    let data = secrets.secrets.iter().map(EndpointSecret::from).collect();
    let compat = secrets.compat.map(|compat| CompatSecret {
        kind: compat.form.kind().as_str(),
        header: compat.form.header().to_owned(),
        secret: compat.secret.expose().to_owned(),
    });
    Ok((NO_STORE, Json(EndpointSecrets { data, compat })))
}

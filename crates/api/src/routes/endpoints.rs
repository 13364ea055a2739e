//! Endpoints: where a tenant's events go.

mod create;
mod delete;
mod fields;
mod get;
mod list;
mod policy;
mod rotate_secret;
mod secrets;
mod signing;
mod test;
mod update;

use std::collections::BTreeMap;

use posthorn_domain::compat::CompatForm;
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::secret::SigningSecret;
use posthorn_store::read;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::ApiState;
use crate::wire::Time;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::default()
        .routes(routes!(create::create_endpoint, list::list_endpoints))
        .routes(routes!(
            get::get_endpoint,
            update::update_endpoint,
            delete::delete_endpoint
        ))
        .routes(routes!(test::test_endpoint))
        .routes(routes!(secrets::get_endpoint_secrets))
        .routes(routes!(rotate_secret::rotate_endpoint_secret))
}

/// Where a tenant's events go, and how.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Endpoint {
    /// Its id.
    #[schema(example = "ep_01kb6wq3c5e8h2k4n7r9t1v3x5")]
    id: String,
    /// The tenant's own name for it.
    uid: Option<String>,
    /// Where requests go.
    #[schema(example = "https://example.com/webhooks")]
    url: String,
    /// A person's words about it.
    description: String,
    /// The application that it belongs to.
    application_id: Option<String>,
    /// Patterns of the types that it listens to.
    event_types: Vec<String>,
    /// What a payload must look like.
    filter: Option<BTreeMap<String, String>>,
    /// The names of its own headers. Values are never read back.
    headers: BTreeMap<String, HeaderSet>,
    /// When a failed attempt is followed by another.
    #[schema(value_type = policy::RetryPolicy)]
    retry_policy: posthorn_domain::retry::RetryPolicy,
    /// The delays of the policy before jitter: one less than it has attempts.
    retry_delays_ms: Vec<u64>,
    /// Every delivery's end, in seconds from accept.
    max_age_s: u32,
    /// How many requests may start; null: no limit.
    rate_limit: Option<Rate>,
    /// Requests under way at most, over all nodes; null: 16 on each node.
    max_in_flight: Option<u32>,
    /// How long a request may take, in milliseconds, from looking its host up to the last byte of the answer.
    timeout_ms: u32,
    /// Statuses that end a delivery at once.
    fatal_statuses: Vec<u16>,
    /// How requests are signed.
    signing: Signing,
    /// What its requests carry: the payload as it is, or the envelope `{"type", "timestamp", "data"}` around it.
    #[schema(extensions(("x-known-values" = json!(["payload", "standard"]))))]
    body: &'static str,
    /// Which answers are kept with their attempts.
    #[schema(extensions(("x-known-values" = json!(["failures", "all", "none"]))))]
    keep_responses: &'static str,
    /// Whether it is sent what happens to the tenant's endpoints.
    operational: Option<bool>,
    /// When its dead letters are replayed unasked.
    dead_letter_replay_after_s: Option<u32>,
    /// What people set: enabled; paused (matched, deliveries wait); disabled (not matched).
    #[schema(extensions(("x-known-values" = json!(["enabled", "paused", "disabled"]))))]
    state: &'static str,
    /// Why Posthorn disabled it, if Posthorn did.
    #[schema(extensions(("x-known-values" = json!(["gone", "failing"]))))]
    state_cause: Option<&'static str>,
    /// Why a person set the state, in their words.
    state_reason: Option<String>,
    /// What Posthorn sees of it.
    health: Health,
    /// Pairs that are shown and never sent.
    metadata: BTreeMap<String, String>,
    /// When it was created.
    created_at: Time,
    /// When it was changed last.
    updated_at: Time,
}

/// Says that a header is set, without its value.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HeaderSet {
    /// Always true: a header that is not set is not listed.
    set: bool,
}

impl HeaderSet {
    pub(super) const fn yes() -> Self {
        Self { set: true }
    }
}

/// What Posthorn sees of an endpoint.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EndpointHealth)]
struct Health {
    /// `ok`; `circuit_open`: nothing is sent but probes; `failing`: it answers again, and is sent more and more.
    #[schema(extensions(("x-known-values" = json!(["ok", "failing", "circuit_open"]))))]
    status: &'static str,
    /// Since when it is not ok.
    since: Option<Time>,
    /// What its last attempt failed by.
    #[schema(extensions(("x-known-values" = json!(["timeout", "dns", "connect", "tls", "refused_target", "status", "protocol", "config"]))))]
    cause: Option<&'static str>,
    /// Failed attempts without a success between them, counted when its circuit opens and by each probe.
    failures_in_a_row: u32,
    /// Its last success since its circuit opened.
    last_success_at: Option<Time>,
    /// When it is probed next.
    next_probe_at: Option<Time>,
}

impl From<read::EndpointHealth> for Health {
    fn from(health: read::EndpointHealth) -> Self {
        Self {
            status: health.status.as_str(),
            since: health.since.map(Time),
            cause: health
                .cause
                .map(posthorn_domain::delivery::ErrorKind::as_str),
            failures_in_a_row: health.failures_in_a_row,
            last_success_at: health.last_success_at.map(Time),
            next_probe_at: health.next_probe_at.map(Time),
        }
    }
}

/// How many requests may start.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RateLimit)]
struct Rate {
    /// Requests a second, in the long run.
    per_second: f64,
    /// Requests at once, after a rest.
    burst: u32,
}

/// How requests are signed (Standard Webhooks).
#[derive(Debug, Serialize, ToSchema)]
struct Signing {
    /// `v1`: HMAC-SHA256. `v1a`: ed25519.
    #[schema(value_type = Vec<String>, extensions(("x-known-values" = json!(["v1", "v1a"]))))]
    schemes: Vec<SigningScheme>,
    /// What the headers' names begin with.
    header_prefix: String,
    /// A further signature in the form of another sender. Its secret is not shown here.
    compat: Option<Compat>,
}

/// A further signature in the form of another sender.
#[derive(Debug, Serialize, ToSchema)]
struct Compat {
    /// Whose form.
    #[schema(extensions(("x-known-values" = json!(["github", "stripe", "hmac_sha256"]))))]
    kind: &'static str,
    /// The header that it stands in.
    header: String,
}

impl From<&CompatForm> for Compat {
    fn from(form: &CompatForm) -> Self {
        Self {
            kind: form.kind().as_str(),
            header: form.header().to_owned(),
        }
    }
}

/// An endpoint and the secret that was made or given now.
#[derive(Debug, Serialize, ToSchema)]
struct EndpointWithSecret {
    #[serde(flatten)]
    endpoint: Endpoint,
    /// The shared secret that signs with `v1`, where one was made or given now. Later
    /// `GET /v1/endpoints/{id}/secrets` shows it to keys with the scope `endpoints:secrets`.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    secret: Option<String>,
    /// The public key of `v1a`, where a key pair was made or given now.
    public_key: Option<String>,
}

impl From<read::Endpoint> for Endpoint {
    fn from(endpoint: read::Endpoint) -> Self {
        Self {
            id: endpoint.id.to_string(),
            uid: endpoint.uid,
            url: endpoint.url,
            description: endpoint.description,
            application_id: None,
            event_types: endpoint.event_types,
            filter: None,
            headers: endpoint
                .header_names
                .into_iter()
                .map(|name| (name, HeaderSet::yes()))
                .collect(),
            retry_delays_ms: endpoint.retry_policy.delays_ms(),
            retry_policy: endpoint.retry_policy,
            max_age_s: endpoint.max_age_s,
            rate_limit: endpoint.rate_limit.map(|limit| Rate {
                per_second: limit.per_second(),
                burst: limit.burst(),
            }),
            max_in_flight: endpoint.max_in_flight,
            timeout_ms: endpoint.timeout_ms,
            fatal_statuses: endpoint.fatal_statuses,
            signing: Signing {
                schemes: endpoint.signing_schemes,
                header_prefix: endpoint.header_prefix.as_str().to_owned(),
                compat: endpoint.compat.as_ref().map(Compat::from),
            },
            body: endpoint.body.as_str(),
            keep_responses: endpoint.keep_responses.as_str(),
            operational: None,
            dead_letter_replay_after_s: None,
            state: endpoint.state.as_str(),
            state_cause: endpoint
                .state_cause
                .map(posthorn_domain::endpoint::StateCause::as_str),
            state_reason: endpoint.state_reason,
            health: endpoint.health.into(),
            metadata: serde_json::from_str(&endpoint.metadata).unwrap_or_default(),
            created_at: Time(endpoint.created_at),
            updated_at: Time(endpoint.updated_at),
        }
    }
}

impl EndpointWithSecret {
    fn new(endpoint: read::Endpoint, secrets: &[SigningSecret]) -> Self {
        let shared = secrets.iter().find(|secret| secret.public_key().is_none());
        Self {
            endpoint: endpoint.into(),
            secret: shared.map(|secret| secret.expose().expose_secret().to_owned()),
            public_key: secrets.iter().find_map(SigningSecret::public_key),
        }
    }
}

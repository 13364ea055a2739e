//! What people set, made as the API and the command line make it: tenants and endpoints, through `posthorn_store::configure`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::sync::Arc;

use posthorn_domain::api_key::Environment;
use posthorn_domain::body::BodyForm;
use posthorn_domain::endpoint::{EndpointState, KeepResponses, SigningScheme};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, TenantId};
use posthorn_domain::metadata::Metadata;
use posthorn_domain::retry::{Jitter, RetryPolicy};
use posthorn_domain::seal::KeyRing;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_domain::signature_headers::HeaderPrefix;
use posthorn_domain::url::EndpointUrl;
use posthorn_store::clock::Clock;
use posthorn_store::configure::{
    self, EndpointPatch, NewEndpoint, NewTenant, Sealer, create_endpoint, create_tenant,
    delete_endpoint, patch_endpoint,
};
use posthorn_store::database::Database;
use posthorn_store::entropy::Entropy;
use posthorn_store::read::EndpointRef;
use posthorn_store::scope::{Actor, TenantScope};

use crate::receiver::Received;
use crate::rows::Rows;

/// Master keys of no worth, the same for every node of a test.
#[must_use]
pub fn ring() -> Arc<KeyRing> {
    let text = format!("test:{}=", "A".repeat(43));
    Arc::new(KeyRing::parse(&text).unwrap())
}

/// Somebody who configures, over connections of their own: no node learns of it but through the database.
pub struct Tenants {
    database: Database,
    ring: Arc<KeyRing>,
    clock: Clock,
    entropy: Entropy,
}

/// An endpoint, and what its receiver verifies with.
#[derive(Clone)]
pub struct TestEndpoint {
    /// Whose.
    pub tenant: TenantId,
    /// Its id.
    pub id: EndpointId,
    key: VerifyingKey,
}

impl TestEndpoint {
    /// Whether a request is signed with this endpoint's secret.
    #[must_use]
    pub fn signed(&self, request: &Received) -> bool {
        let (Some(signature), Some(id), Some(timestamp)) = (
            request.header("webhook-signature"),
            request.header("webhook-id"),
            request.header("webhook-timestamp"),
        ) else {
            return false;
        };
        let Ok(timestamp) = timestamp.parse() else {
            return false;
        };
        verify(
            signature,
            std::slice::from_ref(&self.key),
            id,
            timestamp,
            &request.body,
        )
    }
}

impl Tenants {
    /// Over these connections.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self::under(database, ring())
    }

    /// The same, with other master keys.
    #[must_use]
    pub fn under(database: Database, ring: Arc<KeyRing>) -> Self {
        Self {
            database,
            ring,
            clock: Clock::start(),
            entropy: Entropy,
        }
    }

    fn sealer(&self) -> Sealer<'_> {
        Sealer {
            ring: &self.ring,
            clock: &self.clock,
            entropy: self.entropy,
        }
    }

    /// A new tenant.
    pub async fn tenant(&self) -> TenantId {
        let id = TenantId::mint(self.clock.now(), self.entropy.bytes());
        let new = NewTenant {
            id,
            name: "Acme".to_owned(),
            environment: Environment::Test,
        };
        create_tenant(&self.database, &new, Actor::COMMAND_LINE)
            .await
            .unwrap();
        id
    }

    /// An endpoint that wants every type and retries by schedule, unless `change` says otherwise.
    pub async fn endpoint_with(
        &self,
        tenant: TenantId,
        url: &str,
        change: impl FnOnce(&mut NewEndpoint),
    ) -> TestEndpoint {
        let mut new = NewEndpoint {
            uid: None,
            url: EndpointUrl::parse(url).unwrap(),
            description: String::new(),
            event_types: vec![EventTypePattern::parse("**").unwrap()],
            headers: CustomHeaders::default(),
            retry_policy: RetryPolicy::Schedule {
                delays_ms: vec![10_000, 60_000],
                jitter: Jitter::Spread(0.2),
            },
            max_age_s: None,
            rate_limit: None,
            max_in_flight: None,
            timeout_ms: 15_000,
            fatal_statuses: Vec::new(),
            signing_schemes: vec![SigningScheme::V1],
            header_prefix: HeaderPrefix::default(),
            compat: None,
            body: BodyForm::Payload,
            keep_responses: KeepResponses::Failures,
            metadata: Metadata::default(),
            state: EndpointState::Enabled,
            state_reason: None,
            secret: None,
        };
        change(&mut new);
        let scope = TenantScope::new_authenticated(tenant, Actor::COMMAND_LINE);
        let made = create_endpoint(&self.database, scope, new, &self.sealer())
            .await
            .unwrap();
        let secret: &SigningSecret = made.secrets.first().unwrap();
        TestEndpoint {
            tenant,
            id: made.endpoint.id,
            key: VerifyingKey::from(secret),
        }
    }

    /// An endpoint that wants every type.
    pub async fn endpoint(&self, tenant: TenantId, url: &str) -> TestEndpoint {
        self.endpoint_with(tenant, url, |_| {}).await
    }

    /// So many more endpoints like this one, each with a secret of its own. Without the version that the API makes of each.
    pub async fn crowd(&self, rows: &Rows, like: &TestEndpoint, count: usize) {
        let (mut endpoints, mut secrets, mut sealed) = (Vec::new(), Vec::new(), Vec::new());
        let now = self.clock.now();
        for _ in 0..count {
            endpoints.push(EndpointId::mint(now, self.entropy.bytes()).uuid());
            let secret = EndpointId::mint(now, self.entropy.bytes()).uuid();
            let bound = [*like.tenant.uuid().as_bytes(), *secret.as_bytes()].concat();
            let text = format!("whsec_{}=", "A".repeat(43));
            let nonce = self.entropy.bytes();
            let seal = self.ring.seal(text.as_bytes(), &bound, nonce).unwrap();
            secrets.push(secret);
            sealed.push(seal.bytes);
        }
        rows.crowd(like.id, &endpoints, &secrets, &sealed).await;
    }

    /// Changes an endpoint.
    pub async fn patch(&self, endpoint: &TestEndpoint, patch: EndpointPatch) {
        let scope = TenantScope::new_authenticated(endpoint.tenant, Actor::COMMAND_LINE);
        let which = EndpointRef::Id(endpoint.id);
        patch_endpoint(&self.database, scope, &which, patch, &self.sealer())
            .await
            .map_err(|error: configure::ConfigureError| error.to_string())
            .map(drop)
            .unwrap();
    }

    /// Sets the state of an endpoint.
    pub async fn set(&self, endpoint: &TestEndpoint, state: EndpointState) {
        let patch = EndpointPatch {
            state: Some(state),
            ..EndpointPatch::default()
        };
        self.patch(endpoint, patch).await;
    }

    /// Deletes an endpoint.
    pub async fn delete(&self, endpoint: &TestEndpoint) {
        let scope = TenantScope::new_authenticated(endpoint.tenant, Actor::COMMAND_LINE);
        delete_endpoint(&self.database, scope, &EndpointRef::Id(endpoint.id))
            .await
            .unwrap();
    }
}

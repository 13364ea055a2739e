//! Endpoints: made, changed, deleted, in their tenant's own role.

mod merge;
mod rotate;
mod sealed;
mod secrets;
mod shown;
mod write;

pub use merge::{Changes, CompatChanges, EndpointPatch, HeaderChanges, Patch, RateChanges};
use posthorn_domain::audit::Action;
use posthorn_domain::body::BodyForm;
use posthorn_domain::compat::Compat;
use posthorn_domain::endpoint::{EndpointState, KeepResponses, SigningScheme};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use posthorn_domain::metadata::Metadata;
use posthorn_domain::rate::RateLimit;
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature_headers::HeaderPrefix;
use posthorn_domain::url::EndpointUrl;
pub use rotate::{Rotated, Rotation, rotate_secret};
pub use secrets::{OpenedSecret, OpenedSecrets, Sealer, endpoint_secrets};

use self::sealed::SealedParts;
use self::shown::shown;
use self::write::{Written, count, insert, insert_version, update};
use super::{ConfigureError, raise};
use crate::audit::{self, Entry, Fields};
use crate::database::Database;
use crate::health;
use crate::read::{Endpoint, EndpointHealth, EndpointRef, add_health, endpoint_for_update};
use crate::scope::TenantScope;

/// An endpoint to be made.
pub struct NewEndpoint {
    /// The tenant's own name for it.
    pub uid: Option<String>,
    /// Where requests go.
    pub url: EndpointUrl,
    /// A person's words about it.
    pub description: String,
    /// What it listens to.
    pub event_types: Vec<EventTypePattern>,
    /// Headers of its own.
    pub headers: CustomHeaders,
    /// When a failed attempt is followed by another.
    pub retry_policy: RetryPolicy,
    /// Every delivery's end, in seconds from accept; `None`: what the policy says.
    pub max_age_s: Option<u32>,
    /// How many requests may start; `None`: no limit.
    pub rate_limit: Option<RateLimit>,
    /// How many requests may be under way over all nodes; `None`: each node's default.
    pub max_in_flight: Option<u32>,
    /// One deadline over connect, headers and body, in milliseconds.
    pub timeout_ms: u32,
    /// Statuses that end a delivery at once.
    pub fatal_statuses: Vec<u16>,
    /// How requests are signed.
    pub signing_schemes: Vec<SigningScheme>,
    /// What the names of the signature's headers begin with.
    pub header_prefix: HeaderPrefix,
    /// A further signature in the form of others.
    pub compat: Option<Compat>,
    /// What its requests carry.
    pub body: BodyForm,
    /// Which answers are kept.
    pub keep_responses: KeepResponses,
    /// Pairs that are shown and never sent.
    pub metadata: Metadata,
    /// What people set.
    pub state: EndpointState,
    /// Why, in their words.
    pub state_reason: Option<String>,
    /// A secret for one of the schemes; the others' are generated.
    pub secret: Option<SigningSecret>,
}

/// An endpoint as it was made, and its secrets, to be shown this once.
pub struct Created {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// One for each scheme.
    pub secrets: Vec<SigningSecret>,
}

/// An endpoint as it was changed.
pub struct Patched {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Secrets that were generated for schemes that it did not sign with before, to be shown this once.
    pub secrets: Vec<SigningSecret>,
}

/// Makes an endpoint.
///
/// # Errors
/// When the uid is taken, the tenant has too many endpoints, or the database does not answer.
pub async fn create_endpoint(
    database: &Database,
    scope: TenantScope,
    new: NewEndpoint,
    sealer: &Sealer<'_>,
) -> Result<Created, ConfigureError> {
    let id = EndpointId::mint(sealer.clock.now(), sealer.entropy.bytes());
    let names: Vec<_> = new.headers.names().map(str::to_owned).collect();
    let sealed = SealedParts {
        headers: sealer.seal_headers(scope.tenant(), id, &new.headers)?,
        compat: match &new.compat {
            None => None,
            Some(compat) => Some(sealer.seal_compat(scope.tenant(), id, &compat.secret)?),
        },
    };
    let (endpoint, given) = as_endpoint(id, new, sealer)?;
    let secrets = sealer.secrets_for(&endpoint.signing_schemes, given)?;
    let written = Written::of(id, names, endpoint)?;
    let mut tx = database.tenant_tx(&scope).await?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    if count(&mut tx, scope).await? >= limits::ENDPOINTS_PER_TENANT {
        return Err(ConfigureError::TooManyEndpoints);
    }
    let row = insert(&mut tx, scope, &written, &sealed, seq).await?;
    insert_version(&mut tx, scope, &written, seq).await?;
    for secret in &secrets {
        secrets::insert(&mut tx, scope, id, secret, sealer).await?;
    }
    let endpoint = row.told()?;
    let entry = Entry {
        action: Action::EndpointCreated,
        target: id.to_string(),
        before: Fields::new(),
        after: shown(&endpoint, &sealed)?,
    };
    audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    tx.commit().await?;
    Ok(Created { endpoint, secrets })
}

/// Changes an endpoint by merging `patch` into it. An empty patch changes nothing.
///
/// # Errors
/// When there is no such endpoint, the merged headers or metadata are not valid, the uid is taken, or the
/// database does not answer.
pub async fn patch_endpoint(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
    patch: EndpointPatch,
    sealer: &Sealer<'_>,
) -> Result<Patched, ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = endpoint_for_update(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let sealed = SealedParts::of(&row);
    let mut before = row.told()?;
    let was_shown = shown(&before, &sealed)?;
    if patch.is_empty() {
        add_health(&mut tx, scope, std::slice::from_mut(&mut before)).await?;
        return Ok(Patched {
            endpoint: before,
            secrets: Vec::new(),
        });
    }
    let id = before.id;
    let named = patch.secret_fields();
    let (sealed, names) = sealed.patched(&patch, &before, scope, sealer)?;
    let schemes = before.signing_schemes.clone();
    let (was, led_to) = (before.state, before.url.clone());
    let after = patch.merge(before)?;
    // At another address there is another receiver, which has neither failed nor asked for anything.
    let begins_afresh = after.state == EndpointState::Enabled
        && (was != EndpointState::Enabled || after.url != led_to);
    let added: Vec<_> = after
        .signing_schemes
        .iter()
        .copied()
        .filter(|scheme| !schemes.contains(scheme))
        .collect();
    let dropped: Vec<_> = schemes
        .iter()
        .copied()
        .filter(|scheme| !after.signing_schemes.contains(scheme))
        .collect();
    let secrets = sealer.secrets_for(&added, None)?;
    let written = Written::of(id, names, after)?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    let row = update(&mut tx, scope, &written, &sealed, seq).await?;
    if begins_afresh {
        health::start_afresh(&mut tx, scope.tenant(), id.uuid()).await?;
    }
    insert_version(&mut tx, scope, &written, seq).await?;
    secrets::retire(&mut tx, scope, id, &dropped).await?;
    for secret in &secrets {
        secrets::insert(&mut tx, scope, id, secret, sealer).await?;
    }
    let mut endpoint = row.told()?;
    let (was, is) = audit::difference(was_shown, shown(&endpoint, &sealed)?, &named);
    // Setting a field to what it is changes nothing.
    if was != is || !named.is_empty() {
        let entry = Entry {
            action: Action::EndpointUpdated,
            target: id.to_string(),
            before: was,
            after: is,
        };
        audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    }
    add_health(&mut tx, scope, std::slice::from_mut(&mut endpoint)).await?;
    tx.commit().await?;
    Ok(Patched { endpoint, secrets })
}

/// Deletes an endpoint. What waits for it is cancelled; its history stays.
///
/// # Errors
/// When there is no such endpoint, or the database does not answer.
pub async fn delete_endpoint(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
) -> Result<(), ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = endpoint_for_update(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let seq = raise(&mut tx, scope.tenant()).await?;
    let hit = sqlx::query!(
        "UPDATE endpoints SET deleted_at = now(), updated_at = now(), config_seq = $3
         WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL",
        scope.tenant().uuid(),
        row.id,
        seq,
    )
    .execute(&mut *tx)
    .await?;
    if hit.rows_affected() == 0 {
        return Err(ConfigureError::NotFound);
    }
    let sealed = SealedParts::of(&row);
    let endpoint = row.told()?;
    let entry = Entry {
        action: Action::EndpointDeleted,
        target: endpoint.id.to_string(),
        before: shown(&endpoint, &sealed)?,
        after: Fields::new(),
    };
    audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    tx.commit().await?;
    Ok(())
}

/// The new endpoint, but for what the database sets, and the secret that was given.
fn as_endpoint(
    id: EndpointId,
    new: NewEndpoint,
    sealer: &Sealer<'_>,
) -> Result<(Endpoint, Option<SigningSecret>), ConfigureError> {
    let now = sealer.clock.now();
    let endpoint = Endpoint {
        id,
        uid: new.uid,
        url: new.url.as_str().to_owned(),
        description: new.description,
        event_types: new
            .event_types
            .iter()
            .map(|pattern| pattern.as_str().to_owned())
            .collect(),
        header_names: Vec::new(),
        max_age_s: new
            .max_age_s
            .unwrap_or_else(|| merge::default_max_age_s(&new.retry_policy)),
        max_age_given: new.max_age_s.is_some(),
        retry_policy: new.retry_policy,
        rate_limit: new.rate_limit,
        max_in_flight: new.max_in_flight,
        timeout_ms: new.timeout_ms,
        fatal_statuses: new.fatal_statuses,
        signing_schemes: new.signing_schemes,
        header_prefix: new.header_prefix,
        compat: new.compat.map(|compat| compat.form),
        body: new.body,
        keep_responses: new.keep_responses,
        metadata: serde_json::to_string(&new.metadata)?,
        state: new.state,
        state_cause: None,
        state_reason: new.state_reason,
        health: EndpointHealth::default(),
        created_at: now,
        updated_at: now,
    };
    Ok((endpoint, new.secret))
}

//! Sealing: signing secrets and header values, bound to their tenant and object.

use chrono::{DateTime, Utc};
use posthorn_domain::audit::Action;
use posthorn_domain::compat::{Compat, CompatForm, CompatSecret};
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, SecretId, TenantId};
use posthorn_domain::seal::{KeyRing, SealError, Sealed};
use posthorn_domain::secret::SigningSecret;
use secrecy::ExposeSecret as _;

use super::ConfigureError;
use crate::audit::{self, Entry, Fields};
use crate::clock::Clock;
use crate::configuration::{associated_data, compat_data};
use crate::database::{self, Database, TenantTransaction};
use crate::entropy::Entropy;
use crate::read::{DatabaseError, EndpointRef, find_endpoint};
use crate::scope::TenantScope;

/// A signing secret that was opened to be shown to who may see it.
pub struct OpenedSecret {
    /// The secret.
    pub secret: SigningSecret,
    /// Since when it signs.
    pub created_at: DateTime<Utc>,
    /// From here on it no longer signs; `None`: in force.
    pub retires_at: Option<DateTime<Utc>>,
}

/// What sealing needs: the master keys, and time and randomness for ids and nonces.
pub struct Sealer<'a> {
    /// The master keys.
    pub ring: &'a KeyRing,
    /// For ids.
    pub clock: &'a Clock,
    /// For ids, nonces and generated secrets.
    pub entropy: Entropy,
}

impl Sealer<'_> {
    /// One secret for each scheme: the given one where it fits, else a fresh one.
    pub(super) fn secrets_for(
        &self,
        schemes: &[SigningScheme],
        given: Option<SigningSecret>,
    ) -> Result<Vec<SigningSecret>, ConfigureError> {
        let mut given = given;
        schemes
            .iter()
            .map(
                |scheme| match given.take_if(|secret| secret.kind() == scheme.as_str()) {
                    Some(secret) => Ok(secret),
                    None => self.generate(*scheme),
                },
            )
            .collect()
    }

    pub(super) fn generate(&self, scheme: SigningScheme) -> Result<SigningSecret, ConfigureError> {
        match scheme {
            SigningScheme::V1 => Ok(SigningSecret::generate_v1(self.entropy.bytes())),
            SigningScheme::V1a => Ok(SigningSecret::generate_v1a(self.entropy.bytes())?),
        }
    }

    /// Seals headers; none are no text at all.
    pub(super) fn seal_headers(
        &self,
        tenant: TenantId,
        endpoint: EndpointId,
        headers: &CustomHeaders,
    ) -> Result<Option<Sealed>, ConfigureError> {
        if headers.is_empty() {
            return Ok(None);
        }
        let plain = serde_json::to_vec(headers)?;
        let bound = associated_data(tenant.uuid(), endpoint.uuid());
        Ok(Some(self.ring.seal(
            &plain,
            &bound,
            self.entropy.bytes(),
        )?))
    }

    /// Opens headers that [`Sealer::seal_headers`] sealed.
    pub(super) fn open_headers(
        &self,
        tenant: TenantId,
        endpoint: EndpointId,
        sealed: Option<&Sealed>,
    ) -> Result<CustomHeaders, ConfigureError> {
        let Some(Sealed { key_id, bytes }) = sealed else {
            return Ok(CustomHeaders::default());
        };
        let bound = associated_data(tenant.uuid(), endpoint.uuid());
        let plain = self.ring.open(key_id, bytes, &bound)?;
        serde_json::from_slice(plain.expose_secret()).map_err(ConfigureError::from)
    }

    /// Seals the secret of a form of others.
    pub(super) fn seal_compat(
        &self,
        tenant: TenantId,
        endpoint: EndpointId,
        secret: &CompatSecret,
    ) -> Result<Sealed, SealError> {
        let bound = compat_data(tenant.uuid(), endpoint.uuid());
        let plain = secret.expose().as_bytes();
        self.ring.seal(plain, &bound, self.entropy.bytes())
    }

    fn seal_secret(
        &self,
        tenant: TenantId,
        id: SecretId,
        secret: &SigningSecret,
    ) -> Result<Sealed, SealError> {
        let plain = secret.expose();
        let bound = associated_data(tenant.uuid(), id.uuid());
        self.ring.seal(
            plain.expose_secret().as_bytes(),
            &bound,
            self.entropy.bytes(),
        )
    }
}

/// What signs for an endpoint.
pub struct OpenedSecrets {
    /// The secrets of Standard Webhooks, newest first.
    pub secrets: Vec<OpenedSecret>,
    /// The form of others and its secret.
    pub compat: Option<Compat>,
}

/// The secrets that sign for an endpoint. Nobody is shown them before it is on record who asked.
///
/// # Errors
/// When there is no such endpoint, a secret cannot be opened, or the database does not answer.
pub async fn endpoint_secrets(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
    ring: &KeyRing,
) -> Result<OpenedSecrets, ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let mut row = find_endpoint(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let id = EndpointId::from_uuid(row.id);
    let secrets = opened(&mut tx, scope, id, ring).await?;
    let entry = Entry {
        action: Action::EndpointSecretsRead,
        target: id.to_string(),
        before: Fields::new(),
        after: Fields::new(),
    };
    audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    tx.commit().await?;
    let sealed = row.compat_key_id.take().zip(row.compat_sealed.take());
    let form = row.told()?.compat;
    let compat = match form.zip(sealed) {
        None => None,
        Some((form, sealed)) => Some(open_compat(ring, scope.tenant(), id, form, &sealed)?),
    };
    Ok(OpenedSecrets { secrets, compat })
}

fn open_compat(
    ring: &KeyRing,
    tenant: TenantId,
    endpoint: EndpointId,
    form: CompatForm,
    (key_id, bytes): &(String, Vec<u8>),
) -> Result<Compat, ConfigureError> {
    let plain = ring.open(key_id, bytes, &compat_data(tenant.uuid(), endpoint.uuid()))?;
    let secret = std::str::from_utf8(plain.expose_secret())
        .ok()
        .and_then(|text| CompatSecret::parse(text).ok())
        .ok_or(DatabaseError::Unreadable("a compatibility secret"))?;
    Ok(Compat { form, secret })
}

/// Opens what signs for an endpoint at this moment, newest first.
pub(super) async fn opened(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    ring: &KeyRing,
) -> Result<Vec<OpenedSecret>, ConfigureError> {
    let rows = sqlx::query!(
        "SELECT id, key_id, sealed, created_at, retires_at FROM endpoint_secrets
         WHERE tenant_id = $1 AND endpoint_id = $2 AND (retires_at IS NULL OR retires_at > clock_timestamp())
         ORDER BY created_at DESC, id DESC",
        scope.tenant().uuid(),
        endpoint.uuid(),
    )
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            let bound = associated_data(scope.tenant().uuid(), row.id);
            let plain = ring.open(&row.key_id, &row.sealed, &bound)?;
            let secret = std::str::from_utf8(plain.expose_secret())
                .ok()
                .and_then(|text| SigningSecret::parse(text).ok())
                .ok_or(DatabaseError::Unreadable("a signing secret"))?;
            Ok(OpenedSecret {
                secret,
                created_at: row.created_at,
                retires_at: row.retires_at,
            })
        })
        .collect()
}

/// Keeps a secret of an endpoint, sealed and in force. Answers since when.
pub(super) async fn insert(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    secret: &SigningSecret,
    sealer: &Sealer<'_>,
) -> Result<DateTime<Utc>, ConfigureError> {
    let id = SecretId::mint(sealer.clock.now(), sealer.entropy.bytes());
    let sealed = sealer.seal_secret(scope.tenant(), id, secret)?;
    // The time of the statement: a transaction that waited for another rotation began before that one ended.
    let created_at = sqlx::query_scalar!(
        "INSERT INTO endpoint_secrets (tenant_id, endpoint_id, id, kind, key_id, sealed, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
         RETURNING created_at",
        scope.tenant().uuid(),
        endpoint.uuid(),
        id.uuid(),
        secret.kind(),
        sealed.key_id,
        sealed.bytes,
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(created_at)
}

/// Removes the secrets that no longer sign.
pub(super) async fn remove_retired(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
) -> Result<(), database::DatabaseError> {
    sqlx::query!(
        "DELETE FROM endpoint_secrets
         WHERE tenant_id = $1 AND endpoint_id = $2 AND retires_at <= clock_timestamp()",
        scope.tenant().uuid(),
        endpoint.uuid(),
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Takes the secrets of schemes that an endpoint no longer signs with out of force, at once.
pub(super) async fn retire(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    schemes: &[SigningScheme],
) -> Result<(), database::DatabaseError> {
    let kinds: Vec<String> = schemes
        .iter()
        .map(|scheme| scheme.as_str().to_owned())
        .collect();
    if kinds.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE endpoint_secrets SET retires_at = clock_timestamp()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND kind = ANY ($3)
           AND (retires_at IS NULL OR retires_at > clock_timestamp())",
        scope.tenant().uuid(),
        endpoint.uuid(),
        &kinds,
    )
    .execute(&mut **tx)
    .await?;
    remove_retired(tx, scope, endpoint).await
}

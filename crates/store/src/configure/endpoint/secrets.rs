//! Sealing: signing secrets and header values, bound to their tenant and object.

use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, SecretId, TenantId};
use posthorn_domain::seal::{KeyRing, SealError, Sealed};
use posthorn_domain::secret::SigningSecret;
use secrecy::ExposeSecret as _;
use sqlx::{Postgres, Transaction};

use super::ConfigureError;
use crate::clock::Clock;
use crate::configuration::associated_data;
use crate::entropy::Entropy;
use crate::scope::TenantScope;

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

    fn generate(&self, scheme: SigningScheme) -> Result<SigningSecret, ConfigureError> {
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
        sealed: Option<&(String, Vec<u8>)>,
    ) -> Result<CustomHeaders, ConfigureError> {
        let Some((key_id, bytes)) = sealed else {
            return Ok(CustomHeaders::default());
        };
        let plain = self.ring.open(
            key_id,
            bytes,
            &associated_data(tenant.uuid(), endpoint.uuid()),
        )?;
        serde_json::from_slice(plain.expose_secret()).map_err(ConfigureError::from)
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

/// Keeps secrets of an endpoint, sealed and in force.
pub(super) async fn insert(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
    endpoint: EndpointId,
    secrets: &[SigningSecret],
    sealer: &Sealer<'_>,
) -> Result<(), ConfigureError> {
    for secret in secrets {
        let id = SecretId::mint(sealer.clock.now(), sealer.entropy.bytes());
        let sealed = sealer.seal_secret(scope.tenant(), id, secret)?;
        sqlx::query!(
            "INSERT INTO endpoint_secrets (tenant_id, endpoint_id, id, kind, key_id, sealed)
             VALUES ($1, $2, $3, $4, $5, $6)",
            scope.tenant().uuid(),
            endpoint.uuid(),
            id.uuid(),
            secret.kind(),
            sealed.key_id,
            sealed.bytes,
        )
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

/// Takes the secrets of schemes that an endpoint no longer signs with out of force, at once.
pub(super) async fn retire(
    tx: &mut Transaction<'static, Postgres>,
    scope: TenantScope,
    endpoint: EndpointId,
    schemes: &[SigningScheme],
) -> Result<(), sqlx::Error> {
    let kinds: Vec<String> = schemes
        .iter()
        .map(|scheme| scheme.as_str().to_owned())
        .collect();
    if kinds.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE endpoint_secrets SET retires_at = now()
         WHERE tenant_id = $1 AND endpoint_id = $2 AND kind = ANY ($3) AND (retires_at IS NULL OR retires_at > now())",
        scope.tenant().uuid(),
        endpoint.uuid(),
        &kinds,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

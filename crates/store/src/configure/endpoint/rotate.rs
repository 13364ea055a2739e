//! A signing secret gives way to a new one; the old one signs beside it until the overlap is over (INV-4).
//!
//! The end of an overlap is a time of the database, kept with the old secret: each attempt asks it when it is signed, so
//! the old secret goes on every node at that time, whenever the node read its configuration.

use std::time::Duration;

use posthorn_domain::audit::Action;
use posthorn_domain::endpoint::SigningScheme;
use posthorn_domain::id::EndpointId;
use posthorn_domain::limits;
use posthorn_domain::secret::SigningSecret;
use secrecy::ExposeSecret as _;

use super::secrets::{self, OpenedSecret, Sealer};
use crate::audit::{self, Entry, Fields};
use crate::configure::{ConfigureError, raise};
use crate::database::{Database, DatabaseError, TenantTransaction};
use crate::read::{EndpointRef, endpoint_for_update};
use crate::scope::TenantScope;

/// What is to be changed.
pub struct Rotation {
    /// The new secret; `None`: one is generated.
    pub secret: Option<SigningSecret>,
    /// Which scheme's secret; `None`: that of the given secret, or the only scheme of the endpoint.
    pub scheme: Option<SigningScheme>,
    /// How long the old secret signs beside the new one: 0 to [`limits::SECRET_OVERLAP_MAX`].
    pub overlap: Duration,
}

/// The new secret, to be shown this once, and what still signs beside it.
pub struct Rotated {
    /// The new secret.
    pub new: OpenedSecret,
    /// Old secrets that still sign, newest first, of all schemes.
    pub old: Vec<OpenedSecret>,
}

/// Gives an endpoint a new secret.
///
/// # Errors
/// When there is no such endpoint, it signs with the given secret already, it does not sign with that scheme, it is not said which of two schemes is meant, more old
/// secrets would sign than may, or the database does not answer.
pub async fn rotate_secret(
    database: &Database,
    scope: TenantScope,
    which: &EndpointRef,
    rotation: Rotation,
    sealer: &Sealer<'_>,
) -> Result<Rotated, ConfigureError> {
    let mut tx = database.tenant_tx(&scope).await?;
    let row = endpoint_for_update(&mut tx, scope, which)
        .await?
        .ok_or(ConfigureError::NotFound)?;
    let endpoint = row.told()?;
    let scheme = rotation.scheme(&endpoint.signing_schemes)?;
    let secret = match rotation.secret {
        Some(secret) => {
            let present = secrets::opened(&mut tx, scope, endpoint.id, sealer.ring).await?;
            let is_same = |one: &OpenedSecret| {
                one.retires_at.is_none()
                    && one.secret.expose().expose_secret() == secret.expose().expose_secret()
            };
            if present.iter().any(is_same) {
                return Err(ConfigureError::SecretInForce);
            }
            secret
        }
        None => sealer.generate(scheme)?,
    };
    retire(&mut tx, scope, endpoint.id, scheme, rotation.overlap).await?;
    secrets::remove_retired(&mut tx, scope, endpoint.id).await?;
    let old = secrets::opened(&mut tx, scope, endpoint.id, sealer.ring).await?;
    let old: Vec<_> = old
        .into_iter()
        .filter(|secret| secret.retires_at.is_some())
        .collect();
    if old.len() > limits::OLD_SECRETS {
        return Err(ConfigureError::TooManyOldSecrets);
    }
    let created_at = secrets::insert(&mut tx, scope, endpoint.id, &secret, sealer).await?;
    let entry = Entry {
        action: Action::EndpointSecretRotated,
        target: endpoint.id.to_string(),
        before: Fields::new(),
        after: audit::fields([
            ("scheme", scheme.as_str().into()),
            ("sealed_with", sealer.ring.ids().next().into()),
            ("overlap_s", rotation.overlap.as_secs().into()),
        ]),
    };
    audit::write(&mut tx, scope.tenant(), scope.actor(), entry).await?;
    raise(&mut tx, scope.tenant()).await?;
    tx.commit().await?;
    Ok(Rotated {
        new: OpenedSecret {
            secret,
            created_at,
            retires_at: None,
        },
        old,
    })
}

impl Rotation {
    /// Which scheme's secret is meant, of those that the endpoint signs with.
    fn scheme(&self, signs: &[SigningScheme]) -> Result<SigningScheme, ConfigureError> {
        let given = self.secret.as_ref().map(SigningSecret::scheme);
        match (given.or(self.scheme), signs) {
            (Some(scheme), _) if signs.contains(&scheme) => Ok(scheme),
            (Some(scheme), _) => Err(ConfigureError::SchemeUnused(scheme)),
            (None, [only]) => Ok(*only),
            (None, _) => Err(ConfigureError::SchemeMissing),
        }
    }
}

/// Sets the end of the scheme's secret. One that is retiring already keeps its own. The time is that of this statement, not
/// of the transaction, which may have waited for another rotation.
async fn retire(
    tx: &mut TenantTransaction,
    scope: TenantScope,
    endpoint: EndpointId,
    scheme: SigningScheme,
    overlap: Duration,
) -> Result<(), DatabaseError> {
    sqlx::query!(
        "UPDATE endpoint_secrets SET retires_at = clock_timestamp() + make_interval(secs => $4)
         WHERE tenant_id = $1 AND endpoint_id = $2 AND kind = $3 AND retires_at IS NULL",
        scope.tenant().uuid(),
        endpoint.uuid(),
        scheme.as_str(),
        overlap.as_secs_f64(),
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotation(secret: Option<SigningSecret>, scheme: Option<SigningScheme>) -> Rotation {
        Rotation {
            secret,
            scheme,
            overlap: Duration::ZERO,
        }
    }

    #[test]
    fn the_scheme_is_that_of_the_secret_or_the_one_that_is_named_or_the_only_one() {
        let both = [SigningScheme::V1, SigningScheme::V1a];
        let v1 = || Some(SigningSecret::generate_v1([7; 32]));
        for (rotation, signs, wanted) in [
            (rotation(v1(), None), &both[..], Some(SigningScheme::V1)),
            (
                rotation(None, Some(SigningScheme::V1a)),
                &both,
                Some(SigningScheme::V1a),
            ),
            (rotation(None, None), &both[1..], Some(SigningScheme::V1a)),
            (rotation(None, None), &both, None),
            (rotation(v1(), None), &both[1..], None),
            (rotation(None, Some(SigningScheme::V1a)), &both[..1], None),
        ] {
            assert_eq!(rotation.scheme(signs).ok(), wanted);
        }
    }
}

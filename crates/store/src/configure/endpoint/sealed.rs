//! What of an endpoint's row is sealed, and what a change makes of it.

use posthorn_domain::seal::Sealed;

use super::merge::{EndpointPatch, Patch};
use super::secrets::Sealer;
use crate::configure::ConfigureError;
use crate::read::{Endpoint, EndpointRow};
use crate::scope::TenantScope;

/// What of an endpoint's row is sealed.
pub(super) struct SealedParts {
    /// Its own headers.
    pub(super) headers: Option<Sealed>,
    /// The secret of its form of others.
    pub(super) compat: Option<Sealed>,
}

impl SealedParts {
    /// As it lies there.
    pub(super) fn of(row: &EndpointRow) -> Self {
        let sealed = |key_id: &Option<String>, bytes: &Option<Vec<u8>>| {
            let (key_id, bytes) = key_id.clone().zip(bytes.clone())?;
            Some(Sealed { key_id, bytes })
        };
        Self {
            headers: sealed(&row.headers_key_id, &row.headers_sealed),
            compat: sealed(&row.compat_key_id, &row.compat_sealed),
        }
    }

    /// After a change, and the names of the headers then.
    pub(super) fn patched(
        self,
        patch: &EndpointPatch,
        before: &Endpoint,
        scope: TenantScope,
        sealer: &Sealer<'_>,
    ) -> Result<(Self, Vec<String>), ConfigureError> {
        let (tenant, id) = (scope.tenant(), before.id);
        let compat = match &patch.compat {
            Patch::Keep => self.compat,
            Patch::Clear => None,
            Patch::Set(changes) => match &changes.secret {
                Some(secret) => Some(sealer.seal_compat(tenant, id, secret)?),
                None => self.compat,
            },
        };
        let Some(changes) = &patch.headers else {
            let headers = self.headers;
            return Ok((Self { headers, compat }, before.header_names.clone()));
        };
        let old = sealer.open_headers(tenant, id, self.headers.as_ref())?;
        let merged = changes.merge(&old)?;
        let headers = sealer.seal_headers(tenant, id, &merged)?;
        let names = merged.names().map(str::to_owned).collect();
        Ok((Self { headers, compat }, names))
    }
}

//! Who is calling, and whether they may.
//!
//! The only place that makes a [`TenantScope`]. Keys are looked up in memory by the SHA-256 of their text, so
//! an unknown one costs no statement, and the database being away refuses nobody. Every refusal of a key reads
//! the same. The scope comes from the table of operations, by the route that matched.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use posthorn_domain::api_key;
use posthorn_domain::id::{KeyId, TenantId};
use posthorn_domain::scope::Scope;
use posthorn_store::configuration::KeyRecord;
use posthorn_store::scope::{Actor, TenantScope};

use crate::access::Operation;
use crate::problem::Failure;
use crate::state::ApiState;

/// Names the tenant that a person acts in; beside a key it may only repeat the key's own.
const TENANT: HeaderName = HeaderName::from_static("posthorn-tenant");

/// A program that may do what it asks for, in its tenant.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    tenant: TenantScope,
    key: Arc<KeyRecord>,
}

impl Caller {
    /// Who sends these headers from `address`, and may do what `operation` is.
    ///
    /// # Errors
    /// 401 without a valid key; 403 where it is another tenant's than the one named, or lacks the scope.
    pub(crate) fn of(
        headers: &HeaderMap,
        address: Option<IpAddr>,
        operation: &Operation,
        state: &ApiState,
    ) -> Result<Self, Failure> {
        let caller = authenticate(headers, address, state).ok_or_else(Failure::unauthenticated)?;
        if !names_no_other(headers, caller.tenant.tenant()) {
            return Err(Failure::tenant_forbidden());
        }
        if !caller.may(operation.scope) {
            return Err(Failure::scope_missing(operation));
        }
        Ok(caller)
    }

    /// The tenant that everything it does stays in.
    #[must_use]
    pub(crate) const fn tenant(&self) -> TenantScope {
        self.tenant
    }

    /// The key that it came with.
    #[must_use]
    pub(crate) fn key(&self) -> KeyId {
        self.key.id
    }

    /// Whether it holds a scope beside the operation's own.
    #[must_use]
    pub(crate) fn may(&self, scope: Scope) -> bool {
        holds(&self.key.scopes, scope)
    }
}

/// `admin` is everything.
fn holds(scopes: &[Scope], scope: Scope) -> bool {
    scopes
        .iter()
        .any(|held| *held == scope || *held == Scope::Admin)
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Failure> {
        let path = parts
            .extensions
            .get::<MatchedPath>()
            .map_or("", MatchedPath::as_str);
        let operation = Operation::of(&parts.method, path).ok_or_else(|| {
            Failure::internal(format_args!(
                "{} {path} is not in the table of operations",
                parts.method
            ))
        })?;
        Self::of(
            &parts.headers,
            address_of(&parts.extensions),
            operation,
            state,
        )
    }
}

/// Where a request comes from, as the server's listener says.
pub(crate) fn address_of(extensions: &Extensions) -> Option<IpAddr> {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(peer.0.ip())
}

fn authenticate(headers: &HeaderMap, address: Option<IpAddr>, state: &ApiState) -> Option<Caller> {
    let hash = api_key::check(bearer(headers)?).ok()?;
    let snapshot = state.cache().snapshot();
    let key = snapshot.key(hash.as_bytes())?;
    let now = state.clock().now();
    if key.expires_at.is_some_and(|end| end <= now) {
        return None;
    }
    snapshot.tenant(key.tenant)?;
    state.key_uses().note(key.tenant, key.id, now);
    Some(Caller {
        tenant: TenantScope::new_authenticated(key.tenant, Actor::api_key(key.id, address)),
        key: Arc::clone(key),
    })
}

/// Whether every header that names a tenant names this one. A key needs none; one that names another tenant, or that
/// cannot be read, is a mistake which must not end in the wrong tenant (INV-9).
fn names_no_other(headers: &HeaderMap, tenant: TenantId) -> bool {
    headers.get_all(TENANT).iter().all(|value| {
        let named = value.to_str().ok().and_then(|text| text.parse().ok());
        named == Some(tenant)
    })
}

/// The token of the one Authorization header, whose scheme has no case (RFC 9110, section 11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' '))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_scheme_has_no_case() {
        for value in ["Bearer x", "bearer x", "BEARER  x"] {
            assert_eq!(bearer(&headers(&[value])), Some("x"), "{value}");
        }
    }

    #[test]
    fn other_schemes_and_two_headers_are_refused() {
        assert_eq!(bearer(&headers(&["Basic x"])), None);
        assert_eq!(bearer(&headers(&["x"])), None);
        assert_eq!(bearer(&headers(&[])), None);
        assert_eq!(bearer(&headers(&["Bearer x", "Bearer x"])), None);
    }

    #[test]
    fn admin_holds_every_scope() {
        assert!(
            Scope::ALL
                .iter()
                .all(|scope| holds(&[Scope::Admin], *scope))
        );
        assert!(!holds(&[Scope::EventsRead], Scope::EventsWrite));
    }
}

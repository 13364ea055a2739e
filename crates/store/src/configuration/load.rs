//! Reading the configuration: number and rows in one snapshot, so that a version names exactly its rows.

use std::collections::{BTreeSet, HashMap};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthorn_domain::api_key::Environment;
use posthorn_domain::body::BodyForm;
use posthorn_domain::compat::{Compat, CompatSecret};
use posthorn_domain::endpoint::{EndpointState, KeepResponses};
use posthorn_domain::event_type::EventTypePattern;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, IdMap, KeyId, TenantId};
use posthorn_domain::retry::RetryPolicy;
use posthorn_domain::scope::Scope;
use posthorn_domain::seal::KeyRing;
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature_headers::{HeaderPrefix, SignatureHeaders};
use posthorn_domain::url::EndpointUrl;
use secrecy::ExposeSecret as _;
use sqlx::{Acquire as _, Postgres, Transaction};
use uuid::Uuid;

use super::{
    EndpointConfig, EndpointEntry, KeyRecord, LiveSecret, Signing, Snapshot, TenantConfig,
};
use crate::database::{Database, DatabaseError};
use crate::read::{compat_form, rate_limit};

/// What of the configuration to read.
enum Which {
    All,
    Tenants(Vec<Uuid>),
}

/// A snapshot that is newer than `present`, if there is one.
pub(super) async fn newer(
    database: &Database,
    ring: &KeyRing,
    present: &Snapshot,
) -> Result<Option<Snapshot>, DatabaseError> {
    let mut tx = read_only(database).await?;
    let head = sqlx::query!("SELECT seq, log_from FROM config_head")
        .fetch_one(&mut *tx)
        .await?;
    if head.seq == present.seq {
        return Ok(None);
    }
    if head.log_from > present.seq {
        return read(&mut tx, ring, head.seq, Which::All, None)
            .await
            .map(Some);
    }
    let changed = sqlx::query_scalar!(
        "SELECT DISTINCT tenant_id FROM config_log WHERE seq > $1",
        present.seq
    )
    .fetch_all(&mut *tx)
    .await?;
    read(
        &mut tx,
        ring,
        head.seq,
        Which::Tenants(changed),
        Some(present),
    )
    .await
    .map(Some)
}

/// A snapshot of everything.
pub(super) async fn all(database: &Database, ring: &KeyRing) -> Result<Snapshot, DatabaseError> {
    let mut tx = read_only(database).await?;
    let seq = sqlx::query_scalar!("SELECT seq FROM config_head")
        .fetch_one(&mut *tx)
        .await?;
    read(&mut tx, ring, seq, Which::All, None).await
}

async fn read_only(database: &Database) -> Result<Transaction<'static, Postgres>, DatabaseError> {
    let mut tx = database.system_tx().await?;
    sqlx::query!("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        .execute(&mut *tx)
        .await?;
    Ok(tx)
}

async fn read(
    tx: &mut Transaction<'static, Postgres>,
    ring: &KeyRing,
    seq: i64,
    which: Which,
    present: Option<&Snapshot>,
) -> Result<Snapshot, DatabaseError> {
    let named = match which {
        Which::All => None,
        Which::Tenants(ids) => Some(ids),
    };
    let mut snapshot = Snapshot {
        seq,
        tenants: IdMap::default(),
        keys: HashMap::new(),
    };
    if let (Some(present), Some(named)) = (present, named.as_ref()) {
        carry_over(&mut snapshot, present, named);
    }
    let mut tenants = read_tenants(tx, named.as_deref()).await?;
    read_keys(tx, named.as_deref(), &mut snapshot, &mut tenants).await?;
    let secrets = read_secrets(tx, named.as_deref()).await?;
    read_endpoints(tx, named.as_deref(), ring, secrets, &mut tenants).await?;
    for (id, tenant) in tenants {
        snapshot.tenants.insert(id, Arc::new(tenant));
    }
    Ok(snapshot)
}

/// Copies what did not change.
fn carry_over(snapshot: &mut Snapshot, present: &Snapshot, changed: &[Uuid]) {
    let changed: BTreeSet<_> = changed.iter().copied().collect();
    snapshot.tenants.clone_from(&present.tenants);
    snapshot
        .tenants
        .retain(|id, _| !changed.contains(&id.uuid()));
    snapshot.keys.clone_from(&present.keys);
    let stale = changed
        .iter()
        .filter_map(|id| present.tenants.get(&TenantId::from_uuid(*id)));
    for hash in stale.flat_map(|tenant| &tenant.key_hashes) {
        snapshot.keys.remove(hash);
    }
}

async fn read_tenants(
    tx: &mut Transaction<'static, Postgres>,
    named: Option<&[Uuid]>,
) -> Result<HashMap<TenantId, TenantConfig>, DatabaseError> {
    let rows = sqlx::query!(
        "SELECT id, name, environment FROM tenants
         WHERE deleted_at IS NULL AND ($1::uuid[] IS NULL OR id = ANY ($1))",
        named,
    )
    .fetch_all(tx.acquire().await?)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let id = TenantId::from_uuid(row.id);
            let environment = if row.environment == "live" {
                Environment::Live
            } else {
                Environment::Test
            };
            let tenant = TenantConfig {
                id,
                name: row.name,
                environment,
                key_hashes: Vec::new(),
                endpoints: IdMap::default(),
                exact: HashMap::new(),
                wild: Vec::new(),
                has_strict: false,
            };
            (id, tenant)
        })
        .collect())
}

async fn read_keys(
    tx: &mut Transaction<'static, Postgres>,
    named: Option<&[Uuid]>,
    snapshot: &mut Snapshot,
    tenants: &mut HashMap<TenantId, TenantConfig>,
) -> Result<(), DatabaseError> {
    let rows = sqlx::query!(
        "SELECT tenant_id, id, hash, scopes, expires_at FROM api_keys
         WHERE revoked_at IS NULL AND ($1::uuid[] IS NULL OR tenant_id = ANY ($1))",
        named,
    )
    .fetch_all(tx.acquire().await?)
    .await?;
    for row in rows {
        let Some(tenant) = tenants.get_mut(&TenantId::from_uuid(row.tenant_id)) else {
            continue;
        };
        let Ok(hash) = <[u8; 32]>::try_from(row.hash.as_slice()) else {
            continue;
        };
        // A scope that this program does not know (the database is newer) grants nothing.
        let scopes = row
            .scopes
            .iter()
            .filter_map(|scope| Scope::from_str(scope).ok())
            .collect();
        let key = KeyRecord {
            id: KeyId::from_uuid(row.id),
            tenant: tenant.id,
            scopes,
            expires_at: row.expires_at,
        };
        tenant.key_hashes.push(hash);
        snapshot.keys.insert(hash, Arc::new(key));
    }
    Ok(())
}

/// A secret as it lies in the database.
struct SealedSecret {
    key_id: String,
    sealed: Vec<u8>,
    retires_at: Option<DateTime<Utc>>,
    id: Uuid,
}

async fn read_secrets(
    tx: &mut Transaction<'static, Postgres>,
    named: Option<&[Uuid]>,
) -> Result<HashMap<Uuid, Vec<SealedSecret>>, DatabaseError> {
    let rows = sqlx::query!(
        "SELECT endpoint_id, id, key_id, sealed, retires_at FROM endpoint_secrets
         WHERE (retires_at IS NULL OR retires_at > now()) AND ($1::uuid[] IS NULL OR tenant_id = ANY ($1))
         ORDER BY endpoint_id, created_at DESC, id DESC",
        named,
    )
    .fetch_all(tx.acquire().await?)
    .await?;
    let mut secrets: HashMap<Uuid, Vec<SealedSecret>> = HashMap::new();
    for row in rows {
        let secret = SealedSecret {
            key_id: row.key_id,
            sealed: row.sealed,
            retires_at: row.retires_at,
            id: row.id,
        };
        secrets.entry(row.endpoint_id).or_default().push(secret);
    }
    Ok(secrets)
}

/// An endpoint's row, before it is understood.
struct EndpointRow {
    tenant_id: Uuid,
    id: Uuid,
    url: String,
    event_types: Vec<String>,
    headers_key_id: Option<String>,
    headers_sealed: Option<Vec<u8>>,
    retry_policy: String,
    max_age_s: i32,
    rate_per_second: Option<f64>,
    rate_burst: Option<i32>,
    max_in_flight: Option<i32>,
    timeout_ms: i32,
    fatal_statuses: Vec<i16>,
    header_prefix: String,
    compat_kind: Option<String>,
    compat_header: Option<String>,
    compat_key_id: Option<String>,
    compat_sealed: Option<Vec<u8>>,
    body: String,
    keep_responses: String,
    state: String,
    config_seq: i64,
}

async fn read_endpoints(
    tx: &mut Transaction<'static, Postgres>,
    named: Option<&[Uuid]>,
    ring: &KeyRing,
    mut secrets: HashMap<Uuid, Vec<SealedSecret>>,
    tenants: &mut HashMap<TenantId, TenantConfig>,
) -> Result<(), DatabaseError> {
    let rows = sqlx::query_as!(
        EndpointRow,
        "SELECT tenant_id, id, url, event_types, headers_key_id, headers_sealed, retry_policy, max_age_s, rate_per_second,
                rate_burst, max_in_flight, timeout_ms, fatal_statuses, header_prefix, compat_kind, compat_header, compat_key_id,
                compat_sealed, body, keep_responses, state, config_seq
         FROM endpoints
         WHERE deleted_at IS NULL AND ($1::uuid[] IS NULL OR tenant_id = ANY ($1))",
        named,
    )
    .fetch_all(tx.acquire().await?)
    .await?;
    for row in rows {
        let Some(tenant) = tenants.get_mut(&TenantId::from_uuid(row.tenant_id)) else {
            continue;
        };
        let sealed = secrets.remove(&row.id).unwrap_or_default();
        add(tenant, entry(&row, &sealed, ring));
    }
    Ok(())
}

/// Puts an endpoint into its tenant and the index of types.
fn add(tenant: &mut TenantConfig, entry: EndpointEntry) {
    tenant.has_strict |= entry.is_strict();
    if entry.state != EndpointState::Disabled {
        for pattern in &entry.patterns {
            match pattern.is_exact() {
                Some(exact) => tenant
                    .exact
                    .entry(exact.to_owned())
                    .or_default()
                    .push(entry.id),
                None => tenant.wild.push((pattern.clone(), entry.id)),
            }
        }
    }
    tenant.endpoints.insert(entry.id, Arc::new(entry));
}

fn entry(row: &EndpointRow, sealed: &[SealedSecret], ring: &KeyRing) -> EndpointEntry {
    let policy = serde_json::from_str::<RetryPolicy>(&row.retry_policy);
    let config = understand(row, sealed, ring);
    EndpointEntry {
        id: EndpointId::from_uuid(row.id),
        patterns: row
            .event_types
            .iter()
            .filter_map(|text| EventTypePattern::parse(text).ok())
            .collect(),
        state: EndpointState::from_str(&row.state).unwrap_or(EndpointState::Disabled),
        max_age: Duration::from_secs(u64::try_from(row.max_age_s).unwrap_or(0)),
        retry_policy: policy.unwrap_or_default(),
        rate_limit: rate_limit(row.rate_per_second, row.rate_burst),
        max_in_flight: row
            .max_in_flight
            .and_then(|limit| u32::try_from(limit).ok()),
        body: BodyForm::from_str(&row.body).unwrap_or(BodyForm::Payload),
        config_seq: row.config_seq,
        config,
    }
}

/// Opens and parses a row. The error is what the tenant will read with the failed attempt.
fn understand(
    row: &EndpointRow,
    sealed: &[SealedSecret],
    ring: &KeyRing,
) -> Result<EndpointConfig, String> {
    let unreadable =
        |what: &str| format!("the endpoint's {what} cannot be read by this version of the server");
    Ok(EndpointConfig {
        tenant: TenantId::from_uuid(row.tenant_id),
        id: EndpointId::from_uuid(row.id),
        url: EndpointUrl::parse(&row.url).map_err(|_| unreadable("url"))?,
        headers: headers(row, ring)?,
        retry_policy: serde_json::from_str(&row.retry_policy)
            .map_err(|_| unreadable("retry policy"))?,
        max_age: Duration::from_secs(u64::try_from(row.max_age_s).unwrap_or(0)),
        timeout: Duration::from_millis(u64::try_from(row.timeout_ms).unwrap_or(0)),
        fatal_statuses: row
            .fatal_statuses
            .iter()
            .filter_map(|status| u16::try_from(*status).ok())
            .collect(),
        body: BodyForm::from_str(&row.body).map_err(|_| unreadable("body"))?,
        keep_responses: KeepResponses::from_str(&row.keep_responses).unwrap_or(KeepResponses::None),
        state: EndpointState::from_str(&row.state).unwrap_or(EndpointState::Disabled),
        secrets: open_secrets(row, sealed, ring)?,
        signing: signing(row, ring)?,
        config_seq: row.config_seq,
    })
}

fn headers(row: &EndpointRow, ring: &KeyRing) -> Result<CustomHeaders, String> {
    let (Some(key_id), Some(sealed)) = (&row.headers_key_id, &row.headers_sealed) else {
        return Ok(CustomHeaders::default());
    };
    let closed = || {
        "the endpoint's headers are sealed by a master key that this server does not have"
            .to_owned()
    };
    let plain = ring
        .open(key_id, sealed, &associated_data(row.tenant_id, row.id))
        .map_err(|_| closed())?;
    serde_json::from_slice(plain.expose_secret())
        .map_err(|_| "the endpoint's headers cannot be read".to_owned())
}

/// What differs from Standard Webhooks, if anything does.
fn signing(row: &EndpointRow, ring: &KeyRing) -> Result<Option<Box<Signing>>, String> {
    let unreadable = || "the endpoint's signing cannot be read".to_owned();
    let prefix = HeaderPrefix::parse(&row.header_prefix).map_err(|_| unreadable())?;
    let form = compat_form(row.compat_kind.as_deref(), row.compat_header.as_deref());
    let form = form.map_err(|_| unreadable())?;
    if prefix.is_standard() && form.is_none() {
        return Ok(None);
    }
    let headers = SignatureHeaders::new(&prefix, form.as_ref()).map_err(|_| unreadable())?;
    let compat = match form {
        None => None,
        Some(form) => Some(Compat {
            form,
            secret: compat_secret(row, ring)?,
        }),
    };
    Ok(Some(Box::new(Signing { headers, compat })))
}

fn compat_secret(row: &EndpointRow, ring: &KeyRing) -> Result<CompatSecret, String> {
    let unreadable =
        || "the secret of the endpoint's compatibility scheme cannot be read".to_owned();
    let (Some(key_id), Some(sealed)) = (&row.compat_key_id, &row.compat_sealed) else {
        return Err(unreadable());
    };
    let plain = ring
        .open(key_id, sealed, &compat_data(row.tenant_id, row.id))
        .map_err(|_| {
            "the secret of the endpoint's compatibility scheme is sealed by a master key that this server does not have"
                .to_owned()
        })?;
    std::str::from_utf8(plain.expose_secret())
        .ok()
        .and_then(|text| CompatSecret::parse(text).ok())
        .ok_or_else(unreadable)
}

fn open_secrets(
    row: &EndpointRow,
    sealed: &[SealedSecret],
    ring: &KeyRing,
) -> Result<Vec<LiveSecret>, String> {
    let closed =
        || "a signing secret is sealed by a master key that this server does not have".to_owned();
    let mut open = Vec::with_capacity(sealed.len());
    for secret in sealed {
        let plain = ring
            .open(
                &secret.key_id,
                &secret.sealed,
                &associated_data(row.tenant_id, secret.id),
            )
            .map_err(|_| closed())?;
        let text = std::str::from_utf8(plain.expose_secret())
            .map_err(|_| "a signing secret cannot be read".to_owned())?;
        let secret_value =
            SigningSecret::parse(text).map_err(|_| "a signing secret cannot be read".to_owned())?;
        open.push(LiveSecret {
            secret: secret_value,
            retires_at: secret.retires_at,
        });
    }
    if open.is_empty() {
        return Err("the endpoint has no signing secret".to_owned());
    }
    Ok(open)
}

/// What binds a sealed value to its place: the tenant's and the object's id, 16 bytes each. A row
/// moved to another tenant or object does not open.
#[must_use]
pub(crate) fn associated_data(tenant: Uuid, object: Uuid) -> [u8; 32] {
    let mut data = [0; 32];
    let (first, second) = data.split_at_mut(16);
    first.copy_from_slice(tenant.as_bytes());
    second.copy_from_slice(object.as_bytes());
    data
}

/// The same of an endpoint's secret for a form of others, which lies in one row with its headers: neither opens as the other.
#[must_use]
pub(crate) fn compat_data(tenant: Uuid, endpoint: Uuid) -> Vec<u8> {
    [&associated_data(tenant, endpoint)[..], b"compat"].concat()
}

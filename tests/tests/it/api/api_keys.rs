//! API keys, as a caller with `admin` makes, sees and revokes them.

use http::Method;
use http::header::{AUTHORIZATION, CACHE_CONTROL, LOCATION};
use posthorn_domain::scope::Scope;
use serde_json::{Value, json};

use super::{Answer, Api, Program, ids, text};

const KEYS: &str = "/v1/api-keys";

impl Api {
    /// A program of a new tenant that may do everything.
    pub(super) async fn administrator(&self) -> Program<'_> {
        let tenant = self.tenants.tenant().await;
        self.program_of(tenant, &[Scope::Admin]).await
    }

    /// What a request with this key is answered.
    async fn with_key(&self, key: &str, path: &str) -> Answer {
        let request = http::Request::builder()
            .method(Method::GET)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {key}"))
            .body(axum::body::Body::empty())
            .unwrap();
        self.send(request).await
    }
}

/// INV-10: its text is shown once, and works at once.
#[tokio::test]
async fn a_key_is_made_with_the_scopes_that_were_asked_for_and_shown_once() {
    let api = Api::start().await;
    let admin = api.administrator().await;
    let asked = json!({ "name": "billing", "scopes": ["events:read", "events:write", "events:read"], "expires_at": "2999-01-01T00:00:00Z" });
    let answer = admin.post(KEYS, &asked).await;
    let made = answer.expect(201);
    let (id, key) = (text(&made, "id"), text(&made, "key"));
    assert_eq!(answer.headers[LOCATION], format!("{KEYS}/{id}"));
    assert_eq!(answer.headers[CACHE_CONTROL], "no-store");
    assert!(key.starts_with(&text(&made, "prefix")), "{made}");
    assert_eq!(made["scopes"], json!(["events:write", "events:read"]));
    assert_eq!(made["created_by"]["kind"], "api_key");
    api.with_key(&key, "/v1/events").await.expect(200);
    let refused = api.with_key(&key, "/v1/endpoints").await;
    refused.refuses(403, "scope_missing");
    let one = admin.get(&format!("{KEYS}/{id}")).await.expect(200);
    let all = admin.get(KEYS).await.expect(200);
    assert_eq!(one, all["data"][0]);
    assert_eq!(one["key"], Value::Null);
    assert!(!all.to_string().contains(&key));
    let log = admin.get("/v1/audit-log?limit=1").await.expect(200);
    assert_eq!(log["data"][0]["action"], "api_key.created");
    assert_eq!(log["data"][0]["actor"], made["created_by"]);
    assert!(!log.to_string().contains(&key));
}

/// E22.
#[tokio::test]
async fn a_revoked_key_is_refused_and_is_in_no_list() {
    let api = Api::start().await;
    let admin = api.administrator().await;
    let asked = json!({ "name": "a", "scopes": ["events:read"] });
    let made = admin.post(KEYS, &asked).await.expect(201);
    let (path, key) = (format!("{KEYS}/{}", text(&made, "id")), text(&made, "key"));
    admin.delete(&path).await.expect(204);
    let refused = api.with_key(&key, "/v1/events").await;
    refused.refuses(401, "unauthenticated");
    admin.get(&path).await.refuses(404, "not_found");
    admin.delete(&path).await.refuses(404, "not_found");
    assert_eq!(admin.walk(&format!("{KEYS}?limit=1")).await.len(), 1);
    let log = admin.get("/v1/audit-log?limit=1").await.expect(200);
    assert_eq!(log["data"][0]["action"], "api_key.revoked");
    assert_eq!(log["data"][0]["before"], json!({ "name": "a" }));
    // The last one that a tenant has may go, too: the command line makes another.
    let own = ids(&admin.get(KEYS).await.expect(200)).remove(0);
    admin.delete(&format!("{KEYS}/{own}")).await.expect(204);
    admin.get(KEYS).await.refuses(401, "unauthenticated");
}

#[tokio::test]
async fn a_key_that_is_not_well_asked_for_is_not_made() {
    let api = Api::start().await;
    let admin = api.administrator().await;
    let long = "n".repeat(101);
    for (asked, code, pointer) in [
        (
            json!({ "name": "", "scopes": ["admin"] }),
            "name_invalid",
            "/name",
        ),
        (
            json!({ "name": long, "scopes": ["admin"] }),
            "name_invalid",
            "/name",
        ),
        (
            json!({ "name": "a\0", "scopes": ["admin"] }),
            "name_invalid",
            "/name",
        ),
        (
            json!({ "name": "\u{1b}[2J", "scopes": ["admin"] }),
            "name_invalid",
            "/name",
        ),
        (
            json!({ "name": "  ", "scopes": ["admin"] }),
            "name_invalid",
            "/name",
        ),
        (json!({ "scopes": ["admin"] }), "field_missing", "/name"),
        (json!({ "name": "a" }), "field_missing", "/scopes"),
        (
            json!({ "name": "a", "scopes": [] }),
            "field_invalid",
            "/scopes",
        ),
        (
            json!({ "name": "a", "scopes": ["root"] }),
            "field_invalid",
            "/scopes/0",
        ),
        (
            json!({ "name": "a", "scopes": ["admin"], "expires_at": "2020-01-01T00:00:00Z" }),
            "field_invalid",
            "/expires_at",
        ),
        (
            json!({ "name": "a", "scopes": ["admin"], "expires_at": "soon" }),
            "field_invalid",
            "/expires_at",
        ),
        (
            json!({ "name": "a", "scopes": ["admin"], "tenant": "x" }),
            "field_unknown",
            "/tenant",
        ),
    ] {
        let refused = admin.post(KEYS, &asked).await.refuses(422, code);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{asked}");
    }
    assert_eq!(admin.walk(KEYS).await.len(), 1);
}

/// INV-9, E18.
#[tokio::test]
async fn another_tenants_key_is_neither_seen_nor_revoked_and_no_key_without_admin_makes_any() {
    let api = Api::start().await;
    let (admin, stranger, program) = (
        api.administrator().await,
        api.administrator().await,
        api.program().await,
    );
    let asked = json!({ "name": "a", "scopes": ["events:read"] });
    let made = admin.post(KEYS, &asked).await.expect(201);
    let path = format!("{KEYS}/{}", text(&made, "id"));
    stranger.get(&path).await.refuses(404, "not_found");
    stranger.delete(&path).await.refuses(404, "not_found");
    assert!(!stranger.walk(KEYS).await.contains(&text(&made, "id")));
    api.with_key(&text(&made, "key"), "/v1/events")
        .await
        .expect(200);
    program
        .post(KEYS, &asked)
        .await
        .refuses(403, "scope_missing");
    program.get(KEYS).await.refuses(403, "scope_missing");
}

/// INV-11: keys are in every node's memory.
#[tokio::test]
async fn a_tenant_has_so_many_keys_in_force_and_a_revoked_or_expired_one_makes_room() {
    let api = Api::start().await;
    let admin = api.administrator().await;
    api.rows
        .run(
            "INSERT INTO api_keys (tenant_id, id, name, prefix, hash, scopes, expires_at)
             SELECT k.tenant_id, gen_random_uuid(), 'n', 'ph_live_0000', sha256(n::text::bytea), '{admin}', now() + interval '1 day'
             FROM api_keys AS k, generate_series(1, 199) AS n",
        )
        .await;
    let asked = json!({ "name": "a", "scopes": ["events:read"] });
    let refused = admin.post(KEYS, &asked).await;
    refused.refuses(409, "too_many_api_keys");
    api.rows
        .run("UPDATE api_keys SET expires_at = now() WHERE ctid = (SELECT ctid FROM api_keys WHERE expires_at IS NOT NULL LIMIT 1)")
        .await;
    admin.post(KEYS, &asked).await.expect(201);
}

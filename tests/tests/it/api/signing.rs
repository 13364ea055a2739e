//! How an endpoint signs, as it is set, changed and shown.

use serde_json::{Value, json};

use super::Api;

const ENDPOINTS: &str = "/v1/endpoints";
const ONE: &str = "/v1/endpoints/uid:one";
const SECRET: &str = "canary-0123456789";

#[tokio::test]
async fn how_an_endpoint_signs_is_merged_and_null_brings_the_default_back() {
    let api = Api::start().await;
    let program = api.program().await;
    let made = program.endpoint(json!({ "uid": "one" })).await;
    let standard = json!({ "schemes": ["v1"], "header_prefix": "webhook", "compat": null });
    assert_eq!(made["signing"], standard);
    let github = json!({ "kind": "github", "header": "x-hub-signature-256" });
    let stripe = json!({ "kind": "stripe", "header": "x-stripe" });
    for (change, signing) in [
        (
            json!({ "header_prefix": "Svix" }),
            json!({ "schemes": ["v1"], "header_prefix": "svix", "compat": null }),
        ),
        (
            json!({ "compat": { "kind": "github", "secret": SECRET } }),
            json!({ "schemes": ["v1"], "header_prefix": "svix", "compat": github }),
        ),
        (
            json!({ "compat": { "kind": "stripe", "header": "X-Stripe" }, "header_prefix": null }),
            json!({ "schemes": ["v1"], "header_prefix": "webhook", "compat": stripe }),
        ),
        (
            json!({ "schemes": ["v1a"] }),
            json!({ "schemes": ["v1a"], "header_prefix": "webhook", "compat": stripe }),
        ),
        (Value::Null, standard),
    ] {
        let change = json!({ "signing": change });
        program.patch(ONE, &change).await.expect(200);
        let read = program.get(ONE).await.expect(200);
        assert_eq!(read["signing"], signing, "after {change}");
    }
}

#[tokio::test]
async fn what_cannot_sign_is_refused_on_create_and_on_change() {
    let api = Api::start().await;
    let program = api.program().await;
    program.endpoint(json!({ "uid": "one" })).await;
    for (signing, code, pointer) in [
        (
            json!({ "header_prefix": "a_b" }),
            "field_invalid",
            "/signing/header_prefix",
        ),
        (
            json!({ "header_prefix": "posthorn" }),
            "field_invalid",
            "/signing/header_prefix",
        ),
        (
            json!({ "compat": { "secret": SECRET } }),
            "field_missing",
            "/signing/compat/kind",
        ),
        (
            json!({ "compat": { "kind": "github" } }),
            "field_missing",
            "/signing/compat/secret",
        ),
        (
            json!({ "compat": { "kind": "hmac_sha256", "secret": SECRET } }),
            "field_missing",
            "/signing/compat/header",
        ),
        (
            json!({ "compat": { "kind": "github", "secret": "too short" } }),
            "secret_invalid",
            "/signing/compat/secret",
        ),
        (
            json!({ "compat": { "kind": "github", "secret": SECRET, "header": "Content-Length" } }),
            "header_invalid",
            "/signing/compat/header",
        ),
        (
            json!({ "header_prefix": "svix", "compat": { "kind": "github", "secret": SECRET, "header": "svix-id" } }),
            "header_invalid",
            "/signing/compat/header",
        ),
        (
            json!({ "compat": { "kind": "github", "secret": SECRET, "form": "hex" } }),
            "field_unknown",
            "/signing/compat/form",
        ),
    ] {
        let body = json!({ "url": "http://127.0.0.1:9/", "signing": signing });
        let made = program.post(ENDPOINTS, &body).await.refuses(422, code);
        let changed = program.patch(ONE, &json!({ "signing": signing })).await;
        let changed = changed.refuses(422, code);
        for refused in [made, changed] {
            assert_eq!(refused["errors"][0]["pointer"], pointer, "{signing}");
        }
    }
}

/// B16, with the names that this endpoint's signatures have.
#[tokio::test]
async fn a_header_that_a_signature_has_is_refused_whichever_comes_first() {
    let api = Api::start().await;
    let program = api.program().await;
    let signing =
        json!({ "header_prefix": "svix", "compat": { "kind": "stripe", "secret": SECRET } });
    for name in [
        "Svix-Signature",
        "svix_id",
        "svix-timestamp",
        "STRIPE-SIGNATURE",
    ] {
        let headers = json!({ name: "x" });
        let body = json!({ "url": "http://127.0.0.1:9/", "signing": signing, "headers": headers });
        let refused = program.post(ENDPOINTS, &body).await;
        let refused = refused.refuses(422, "header_invalid");
        assert_eq!(refused["errors"][0]["pointer"], format!("/headers/{name}"));
        let free = program.endpoint(json!({ "headers": headers })).await;
        let free = format!("{ENDPOINTS}/{}", super::text(&free, "id"));
        let refused = program.patch(&free, &json!({ "signing": signing })).await;
        let refused = refused.refuses(422, "header_invalid");
        let kept = format!("/headers/{}", name.to_lowercase());
        assert_eq!(refused["errors"][0]["pointer"], kept);
        let signs = program.endpoint(json!({ "signing": signing })).await;
        let signs = format!("{ENDPOINTS}/{}", super::text(&signs, "id"));
        let refused = program.patch(&signs, &json!({ "headers": headers })).await;
        refused.refuses(422, "header_invalid");
    }
}

/// INV-10.
#[tokio::test]
async fn the_secret_of_anothers_form_lies_sealed_and_is_read_by_permission_alone() {
    let api = Api::start().await;
    let program = api.program().await;
    let signing = json!({ "compat": { "kind": "github", "secret": SECRET } });
    let fields = json!({ "uid": "one", "signing": signing, "headers": { "x-own": "1" } });
    let made = program.endpoint(fields).await;
    assert!(!made.to_string().contains(SECRET));
    let shown = program.get(ONE).await.expect(200);
    assert!(!shown.to_string().contains(SECRET));
    let plain = "SELECT count(*) FROM endpoints e
                 WHERE strpos(e::text, 'canary') > 0 OR position('canary'::bytea IN compat_sealed) > 0";
    assert_eq!(api.rows.number(plain).await, 0);
    let secrets = program.get(&format!("{ONE}/secrets")).await.expect(200);
    assert_eq!(
        secrets["compat"],
        json!({ "kind": "github", "header": "x-hub-signature-256", "secret": SECRET })
    );
    // A change of something else keeps both, and headers do not open as the secret.
    let change = json!({ "headers": { "x-own": "2" }, "description": "new" });
    program.patch(ONE, &change).await.expect(200);
    let kept = program.get(&format!("{ONE}/secrets")).await.expect(200);
    assert_eq!(kept["compat"], secrets["compat"]);
    let swapped =
        "UPDATE endpoints SET compat_sealed = headers_sealed, compat_key_id = headers_key_id";
    api.rows.run(swapped).await;
    program
        .get(&format!("{ONE}/secrets"))
        .await
        .refuses(500, "internal");
}

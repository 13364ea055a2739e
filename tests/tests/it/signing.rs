//! How requests are signed, seen by receivers of the real program: schemes, names of headers, the forms of other senders.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::compat::{Compat, CompatForm, CompatKind, CompatSecret};
use posthorn_domain::secret::SigningSecret;
use posthorn_domain::signature::{VerifyingKey, verify};
use posthorn_store::entropy::Entropy;
use posthorn_tests::program::At;
use posthorn_tests::receiver::Received;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::alg_id;

use crate::stage::Stage;

const SECRET: &str = "It's a Secret to Everybody";

impl Stage {
    /// An endpoint that signs so.
    async fn signing(&self, path: &str, signing: &Value) -> Value {
        self.api
            .endpoint(&json!({ "url": self.receiver.url(path), "signing": signing }))
            .await
    }

    /// What a new event brings to a path.
    async fn brought(&self, path: &str, payload: &[u8]) -> Received {
        self.api.submit("a.b", payload).await;
        self.arrived(path, 1).await.remove(0)
    }
}

/// Whether the bytes are signed with the public key, by ed25519 as it stands in RFC 8032 and nothing of ours.
pub(crate) fn is_signed(public: &str, message: &[u8], signature: &str) -> bool {
    let provider = aws_lc_rs::default_provider();
    let ed25519 = provider
        .signature_verification_algorithms
        .all
        .iter()
        .find(|algorithm| algorithm.signature_alg_id() == alg_id::ED25519)
        .unwrap();
    let decoded = |text: &str| STANDARD.decode(text).unwrap();
    let public = decoded(public.strip_prefix("whpk_").unwrap());
    ed25519
        .verify_signature(&public, message, &decoded(signature))
        .is_ok()
}

/// Whether a request verifies with the shared secret of an endpoint.
#[track_caller]
pub(crate) fn assert_verifies(request: &Received, endpoint: &Value, whether: bool) {
    let header = |name| request.header(name).unwrap();
    let verifies = verify(
        header("webhook-signature"),
        &[VerifyingKey::parse(&endpoint.text("/secret")).unwrap()],
        header("webhook-id"),
        header("webhook-timestamp").parse().unwrap(),
        &request.body,
    );
    assert_eq!(verifies, whether);
}

/// What is signed: id, time and body.
pub(crate) fn content(request: &Received) -> Vec<u8> {
    let header = |name| request.header(name).unwrap();
    let head = format!("{}.{}.", header("webhook-id"), header("webhook-timestamp"));
    [head.as_bytes(), &request.body].concat()
}

/// INV-4.
#[tokio::test]
async fn a_key_pair_signs_and_a_plain_ed25519_verifies() {
    let stage = Stage::set().await;
    let made = stage.signing("/v1a", &json!({ "schemes": ["v1a"] })).await;
    let request = stage.brought("/v1a", b"{\"n\": 1}").await;
    let header = request.header("webhook-signature").unwrap();
    let signature = header.strip_prefix("v1a,").unwrap();
    let public = made.text("/public_key");
    let content = content(&request);
    assert!(is_signed(&public, &content, signature));
    assert!(!is_signed(
        &public,
        &[&content[..], b" "].concat(),
        signature
    ));
}

/// INV-4.
#[tokio::test]
async fn with_both_schemes_each_request_verifies_by_either_alone() {
    let stage = Stage::set().await;
    let made = stage
        .signing("/both", &json!({ "schemes": ["v1", "v1a"] }))
        .await;
    let request = stage.brought("/both", b"{}").await;
    let header = request.header("webhook-signature").unwrap();
    let signatures: Vec<_> = header.split(' ').collect();
    assert_eq!(signatures.len(), 2, "{header}");
    assert_verifies(&request, &made, true);
    let by_pair = signatures
        .iter()
        .find_map(|one| one.strip_prefix("v1a,"))
        .unwrap();
    let public = made.text("/public_key");
    assert!(is_signed(&public, &content(&request), by_pair));
}

/// INV-4.
#[tokio::test]
async fn the_signatures_headers_have_the_names_that_the_receiver_knows() {
    let stage = Stage::set().await;
    let made = stage
        .signing("/svix", &json!({ "header_prefix": "svix" }))
        .await;
    let submission = json!({ "type": "a.b", "payload": {}, "headers": { "svix_signature": "forged", "x-own": "1" } });
    let answer = stage.api.post("/v1/events", submission.to_string()).await;
    let id = answer.expect(202).text("/id");
    let request = stage.arrived("/svix", 1).await.remove(0);
    assert_eq!(request.header("svix-id"), Some(id.as_str()));
    assert_eq!(request.header("x-own"), Some("1"));
    let shared = [VerifyingKey::parse(&made.text("/secret")).unwrap()];
    assert!(verify(
        request.header("svix-signature").unwrap(),
        &shared,
        &id,
        request.header("svix-timestamp").unwrap().parse().unwrap(),
        &request.body
    ));
    for absent in [
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "svix_signature",
    ] {
        assert_eq!(request.header(absent), None, "{absent}");
    }
}

/// INV-4: in the form that GitHub and Stripe tell receivers to verify, or as the bare HMAC.
#[tokio::test]
async fn a_signature_in_the_form_of_another_sender_stands_beside_ours() {
    let stage = Stage::set().await;
    for (kind, header) in [
        (CompatKind::Github, None),
        (CompatKind::Stripe, None),
        (CompatKind::HmacSha256, Some("x-acme-signature")),
    ] {
        let path = format!("/{kind}");
        let signing =
            json!({ "compat": { "kind": kind.as_str(), "header": header, "secret": SECRET } });
        let made = stage.signing(&path, &signing).await;
        let request = stage.brought(&path, b"{\"n\": 1}").await;
        let compat = Compat {
            form: CompatForm::new(kind, header).unwrap(),
            secret: CompatSecret::parse(SECRET).unwrap(),
        };
        let timestamp = request.header("webhook-timestamp").unwrap().parse();
        let timestamp = timestamp.unwrap();
        assert_eq!(
            request.header(compat.form.header()),
            Some(compat.sign(timestamp, &request.body).as_str()),
            "{kind}"
        );
        assert_verifies(&request, &made, true);
    }
}

/// B07.
#[test]
fn ten_thousand_generated_secrets_hold_32_bytes_and_differ() {
    let mut seen = BTreeSet::new();
    for _ in 0..10_000 {
        let secret = SigningSecret::generate_v1(Entropy.bytes());
        let text = secret.expose().expose_secret().to_owned();
        let bytes = STANDARD.decode(text.strip_prefix("whsec_").unwrap());
        assert_eq!(bytes.unwrap().len(), 32);
        assert!(seen.insert(text));
    }
}

/// B15: the caller's own id is a uid of limited characters, and never what is signed.
#[tokio::test]
async fn a_callers_own_id_is_kept_beside_and_never_signed() {
    let stage = Stage::set().await;
    let made = stage.signing("/ok", &json!({})).await;
    let submit = async |uid: &str| {
        let submission = json!({ "type": "a.b", "payload": {}, "uid": uid });
        stage.api.post("/v1/events", submission.to_string()).await
    };
    for uid in ["a 1 b", &"a".repeat(300), "\u{e9}"] {
        let refused = submit(uid).await.expect(422);
        assert_eq!(refused.text("/code"), "uid_invalid", "{uid:?}");
    }
    let accepted = submit("a.1.b").await.expect(202);
    assert_eq!(accepted.text("/uid"), "a.1.b");
    let id = accepted.text("/id");
    assert!(!id.contains('.'), "{id}");
    let request = stage.arrived("/ok", 1).await.remove(0);
    assert_eq!(request.header("webhook-id"), Some(id.as_str()));
    assert_verifies(&request, &made, true);
}

/// B16: what is sent has each name once, and the endpoint's value where the event has one, too.
#[tokio::test]
async fn a_custom_header_overrides_nothing_and_stands_once_on_the_wire() {
    let stage = Stage::set().await;
    let url = stage.receiver.url("/ok");
    for name in [
        "Webhook-Signature",
        "WEBHOOK-ID",
        "Content-Length",
        "Host",
        "Transfer-Encoding",
        "Connection",
    ] {
        let endpoint = json!({ "url": url, "headers": { name: "x" } });
        let refused = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
        assert_eq!(
            refused.expect(422).text("/code"),
            "header_invalid",
            "{name}"
        );
    }
    let twice = json!({ "url": url, "headers": { "X-Own": "1", "x-own": "2" } });
    let refused = stage.api.post("/v1/endpoints", twice.to_string()).await;
    assert_eq!(refused.expect(422).text("/code"), "header_invalid");

    let headers = json!({ "X-Own": "the endpoint's" });
    let fields = json!({ "url": url, "headers": headers });
    stage.api.endpoint(&fields).await;
    let headers = json!({ "x-own": "the event's", "X_Own": "the event's", "X-Event": "1" });
    let submission = json!({ "type": "a.b", "payload": {}, "headers": headers });
    let answer = stage.api.post("/v1/events", submission.to_string()).await;
    answer.expect(202);
    let request = stage.arrived("/ok", 1).await.remove(0);
    let mut names: Vec<_> = request
        .headers
        .iter()
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "webhook-id",
            "webhook-signature",
            "webhook-timestamp",
            "x-event",
            "x-own"
        ]
    );
    assert_eq!(request.header("x-own"), Some("the endpoint's"));
}

/// B18.
#[tokio::test]
async fn two_tenants_with_one_url_have_two_secrets_and_neither_verifies_for_the_other() {
    let stage = Stage::set().await;
    let stranger = stage.stranger().await;
    let url = json!({ "url": stage.receiver.url("/ok") });
    let [ours, theirs] = [
        stage.api.endpoint(&url).await,
        stranger.endpoint(&url).await,
    ];
    assert_ne!(ours.text("/secret"), theirs.text("/secret"));
    let id = stage.api.submit("a.b", b"{}").await;
    stranger.submit("a.b", b"{}").await;
    for request in stage.arrived("/ok", 2).await {
        let is_ours = request.header("webhook-id") == Some(&id);
        assert_verifies(&request, &ours, is_ours);
        assert_verifies(&request, &theirs, !is_ours);
    }
}

//! Tests of the module that this file stands beside.

use super::*;

fn compat(kind: CompatKind, header: Option<&str>, secret: &str) -> Compat {
    Compat {
        form: CompatForm::new(kind, header).unwrap(),
        secret: CompatSecret(secret.into()),
    }
}

/// The values by which GitHub lets a receiver try its own code.
/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation>
#[test]
fn githubs_own_vector_is_signed_so() {
    let secret = "It's a Secret to Everybody";
    assert!(CompatSecret::parse(secret).is_ok());
    let compat = compat(CompatKind::Github, None, secret);
    assert_eq!(compat.form.header(), "x-hub-signature-256");
    assert_eq!(
        compat.sign(1, b"Hello, World!"),
        "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    );
}

/// The values that Stripe's own library is tested with: secret, time and signature of `EventUtilityTest`, over the bytes of
/// `event_test_signature.json` (<https://github.com/stripe/stripe-dotnet/tree/master/src/StripeTests>).
#[test]
fn stripes_own_vector_is_signed_so() {
    let body = concat!(
        "{\n  \"id\": \"evt_123\",\n  \"object\": \"event\",\n  \"account\": \"acct_123\",\n  \"api_version\": \"2017-05-25\",\n",
        "  \"created\": 1533204620,\n  \"data\": {\n    \"object\": {\n      \"id\": \"cus_123\",\n      \"object\": \"customer\",\n",
        "      \"created\": 123456789,\n      \"email\": \"test@stripe.com\",\n      \"livemode\": false,\n      \"metadata\": {}\n",
        "    }\n  },\n  \"livemode\": false,\n  \"pending_webhooks\": 1,\n  \"request\": {\n    \"id\": \"req_123\",\n",
        "    \"idempotency_key\": \"idempotency-key-123\"\n  },\n  \"type\": \"customer.created\"\n}\n",
    );
    let compat = compat(CompatKind::Stripe, None, "webhook_secret");
    assert_eq!(compat.form.header(), "stripe-signature");
    assert_eq!(
        compat.sign(1_533_204_620, body.as_bytes()),
        "t=1533204620,v1=2220f87ef101a04665f11cdf770523143f875572008577fa0f20882ddb9cc3c7"
    );
}

/// Test case 2 of RFC 4231.
#[test]
fn a_bare_signature_is_the_hmac_in_hexadecimal() {
    let compat = compat(CompatKind::HmacSha256, Some("X-Signature"), "Jefe");
    assert_eq!(compat.form.header(), "x-signature");
    assert_eq!(
        compat.sign(1, b"what do ya want for nothing?"),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[test]
fn a_secret_has_16_to_256_printable_characters() {
    for (text, taken) in [
        ("a".repeat(15), false),
        ("a".repeat(16), true),
        ("~ ".repeat(128), true),
        ("a".repeat(257), false),
        (format!("{}\n", "a".repeat(20)), false),
        (format!("{}\u{e9}", "a".repeat(20)), false),
        (String::new(), false),
    ] {
        assert_eq!(CompatSecret::parse(&text).is_ok(), taken, "{text:?}");
    }
}

#[test]
fn a_bare_signature_needs_a_header_and_none_that_is_taken() {
    let new = |header| CompatForm::new(CompatKind::HmacSha256, header);
    assert_eq!(new(None), Err(CompatError::HeaderMissing));
    for name in ["webhook-signature", "Host", "content_length", "a b", ""] {
        assert!(
            matches!(new(Some(name)), Err(CompatError::Header(_))),
            "{name}"
        );
    }
}

//! Which of a receiver's headers are kept without their values: those that carry credentials or start a session.

use std::borrow::Cow;

use posthorn_domain::header::alike;
use url::{ParseError, Position, Url};

/// What stands in the place of a masked value.
pub const MASKED: &str = "[masked]";

/// The value of a receiver's header as it may be kept and shown: masked when the header carries credentials, else as text,
/// with what is not UTF-8 replaced, and of a URL that it points to without who logs in there.
#[must_use]
pub fn mask_value<'a>(name: &str, value: &'a [u8]) -> Cow<'a, str> {
    if carries_credentials(name) {
        return Cow::Borrowed(MASKED);
    }
    let text = String::from_utf8_lossy(value);
    let is_reference = ["location", "content-location"]
        .iter()
        .any(|known| alike(known, name));
    let masked = if is_reference {
        without_userinfo(&text)
    } else {
        None
    };
    masked.map_or(text, Cow::Owned)
}

fn carries_credentials(name: &str) -> bool {
    const NAMES: [&str; 14] = [
        "api-key",
        "authentication-info",
        "authorization",
        "cookie",
        "set-cookie",
        "set-cookie2",
        "www-authenticate",
        "x-access-token",
        "x-amz-security-token",
        "x-api-key",
        "x-auth-token",
        "x-csrf-token",
        "x-session-id",
        "x-xsrf-token",
    ];
    let begins = |start: &str| {
        name.get(..start.len())
            .is_some_and(|begin| alike(begin, start))
    };
    NAMES.iter().any(|known| alike(known, name)) || begins("proxy-")
}

/// A reference to a URL (RFC 3986, 4.1) that names a user or password, with these masked. Read as browsers read it: what is meant for
/// one is a credential, too. What nobody can read is masked as a whole, since it may hold anything.
fn without_userinfo(reference: &str) -> Option<String> {
    if !reference.contains('@') {
        return None;
    }
    let (parsed, is_relative) = match Url::parse(reference) {
        Err(ParseError::RelativeUrlWithoutBase) => {
            let base = Url::parse("https://endpoint.invalid/").ok();
            let parsed = Url::options().base_url(base.as_ref()).parse(reference);
            (parsed, true)
        }
        parsed => (parsed, false),
    };
    let Ok(url) = parsed else {
        return Some(MASKED.to_owned());
    };
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let start = if is_relative {
        Position::AfterScheme
    } else {
        Position::BeforeScheme
    };
    let before = url[start..Position::BeforeUsername].trim_start_matches(':');
    Some(format!("{before}{MASKED}@{}", &url[Position::BeforeHost..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_in_any_case_and_with_either_dash() {
        for name in [
            "Set-Cookie",
            "set-cookie",
            "AUTHORIZATION",
            "www-authenticate",
            "Proxy-Authenticate",
            "proxy-x",
            "Proxy_Authenticate",
            "set_cookie",
            "x_api_key",
            "X-Auth-Token",
            "x-access-token",
            "X-Amz-Security-Token",
            "x-csrf-token",
            "X-XSRF-TOKEN",
            "api-key",
            "X-Session-Id",
        ] {
            assert_eq!(mask_value(name, b"s3cret"), MASKED, "{name}");
        }
    }

    #[test]
    fn other_values_are_kept_as_text() {
        assert_eq!(mask_value("location", b"/next"), "/next");
        assert_eq!(mask_value("x-odd", b"a\xffb"), "a\u{fffd}b");
    }

    #[test]
    fn who_logs_in_at_a_location_is_masked_and_nothing_else_of_it() {
        for (value, kept) in [
            (
                "https://u:canary@a.test/x?y=@z",
                "https://[masked]@a.test/x?y=@z",
            ),
            (
                "https://u@canary@a.test:1/@b",
                "https://[masked]@a.test:1/@b",
            ),
            ("https://:canary@a.test/", "https://[masked]@a.test/"),
            ("https:canary@a.test/", "https://[masked]@a.test/"),
            ("https:/\t/canary@a.test/", "https://[masked]@a.test/"),
            ("foo://canary@a/b", "foo://[masked]@a/b"),
            ("//canary@a.test/", "//[masked]@a.test/"),
            (r"\\canary@a.test\b", "//[masked]@a.test/b"),
            ("https://u:canary@a.test:99999/", "[masked]"),
            ("https://a.test/b@c", "https://a.test/b@c"),
            ("https://A.test?b@c", "https://A.test?b@c"),
            ("mailto:a@b", "mailto:a@b"),
            ("/a@b", "/a@b"),
            ("a@b", "a@b"),
            ("https://[", "https://["),
            ("", ""),
        ] {
            for name in ["location", "Location", "content-location"] {
                assert_eq!(mask_value(name, value.as_bytes()), kept);
            }
        }
    }
}

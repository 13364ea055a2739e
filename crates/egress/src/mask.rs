//! Which of a receiver's headers are kept without their values: those that carry credentials or start a session.

use std::borrow::Cow;

/// What stands in the place of a masked value.
pub const MASKED: &str = "[masked]";

/// The value of a receiver's header as it may be kept and shown: masked when the header carries credentials, else as text,
/// with what is not UTF-8 replaced.
#[must_use]
pub fn mask_value<'a>(name: &str, value: &'a [u8]) -> Cow<'a, str> {
    if carries_credentials(name) {
        Cow::Borrowed(MASKED)
    } else {
        String::from_utf8_lossy(value)
    }
}

fn carries_credentials(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "authentication-info",
        "authorization",
        "cookie",
        "set-cookie",
        "set-cookie2",
        "www-authenticate",
        "x-api-key",
    ];
    let begins = |start: &str| {
        name.get(..start.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    NAMES.iter().any(|known| name.eq_ignore_ascii_case(known)) || begins("proxy-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_in_any_case() {
        for name in [
            "Set-Cookie",
            "set-cookie",
            "AUTHORIZATION",
            "www-authenticate",
            "Proxy-Authenticate",
            "proxy-x",
        ] {
            assert_eq!(mask_value(name, b"s3cret"), MASKED, "{name}");
        }
    }

    #[test]
    fn other_values_are_kept_as_text() {
        assert_eq!(mask_value("location", b"/next"), "/next");
        assert_eq!(mask_value("x-odd", b"a\xffb"), "a\u{fffd}b");
    }
}

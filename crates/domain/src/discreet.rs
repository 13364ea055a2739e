//! Texts of others, such as the errors of libraries, without what may be a credential in them (INV-10).

use std::borrow::Cow;

/// A text whose URLs are cut to scheme and host: `https://example.com/…`. A user and password, a path and a query may each be a
/// credential. Where there is an `@` nobody can tell what of it is the host, and the scheme alone is left: `postgres://…`.
#[must_use]
pub fn without_urls(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        let is_part = |c: char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '`' | '<' | '>');
        let end = after.find(|c| !is_part(c)).unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        kept.push_str(before);
        kept.push_str("://");
        let host = url.find(['/', '?', '#']).unwrap_or(url.len());
        match url.split_at(host) {
            _ if url.contains('@') => kept.push('\u{2026}'),
            (host, "") => kept.push_str(host),
            (host, _) => {
                kept.push_str(host);
                kept.push_str("/\u{2026}");
            }
        }
        rest = behind;
    }
    if kept.is_empty() {
        return Cow::Borrowed(text);
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

#[cfg(test)]
mod tests {
    use super::without_urls;

    #[test]
    fn a_url_is_cut_to_its_scheme_and_host() {
        for (text, told) in [
            ("nothing to see", "nothing to see"),
            ("at https://example.com:8443", "at https://example.com:8443"),
            (
                "at https://example.com/secret?token=canary, twice \"http://a.b?canary\"",
                "at https://example.com/\u{2026} twice \"http://a.b/\u{2026}\"",
            ),
            (
                "postgres://user:canary@db/x failed",
                "postgres://\u{2026} failed",
            ),
            ("postgres://user:can/ary@db/x", "postgres://\u{2026}"),
            ("http://a.b/?mail=x@canary y", "http://\u{2026} y"),
            ("://canary@", "://\u{2026}"),
        ] {
            assert_eq!(without_urls(text), told, "{text}");
        }
    }
}

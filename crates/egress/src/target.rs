//! What of a URL goes into a request, and whose it is: by both together connections are shared.

use posthorn_domain::{id::TenantId, url::EndpointUrl};

use crate::pool::Sharers;

/// The parts of an endpoint's URL, of which there is one spelling: no user, a canonical host, the scheme's own port left out, and
/// a path that begins with a slash.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// Whose request it is.
    pub(crate) tenant: TenantId,
    /// All of it.
    pub(crate) url: &'a EndpointUrl,
    /// Scheme, host and port: `https://example.com`.
    pub(crate) origin: &'a str,
    /// Host and port as the `Host` header has them: `example.com`, `example.com:8443`, `[::1]:8080`.
    pub(crate) authority: &'a str,
    /// Path and query as the request line has them.
    pub(crate) path: &'a str,
}

impl<'a> Target<'a> {
    /// Takes a URL to pieces.
    pub(crate) fn of(tenant: TenantId, url: &'a EndpointUrl) -> Self {
        let text = url.as_str();
        let host = url.scheme().as_str().len() + "://".len();
        let after = text.get(host..).unwrap_or_default();
        let (authority, path) = after.split_at(after.find('/').unwrap_or(after.len()));
        Self {
            tenant,
            url,
            origin: text.get(..host + authority.len()).unwrap_or_default(),
            authority,
            path,
        }
    }

    /// Who else may use its connection.
    pub(crate) fn sharers(&self) -> Sharers<'a> {
        Sharers {
            tenant: self.tenant,
            origin: self.origin,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_parts_of_a_url_are_those_of_its_canonical_text() {
        for (url, origin, authority, path) in [
            (
                "HTTPS://Example.com:443",
                "https://example.com",
                "example.com",
                "/",
            ),
            (
                "http://example.com:443/a/b?c=/d",
                "http://example.com:443",
                "example.com:443",
                "/a/b?c=/d",
            ),
            (
                "http://example.com?q=//x",
                "http://example.com",
                "example.com",
                "/?q=//x",
            ),
            (
                "https://[::1]:8443//a",
                "https://[::1]:8443",
                "[::1]:8443",
                "//a",
            ),
            (
                "http://\u{fc}ber.example/",
                "http://xn--ber-goa.example",
                "xn--ber-goa.example",
                "/",
            ),
        ] {
            let url = EndpointUrl::parse(url).unwrap();
            let target = Target::of(TenantId::from_uuid(Uuid::nil()), &url);
            assert_eq!(
                (target.origin, target.authority, target.path),
                (origin, authority, path)
            );
        }
    }
}

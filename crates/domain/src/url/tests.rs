//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

fn url(text: &str) -> EndpointUrl {
    EndpointUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refusal(text: &str) -> Option<UrlError> {
    EndpointUrl::parse(text).err()
}

#[test]
fn path_and_query_stay_byte_for_byte() {
    for text in [
        "http://127.0.0.1:8410/a%2Fb//c/;x=1?x=1&x=2&e=%20+%C3%A9&k=",
        "https://example.com/a/%41/~b/!$&'()*+,;=:@",
        "https://example.com/?a=b?c=/d&&=&",
        "https://example.com/??",
        "https://example.com/a|b[c]",
        "https://example.com/%zz?%",
        "https://example.com/.well-known/..a/a..",
    ] {
        assert_eq!(url(text).as_str(), text);
    }
}

#[test]
fn a_target_that_would_be_rewritten_is_refused() {
    for text in [
        "https://example.com/a/../b",
        "https://example.com/./b",
        "https://example.com/a/%2e%2E/b",
        "https://example.com/..",
        "https://example.com/caf\u{e9}",
        "https://example.com/?q=\u{e9}",
        "https://example.com/\"",
        "https://example.com/{id}",
        "https://example.com/?q=<x>",
        "https://example.com/?q='",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Rewritten), "{text}");
    }
}

#[test]
fn an_empty_path_is_the_root() {
    assert_eq!(
        url("http://127.0.0.1:8410").as_str(),
        "http://127.0.0.1:8410/"
    );
    assert_eq!(
        url("http://127.0.0.1:8410?x=1").as_str(),
        "http://127.0.0.1:8410/?x=1"
    );
    assert_eq!(
        url("http://127.0.0.1:8410?").as_str(),
        "http://127.0.0.1:8410/?"
    );
}

#[test]
fn a_host_has_one_spelling() {
    let cases = [
        ("https://b\u{fc}cher.test/", "https://xn--bcher-kva.test/"),
        ("https://xn--bcher-kva.test/", "https://xn--bcher-kva.test/"),
        ("https://B\u{dc}CHER.test/", "https://xn--bcher-kva.test/"),
        ("https://bu\u{308}cher.test/", "https://xn--bcher-kva.test/"),
        ("https://fa\u{df}.test", "https://xn--fa-hia.test/"),
        ("HTTP://EXAMPLE.TEST.:80/", "http://example.test/"),
        ("https://example.test:443/", "https://example.test/"),
        ("https://example.test:/", "https://example.test/"),
        ("https://example\u{3002}test/", "https://example.test/"),
        ("http://my_service:8080/", "http://my_service:8080/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0x7f000001/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0177.0.0.1/", "http://127.0.0.1/"),
        ("http://\u{ff11}27.0.0.1/", "http://127.0.0.1/"),
        ("http://127.0.0.1./", "http://127.0.0.1/"),
        ("http://[::0001]:8080/", "http://[::1]:8080/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:127.0.0.1]/"),
    ];
    for (given, kept) in cases {
        assert_eq!(url(given).as_str(), kept, "{given}");
    }
}

#[test]
fn the_parts_are_those_of_the_canonical_text() {
    let name = url("https://Example.test/x");
    assert_eq!(
        (name.scheme(), name.host(), name.port()),
        (Scheme::Https, &Host::Name("example.test".into()), 443)
    );
    let v6 = url("http://[::1]:8080/");
    assert_eq!(
        (v6.scheme(), v6.host(), v6.port()),
        (Scheme::Http, &Host::Ip("::1".parse().unwrap()), 8080)
    );
    assert_eq!(v6.host().to_string(), "[::1]");
}

#[test]
fn user_and_password_are_refused() {
    for text in [
        "http://us%40er:p%3Aw@127.0.0.1:80/",
        "https://user@example.com/",
        "https://@example.com/",
        "https://a@b@c/",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Userinfo), "{text}");
    }
    assert_eq!(
        url("https://example.com/@user").as_str(),
        "https://example.com/@user"
    );
}

#[test]
fn a_fragment_is_refused() {
    for text in [
        "https://example.com/p?q=1#frag",
        "https://example.com/#",
        "https://example.com#x@y",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Fragment), "{text}");
    }
}

#[test]
fn a_port_is_1_to_65535() {
    for port in [1, 22, 25, 5432, 65535] {
        assert_eq!(url(&format!("http://example.com:{port}/")).port(), port);
    }
    for text in [
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:x/",
        "http://example.com:-1/",
        "http://[::1]:0/",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Port), "{text}");
    }
}

#[test]
fn a_zone_id_is_refused() {
    assert_eq!(refusal("http://[fe80::1%25lo]:80/"), Some(UrlError::ZoneId));
    assert_eq!(refusal("http://[::1%lo]/"), Some(UrlError::ZoneId));
}

#[test]
fn only_http_and_https_with_two_slashes_are_schemes() {
    for text in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "javascript:alert(1)",
        "//example.com/",
        "http:/example.com",
        "http:example.com",
        "http:\\\\example.com",
        "https",
        "",
        "example.com",
        " https://example.com/",
        "\thttps://example.com/",
        "ht\ntp://example.com/",
        "ws://example.com/",
        "http//example.com",
        "hxxp://example.com/",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Scheme), "{text:?}");
    }
}

#[test]
fn white_space_control_characters_and_backslashes_are_refused() {
    for text in [
        "https://example.com/a b",
        "https://example.com/a\tb",
        "https://exam\nple.com/",
        "https://example.com/\r\nX: 1",
        "https://example.com/ ",
        "https://example.com\\@127.0.0.1/",
        "https://example.com/a\\b",
        "https://example.com/\0",
        "https://example.com/\u{7f}",
    ] {
        assert_eq!(refusal(text), Some(UrlError::Character), "{text:?}");
    }
}

#[test]
fn what_is_no_host_is_refused() {
    let label = "a".repeat(64);
    let long = vec!["a".repeat(60); 5].join(".");
    for host in [
        "",
        ":80",
        "?x",
        "/path",
        "a..b",
        "example.com..",
        ".example.com",
        ".",
        &label,
        &long,
        "ex%61mple.com",
        "a<b",
        "1.2.3.4.5",
        "256.1.1.1",
        "example.256",
        "[::1",
        "[::g]",
        "[127.0.0.1]",
        "[::1]x",
        "xn--a",
        "a^b",
        "*.example.com",
        "a!b",
        "a,b",
        "\u{ad}",
    ] {
        let text = format!("https://{host}");
        assert!(
            matches!(refusal(&text), Some(UrlError::Host)),
            "{text}: {:?}",
            refusal(&text)
        );
    }
}

#[test]
fn a_url_has_at_most_2048_bytes_as_given_and_as_kept() {
    let sized = |size: usize| {
        format!(
            "https://example.com/{}",
            "x".repeat(size - "https://example.com/".len())
        )
    };
    assert_eq!(url(&sized(2048)).as_str().len(), 2048);
    for size in [2049, 8192, 65_536] {
        assert_eq!(refusal(&sized(size)), Some(UrlError::TooLong), "{size}");
    }
    let rest = 2048 - "https://b\u{fc}cher.test/".len();
    let grows = format!("https://b\u{fc}cher.test/{}", "x".repeat(rest));
    assert_eq!(refusal(&grows), Some(UrlError::TooLong));
}

#[test]
fn no_error_text_holds_the_url() {
    let shown = refusal("https://user:canary@example.com/").unwrap();
    assert!(!format!("{shown} {shown:?}").contains("canary"));
}

proptest! {
    #[test]
    fn what_is_kept_is_taken_again_unchanged_and_means_the_same_to_the_client(
        host in "([a-z0-9_\u{e9}\u{df}-]{1,8}\\.){0,3}[a-z]{1,8}\\.?", port in proptest::option::of(1..=65535_u16), target in "(/[!-~]{0,12}){0,4}",
    ) {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let given = format!("https://{host}{port}{target}");
        if let Ok(kept) = EndpointUrl::parse(&given) {
            prop_assert_eq!(&EndpointUrl::parse(kept.as_str()).unwrap(), &kept);
            let client = url::Url::parse(kept.as_str()).unwrap();
            prop_assert_eq!(client.as_str(), kept.as_str());
            prop_assert_eq!(client.host_str().unwrap(), kept.host().to_string());
            prop_assert_eq!(client.port_or_known_default(), Some(kept.port()));
            prop_assert!(kept.as_str().ends_with(&target));
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,120}", near in "(https?:/{0,3})?[ -~\u{80}-\u{200}]{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let text_of_bytes = String::from_utf8_lossy(&bytes);
        for text in [text.as_str(), near.as_str(), &text_of_bytes] {
            let _ = (EndpointUrl::parse(text), canonical_name(text));
        }
    }
}

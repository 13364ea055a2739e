//! Where requests may go: URLs that cannot be sent to, and addresses that policy forbids (INV-8).

use std::collections::BTreeSet;

use posthorn_tests::program::{At, Installation};
use posthorn_tests::wait::until;
use serde_json::json;

use super::{assert_problem, nothing_listed, pointers};
use crate::stage::{AMPLE, Stage};

/// C34, C36, C39, C40: refused on create and on change, and nothing is made.
#[tokio::test]
async fn a_url_that_cannot_be_sent_to_is_refused_on_create_and_on_change() {
    let stage = Stage::set().await;
    let long = format!("http://example.com/{}", "a".repeat(8192));
    let bad = [
        ("", "url_invalid"),
        ("//example.com/", "url_invalid"),
        ("ftp://example.com/", "url_invalid"),
        ("file:///etc/passwd", "url_invalid"),
        ("javascript:alert(1)", "url_invalid"),
        ("http:/example.com/", "url_invalid"),
        (r"http:\\example.com\", "url_invalid"),
        ("http://us:pw@example.com/", "url_invalid"),
        ("http://example.com/p#frag", "url_invalid"),
        ("http://example.com:0/", "url_invalid"),
        ("http://example.com:65536/", "url_invalid"),
        ("http://exam\tple.com/", "url_invalid"),
        ("http://example.com/\nx", "url_invalid"),
        ("http://[::1%25lo]/", "url_invalid"),
        (&long, "url_too_long"),
    ];
    for (url, code) in bad {
        let answer = stage
            .api
            .post("/v1/endpoints", json!({"url": url}).to_string())
            .await;
        assert_eq!(
            pointers(&assert_problem(&answer, 422, code)),
            ["/url"],
            "{url}"
        );
    }
    nothing_listed(&stage.api, "/v1/endpoints").await;
    let made = stage.endpoint("/ok", 100, 3).await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    for (url, code) in bad {
        let answer = stage.api.patch(&path, &json!({"url": url})).await;
        assert_problem(&answer, 422, code);
    }
    let kept = stage.api.get(&path).await.expect(200);
    assert_eq!(kept.text("/url"), stage.receiver.url("/ok"));
}

/// INV-8; C41.
#[tokio::test]
async fn a_forbidden_address_is_refused_on_create_and_on_change_unless_it_is_allowed() {
    let stage = Stage::of(Installation::with_closed_egress().await).await;
    let forbidden = [
        "0.0.0.0",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.31.255.255",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "0x7f.1",
        "2130706433",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[ff02::1]",
    ];
    let made = stage
        .api
        .endpoint(&json!({"url": "http://example.com/"}))
        .await;
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    for address in forbidden {
        let endpoint = json!({"url": format!("http://{address}/")});
        let answer = stage.api.post("/v1/endpoints", endpoint.to_string()).await;
        let problem = assert_problem(&answer, 422, "target_forbidden");
        assert_eq!(pointers(&problem), ["/url"], "{address}");
        let answer = stage.api.patch(&path, &endpoint).await;
        assert_problem(&answer, 422, "target_forbidden");
    }
}

/// INV-8; C41: whoever may set a URL does not learn why its target is refused, and so nothing of this server's network.
#[tokio::test]
async fn a_refused_target_is_told_in_the_same_words_on_create_on_change_when_sent_to_and_when_replayed()
 {
    let stage = Stage::of(Installation::with_closed_egress().await).await;
    let (receiver, own) = (stage.receiver.address().port(), stage.node.address().port());
    let policy = json!({"kind": "fixed", "delay_ms": 100, "max_attempts": 1});
    let mut told = BTreeSet::new();
    let mut made = String::new();
    // Refused since it is the loopback, and since it is our own.
    for port in [receiver, own] {
        let url = format!("http://localhost:{port}/");
        let endpoint =
            json!({"url": url, "event_types": [format!("to.{port}")], "retry_policy": policy});
        made = stage.api.endpoint(&endpoint).await.text("/id");
        let id = stage.api.submit(&format!("to.{port}"), b"1").await;
        let delivery = stage.delivery(&id, "dead").await;
        assert_eq!(delivery.text("/last_attempt/error/kind"), "refused_target");
        told.insert(delivery.text("/last_attempt/error/detail"));
        let path = format!("/v1/dead-letters/{}/replay", delivery.text("/id"));
        stage.api.post(&path, "{}").await.expect(202);
        let attempts = until("the replay's attempt", AMPLE, async || {
            let path = format!("/v1/attempts?event_id={id}");
            let page = stage.api.get(&path).await.expect(200);
            (page.list("/data").len() == 2).then_some(page)
        })
        .await;
        told.extend(
            attempts
                .list("/data")
                .iter()
                .map(|one| one.text("/error/detail")),
        );
    }
    for host in [
        "10.0.0.1".to_owned(),
        "169.254.169.254".to_owned(),
        "[fd00::1]".to_owned(),
        "224.0.0.1".to_owned(),
        format!("127.0.0.1:{own}"),
    ] {
        let url = json!({"url": format!("http://{host}/")});
        let path = format!("/v1/endpoints/{made}");
        for answer in [
            stage.api.post("/v1/endpoints", url.to_string()).await,
            stage.api.patch(&path, &url).await,
        ] {
            let problem = assert_problem(&answer, 422, "target_forbidden");
            told.insert(problem.text("/detail"));
            told.insert(problem.text("/errors/0/detail"));
        }
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

/// INV-8; C41, C43: a name is judged when it is sent to, and nothing connects.
#[tokio::test]
async fn a_name_that_leads_to_a_forbidden_address_is_never_connected_to() {
    let stage = Stage::of(Installation::with_closed_egress().await).await;
    let url = format!("http://localhost:{}/", stage.receiver.address().port());
    let policy = json!({"kind": "fixed", "delay_ms": 100, "max_attempts": 2});
    stage
        .api
        .endpoint(&json!({"url": url, "retry_policy": policy}))
        .await;
    let id = stage.api.submit("a.b", b"1").await;
    let delivery = stage.delivery(&id, "dead").await;
    assert_eq!(delivery.text("/last_attempt/error/kind"), "refused_target");
    let letters = stage.api.get("/v1/dead-letters").await.expect(200);
    assert_eq!(letters.list("/data")[0].text("/cause"), "refused_target");
    assert_eq!(stage.receiver.connections(), 0);
}

/// INV-8; C50: whatever an operator allows, the server's own listeners, its database and its public address are not reached:
/// refused when they are set as far as they can be told by then, and otherwise when they are sent to.
#[tokio::test]
async fn an_endpoint_cannot_be_our_own_listener_database_or_public_address() {
    let installation = Installation::new().await;
    let metrics = free_port();
    let node = installation
        .serve_told(&[
            ("POSTHORN_METRICS_LISTEN", &format!("0.0.0.0:{metrics}")),
            ("POSTHORN_PUBLIC_URL", "https://hooks.posthorn.test"),
        ])
        .await;
    let stage = Stage::around(installation, node).await;
    let main = stage.node.address().port();
    let (_, database) = stage.installation.database();
    for url in [
        format!("http://127.0.0.1:{main}/v1/events"),
        format!("http://0.0.0.0:{main}/v1/events"),
        format!("http://127.0.0.1:{metrics}/metrics"),
        format!("http://127.3.2.1:{metrics}/metrics"),
        format!("http://127.0.0.1:{database}/"),
        format!("http://127.3.2.1:{database}/"),
        "https://hooks.posthorn.test/v1/events".to_owned(),
        "http://hooks.posthorn.test:8400/v1/events".to_owned(),
    ] {
        let endpoint = json!({ "url": url }).to_string();
        let answer = stage.api.post("/v1/endpoints", endpoint).await;
        assert_eq!(answer.status, 422, "{url}");
        assert_problem(&answer, 422, "target_forbidden");
    }
    let policy = json!({"kind": "fixed", "delay_ms": 100, "max_attempts": 1});
    for port in [main, metrics, database] {
        let event_type = format!("to.{port}");
        let url = format!("http://localhost:{port}/v1/events");
        let endpoint = json!({"url": url, "event_types": [event_type], "retry_policy": policy});
        stage.api.endpoint(&endpoint).await;
        let id = stage.api.submit(&event_type, b"1").await;
        let delivery = stage.delivery(&id, "dead").await;
        let kind = delivery.text("/last_attempt/error/kind");
        assert_eq!(kind, "refused_target", "{url}");
    }
}

/// C32: the operator's `https_only`, on an installation that was open before.
#[tokio::test]
async fn where_https_alone_is_wanted_an_http_url_is_refused_and_an_old_one_is_sent_to_no_more() {
    let stage = Stage::set().await;
    let made = stage.endpoint("/old", 100, 1).await;
    let mut node = stage.node;
    node.ask_to_end();
    node.ended(AMPLE).await;
    let node = stage
        .installation
        .serve_with("POSTHORN_HTTPS_ONLY", "on")
        .await;
    let api = stage.api.through(node.address());
    let url = json!({"url": "http://example.com/"});
    let path = format!("/v1/endpoints/{}", made.text("/id"));
    for answer in [
        api.post("/v1/endpoints", url.to_string()).await,
        api.patch(&path, &url).await,
    ] {
        assert_eq!(
            pointers(&assert_problem(&answer, 422, "https_required")),
            ["/url"]
        );
    }
    api.endpoint(&json!({"url": "https://example.com/", "event_types": ["none"]}))
        .await;
    let stage = Stage { node, api, ..stage };
    let id = stage.api.submit("a.b", b"1").await;
    let delivery = stage.delivery(&id, "dead").await;
    assert_eq!(delivery.text("/last_attempt/error/kind"), "refused_target");
    let detail = delivery.text("/last_attempt/error/detail");
    assert!(detail.contains("https"), "{detail}");
    assert_eq!(stage.receiver.connections(), 0);
}

/// A port that is free now, below those that outgoing connections and nodes are given.
fn free_port() -> u16 {
    let free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let begin = u16::try_from(std::process::id() % 4096).unwrap();
    (12_000 + begin..18_000).find(free).unwrap()
}

//! The ways from the program to endpoints that an operator may set: a forward proxy, name servers.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;

use posthorn_tests::forward_proxy::{Conduct, ForwardProxy};
use posthorn_tests::name_server::{Family, NameAnswer, NameServer};
use posthorn_tests::program::{At, Installation};
use posthorn_tests::receiver::{Receiver, Reply};
use posthorn_tests::wait::until;
use serde_json::json;

use crate::stage::{AMPLE, Stage};

/// C48, INV-10: the proxy of the setting is used, on the loopback where no endpoint could be; those of the environment are not;
/// and nobody is told who logs in to it.
#[tokio::test]
async fn deliveries_go_through_the_proxy_that_is_named_and_not_through_one_of_the_environment() {
    let installation = Installation::new().await;
    let (named, trap) = (
        ForwardProxy::start().await.unwrap(),
        ForwardProxy::start().await.unwrap(),
    );
    let trap_url = format!("http://{}", trap.address());
    let node = installation
        .serve_told(&[
            (
                "POSTHORN_EGRESS_PROXY",
                &format!("http://operator:canary@{}", named.address()),
            ),
            ("HTTP_PROXY", &trap_url),
            ("http_proxy", &trap_url),
            ("HTTPS_PROXY", &trap_url),
            ("ALL_PROXY", &trap_url),
            ("NO_PROXY", "*"),
            ("POSTHORN_LOG", "trace"),
        ])
        .await;
    let stage = Stage::around(installation, node).await;
    // No tunnel is kept for the next.
    let closing = Reply::status(200).header("connection", "close");
    stage.receiver.script("/hook", closing);
    stage.endpoint("/hook", 100, 1).await;
    let id = stage.api.submit("a.b", b"1").await;
    stage.delivery(&id, "delivered").await;
    let attempts = stage.api.get(&format!("/v1/attempts?event_id={id}")).await;
    let address = stage.receiver.address().to_string();
    assert_eq!(attempts.expect(200).text("/data/0/remote_address"), address);
    let head = named.heads().remove(0);
    let line = format!("CONNECT {address} HTTP/1.1\r\n");
    assert!(head.starts_with(&line), "{head}");

    named.conduct(Conduct::Say(
        b"HTTP/1.1 407 canary\r\nconnection: close\r\n\r\n",
    ));
    let id = stage.api.submit("a.b", b"1").await;
    let dead = stage.delivery(&id, "dead").await;
    assert_eq!(dead.text("/last_attempt/error/kind"), "connect");
    assert!(
        !dead.to_string().contains(&named.address().to_string()),
        "{dead}"
    );
    let told = format!("{dead} {}", stage.node.log());
    for secret in ["canary", "b3BlcmF0b3I6Y2FuYXJ5"] {
        assert!(!told.contains(secret), "{secret} was told");
    }
    assert_eq!(trap.heads(), [] as [&str; 0]);
}

/// Names whose answers change, all with a TTL of 0. An address that is allowed is 127.0.0.1; 127.0.0.2 and `::1` are not.
fn rebinding(name: &str, family: Family, before: usize) -> NameAnswer {
    let (good, bad) = match family {
        Family::V4 => ("127.0.0.1", "127.0.0.2"),
        // Only where it is bad is there one.
        Family::V6 => ("", "::1"),
    };
    let answers = match name {
        // Good when it is looked at, and bad ever after.
        "turning.test" if before < 40 => vec![good],
        "alternating.test" | "end.test" if before.is_multiple_of(2) => vec![good],
        "one-family.test" if family == Family::V4 => vec![good],
        "turning.test" | "alternating.test" | "end.test" | "one-family.test" => vec![bad],
        // Good in each answer, and bad in one of them.
        "mixed.test" if before.is_multiple_of(2) => vec![good, bad],
        "mixed.test" => vec![bad, good],
        "alias.test" => return NameAnswer::Alias("alias-2.test".to_owned()),
        "alias-2.test" => return NameAnswer::Alias("end.test".to_owned()),
        _ => return NameAnswer::Unknown,
    };
    let parsed = answers.iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
    NameAnswer::Addresses(parsed.collect())
}

/// INV-8; C43: five kinds of changing names, two hundred deliveries each, every one over a connection of its own.
#[tokio::test]
async fn a_thousand_rebinding_tries_never_reach_the_forbidden_address() {
    let asked: Mutex<HashMap<(String, bool), usize>> = Mutex::default();
    let names = NameServer::start(move |name, family, _| {
        let mut asked = asked.lock().unwrap();
        let count = asked
            .entry((name.to_owned(), family == Family::V4))
            .or_default();
        *count += 1;
        rebinding(name, family, *count - 1)
    })
    .await
    .unwrap();
    let installation = Installation::new().await;
    let node = installation
        .serve_told(&[
            ("POSTHORN_EGRESS_DNS", &names.address().to_string()),
            ("POSTHORN_EGRESS_ALLOW", "127.0.0.1"),
        ])
        .await;
    let stage = Stage::around(installation, node).await;
    let port = stage.receiver.address().port();
    let [second, sixth] = ["127.0.0.2", "::1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    let traps = [
        Receiver::start_at(second).await.unwrap(),
        Receiver::start_at(sixth).await.unwrap(),
    ];
    let policy = json!({"kind": "fixed", "delay_ms": 100, "max_attempts": 1});
    let kinds = ["turning", "alternating", "mixed", "one-family", "alias"];
    for kind in kinds {
        let closing = Reply::status(200).header("connection", "close");
        stage.receiver.script(&format!("/{kind}"), closing);
        let url = format!("http://{kind}.test:{port}/{kind}");
        let endpoint = json!({"url": url, "event_types": [kind], "retry_policy": policy});
        stage.api.endpoint(&endpoint).await;
    }
    for _ in 0..200 {
        for kind in kinds {
            stage.api.submit(kind, b"1").await;
        }
    }
    until("a thousand tries", AMPLE * 2, async || {
        let tries = stage
            .installation
            .query("SELECT count(*)::text FROM attempts")
            .await;
        (tries == ["1000"]).then_some(())
    })
    .await;
    for trap in &traps {
        assert_eq!(trap.connections(), 0);
    }
    let refused = stage
        .installation
        .query("SELECT DISTINCT error_kind FROM attempts WHERE outcome = 'failed'")
        .await;
    assert_eq!(refused, ["refused_target"]);
    let reached: BTreeMap<&str, usize> = kinds
        .iter()
        .map(|kind| (*kind, stage.receiver.requests_to(&format!("/{kind}")).len()))
        .collect();
    // Those that are good now and then are reached now and then: they were tried.
    for kind in ["turning", "alternating", "alias"] {
        assert!((1..200).contains(&reached[kind]), "{reached:?}");
    }
    assert_eq!((reached["mixed"], reached["one-family"]), (0, 0));
}

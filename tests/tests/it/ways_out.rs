//! The ways from the program to endpoints that an operator may set: a forward proxy.

use posthorn_tests::forward_proxy::{Conduct, ForwardProxy};
use posthorn_tests::program::{At, Installation};
use posthorn_tests::receiver::Reply;

use crate::stage::Stage;

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

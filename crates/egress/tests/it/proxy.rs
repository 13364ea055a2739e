//! Through a forward proxy: the policy stays ours (INV-8), and its failures are told without its address or its login.

use std::time::Duration;

use posthorn_domain::{address::EgressPolicy, delivery::ErrorKind};
use posthorn_egress::{Egress, EgressOptions, ForwardProxy, NameServers, SendFailure, Sent};
use posthorn_tests::{
    authority::Authority,
    forward_proxy::{self, Conduct},
    name_server::{NameAnswer, NameServer},
    receiver::{Receiver, Reply},
};

use crate::fixture::{AMPLE, Began, answered, failed, post, post_within};

/// `Basic` of `operator:canary`.
const LOGIN: &str = "Basic b3BlcmF0b3I6Y2FuYXJ5";

/// A way through a proxy, and what the client is told beside it.
struct Through {
    proxy: forward_proxy::ForwardProxy,
    options: EgressOptions,
}

impl Through {
    async fn a_proxy() -> Self {
        let proxy = forward_proxy::ForwardProxy::start().await.unwrap();
        let text = format!("http://operator:canary@{}", proxy.address());
        let options = EgressOptions {
            proxy: Some(ForwardProxy::parse(&text).unwrap()),
            ..EgressOptions::default()
        };
        Self { proxy, options }
    }

    fn asking(mut self, server: &NameServer) -> Self {
        self.options.name_servers = NameServers::Only(vec![server.address()]);
        self
    }

    fn trusting(mut self, authority: &Authority) -> Self {
        self.options.extra_roots = Some(authority.pem().into_bytes());
        self
    }

    fn client(&self, allow: &str) -> Egress {
        Egress::new(EgressPolicy::parse(allow).unwrap(), &self.options).unwrap()
    }

    /// What the proxy was asked for.
    fn asked(&self) -> Vec<String> {
        let heads = self.proxy.heads();
        let lines = heads.iter().filter_map(|head| head.lines().next());
        lines.map(str::to_owned).collect()
    }
}

async fn names(address: &'static str) -> NameServer {
    NameServer::start(move |_, _, _| NameAnswer::Addresses(vec![address.parse().unwrap()]))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_vetted_address_and_the_endpoint_for_the_name() {
    let authority = Authority::new();
    let names = names("127.0.0.1").await;
    let through = Through::a_proxy().await.asking(&names).trusting(&authority);
    let secure = Receiver::start_tls(authority.server_of(&["hooks.test"]))
        .await
        .unwrap();
    let plain = Receiver::start().await.unwrap();
    let egress = through.client("127.0.0.1");
    for (scheme, receiver) in [("https", &secure), ("http", &plain)] {
        let port = receiver.address().port();
        let url = format!("{scheme}://hooks.test:{port}/a?b=c");
        let answer = answered(post(&egress, &url).await);
        assert_eq!(answer.remote_address, Some(receiver.address()));
        let request = receiver.requests().pop().unwrap();
        assert_eq!(
            request.header("host"),
            Some(format!("hooks.test:{port}").as_str())
        );
        assert_eq!(request.header("proxy-authorization"), None);
        assert_eq!(
            through.asked().pop(),
            Some(format!("CONNECT 127.0.0.1:{port} HTTP/1.1"))
        );
        let head = through.proxy.heads().pop().unwrap();
        assert!(
            head.contains(&format!("proxy-authorization: {LOGIN}\r\n")),
            "{head}"
        );
        assert!(!head.contains("hooks.test"), "{head}");
    }
    assert_eq!(secure.server_names(), [Some("hooks.test".to_owned())]);
}

/// C48; RFC 9110, 9.3.6: what a 2xx to CONNECT says of a body means nothing.
#[tokio::test]
async fn any_2xx_opens_the_tunnel_whatever_it_says_of_a_body() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    for opened in [
        b"HTTP/1.1 204 No Content\r\n\r\n".as_slice(),
        b"HTTP/1.1 201 Created\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        b"HTTP/1.1 299 Odd\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ] {
        through.proxy.conduct(Conduct::TunnelSaying(opened));
        // A client of its own, so that no tunnel is kept.
        let sent = post_within(&through.client("127.0.0.1"), &receiver.url("/"), AMPLE / 3).await;
        let answer = answered(sent);
        assert_eq!(answer.status, 200, "{}", opened.escape_ascii());
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_behind_a_proxy_too() {
    let authority = Authority::new();
    let names = names("127.0.0.1").await;
    let through = Through::a_proxy().await.asking(&names).trusting(&authority);
    let receiver = Receiver::start_tls(authority.server_of(&["other.test"]))
        .await
        .unwrap();
    let url = format!("https://hooks.test:{}/", receiver.address().port());
    failed(
        post(&through.client("127.0.0.1"), &url).await,
        ErrorKind::Tls,
    );
    assert!(receiver.requests().is_empty());
}

#[tokio::test]
async fn a_proxy_is_never_asked_for_a_forbidden_address() {
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let names = names("127.0.0.1").await;
    let through = Through::a_proxy().await.asking(&names);
    // Its own address is not allowed either, and needs not be: the operator named it.
    let egress = through.client("");
    for host in ["127.0.0.1", "localhost", "private.test", "169.254.169.254"] {
        let url = format!("http://{host}:{port}/");
        failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
    }
    assert_eq!(through.asked(), [] as [&str; 0]);
    let through = Through::a_proxy().await.asking(&names);
    let egress = through.client(&format!("127.0.0.1:{port}"));
    answered(post(&egress, &format!("http://private.test:{port}/")).await);
    assert_eq!(through.asked().len(), 1);
}

#[tokio::test]
async fn a_name_that_changes_its_answer_is_never_tunnelled_to_the_forbidden_address() {
    let allowed = Receiver::start().await.unwrap();
    allowed.script("/", Reply::status(200).header("connection", "close"));
    let port = allowed.address().port();
    let names = NameServer::start(|_, _, before| {
        // Two questions, one for each family, make one resolution.
        let address = ["127.0.0.1", "127.0.0.2"][before / 2 % 2];
        NameAnswer::Addresses(vec![address.parse().unwrap()])
    })
    .await
    .unwrap();
    let through = Through::a_proxy().await.asking(&names);
    let egress = through.client("127.0.0.1");
    let mut reached = 0;
    for _ in 0..200 {
        let sent = post(&egress, &format!("http://rebinding.test:{port}/")).await;
        reached += usize::from(matches!(sent, Sent::Answered(_)));
    }
    assert!((50..200).contains(&reached), "{reached} reached");
    let wanted = format!("CONNECT 127.0.0.1:{port} HTTP/1.1");
    assert!(through.asked().iter().all(|line| *line == wanted));
}

/// The failure's words hold nothing that is the operator's.
fn assert_discreet(failure: &SendFailure, proxy: &forward_proxy::ForwardProxy) {
    let said = format!("{failure:?}");
    let port = proxy.address().port().to_string();
    for secret in ["canary", "operator:", "b3BlcmF0b3I6Y2FuYXJ5", port.as_str()] {
        assert!(!said.contains(secret), "{said}");
    }
    assert_eq!(failure.remote_address, None);
}

#[tokio::test]
async fn each_failure_of_a_proxy_is_a_failed_connection_told_without_its_address_or_login() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    let egress = through.client("127.0.0.1");
    for (conduct, words) in [
        (
            Conduct::Say(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n",
            ),
            "does not let it through",
        ),
        (
            Conduct::Say(b"HTTP/1.1 502 operator:canary\r\ncontent-length: 6\r\n\r\ncanary"),
            "it answered 502",
        ),
        (
            Conduct::Say(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\n\r\n"),
            "it answered 302",
        ),
        (Conduct::Say(b"SSH-2.0-canary\r\n\r\n"), "no valid answer"),
        (
            Conduct::Say(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
            "no valid answer",
        ),
        (
            Conduct::Say(b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
            "it answered 101",
        ),
        (Conduct::Close, "no valid answer"),
    ] {
        through.proxy.conduct(conduct);
        let failure = failed(post(&egress, &receiver.url("/")).await, ErrorKind::Connect);
        assert!(
            failure.detail.contains(words),
            "{conduct:?}: {}",
            failure.detail
        );
        assert_discreet(&failure, &through.proxy);
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_a_failed_connection_told_without_its_address() {
    let receiver = Receiver::start().await.unwrap();
    let mut through = Through::a_proxy().await;
    let egress = through.client("127.0.0.1");
    let gone = std::mem::replace(&mut through.proxy, Through::a_proxy().await.proxy);
    let address = gone.address();
    drop(gone);
    let failure = failed(post(&egress, &receiver.url("/")).await, ErrorKind::Connect);
    let detail = failure.detail;
    assert!(detail.contains("cannot be reached"), "{detail}");
    assert!(
        !detail.contains("127.0.0.1") && !detail.contains(&address.port().to_string()),
        "{detail}"
    );
    assert_eq!(failure.remote_address, None);
}

#[tokio::test]
async fn a_proxy_that_works_again_is_used_again() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    let egress = through.client("127.0.0.1");
    through.proxy.conduct(Conduct::Close);
    failed(post(&egress, &receiver.url("/")).await, ErrorKind::Connect);
    through.proxy.conduct(Conduct::Tunnel);
    answered(post(&egress, &receiver.url("/")).await);
}

#[tokio::test]
async fn a_proxy_that_is_silent_costs_no_more_than_the_deadline() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    through.proxy.conduct(Conduct::Silence);
    let began = Began::now();
    let limit = Duration::from_millis(500);
    let sent = post_within(&through.client("127.0.0.1"), &receiver.url("/"), limit).await;
    assert_discreet(&failed(sent, ErrorKind::Timeout), &through.proxy);
    assert!(began.elapsed() < AMPLE / 3, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_head_without_an_end_is_read_to_a_bound() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    through.proxy.conduct(Conduct::EndlessHead);
    let sent = post(&through.client("127.0.0.1"), &receiver.url("/")).await;
    assert_discreet(&failed(sent, ErrorKind::Connect), &through.proxy);
    // What the bound is, and what the sockets between hold.
    assert!(
        through.proxy.said() < 8 * 1024 * 1024,
        "{}",
        through.proxy.said()
    );
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_tunnel_is_kept_for_the_next_request_like_any_connection() {
    let receiver = Receiver::start().await.unwrap();
    let through = Through::a_proxy().await;
    let egress = through.client("127.0.0.1");
    for _ in 0..2 {
        answered(post(&egress, &receiver.url("/")).await);
    }
    assert_eq!(through.asked().len(), 1);
}

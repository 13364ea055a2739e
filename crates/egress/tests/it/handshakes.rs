//! TLS: what is trusted, what is refused and why, and HTTP/2 over it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use posthorn_domain::{address::EgressPolicy, delivery::ErrorKind};
use posthorn_egress::{Egress, EgressError, EgressOptions};
use posthorn_tests::{
    authority::{Authority, self_signed_saying, self_signed_server},
    name_server::{NameAnswer, NameServer},
    receiver::{OnAccept, Receiver},
};
use rcgen::{BasicConstraints, CrlDistributionPoint, ExtendedKeyUsagePurpose, IsCa, date_time_ymd};
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::fixture::{
    AMPLE, answered, failed, open, post, post_of, post_within, tenant, trusting,
    trusting_and_asking,
};

/// The words of the TLS failure that a server of this configuration causes.
async fn refusal(egress: &Egress, config: Arc<ServerConfig>) -> String {
    let receiver = Receiver::start_tls(config).await.unwrap();
    let failure = failed(post(egress, &receiver.url("/")).await, ErrorKind::Tls);
    assert_eq!(failure.remote_address, Some(receiver.address()));
    assert!(receiver.requests().is_empty());
    failure.detail
}

#[tokio::test]
async fn an_extra_root_is_trusted() {
    let authority = Authority::new();
    let receiver = Receiver::start_tls(authority.server()).await.unwrap();
    let egress = trusting(&authority.pem());
    answered(post(&egress, &receiver.url("/")).await);
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn an_unknown_issuer_is_refused_before_a_byte_of_http() {
    let detail = refusal(&open(), Authority::new().server()).await;
    assert!(
        detail.starts_with("the certificate's issuer is not known"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused() {
    let detail = refusal(&open(), self_signed_server()).await;
    assert!(detail.starts_with("the certificate"), "{detail}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = Authority::new();
    let config = authority.server_with(|params| {
        params.not_after = date_time_ymd(2001, 1, 1);
    });
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate has expired"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_refused() {
    let authority = Authority::new();
    let config = authority.server_with(|params| {
        params.not_before = date_time_ymd(3000, 1, 1);
    });
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate is not valid yet"
    );
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = Authority::new();
    let other = vec![rcgen::SanType::DnsName("other.test".try_into().unwrap())];
    let config = authority.server_with(|params| params.subject_alt_names = other);
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate is for another host name"
    );
}

/// C29: what `openssl req -x509` makes says CA:TRUE unless it is told otherwise.
#[tokio::test]
async fn a_root_that_is_the_servers_own_certificate_serves_unless_it_says_that_it_is_an_authoritys()
{
    let (server, pem) = self_signed_saying(IsCa::Ca(BasicConstraints::Unconstrained));
    for egress in [trusting(&pem), open()] {
        assert_eq!(
            refusal(&egress, Arc::clone(&server)).await,
            "the certificate is an authority's (CA:TRUE), as many self-signed ones are; a server needs one with CA:FALSE"
        );
    }
    let (server, pem) = self_signed_saying(IsCa::ExplicitNoCa);
    let receiver = Receiver::start_tls(server).await.unwrap();
    answered(post(&trusting(&pem), &receiver.url("/")).await);
}

/// C29.
#[tokio::test]
async fn a_certificate_that_is_not_for_servers_is_refused() {
    let authority = Authority::new();
    let config = authority.server_with(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate is not for servers; its extended key usage has to name serverAuth"
    );
}

/// C29.
#[tokio::test]
async fn a_missing_intermediate_is_told_and_a_whole_chain_is_trusted() {
    let root = Authority::new();
    let middle = root.intermediate();
    let egress = trusting(&root.pem());
    let detail = refusal(&egress, middle.server()).await;
    assert_eq!(
        detail,
        "the certificate's issuer is not known; it may be self-signed, or an intermediate certificate is missing"
    );
    let whole = middle.server_in_chain(vec![middle.certificate()]);
    let receiver = Receiver::start_tls(whole).await.unwrap();
    answered(post(&egress, &receiver.url("/")).await);
}

/// C29.
#[tokio::test]
async fn a_certificate_signed_with_sha_1_is_refused() {
    let authority = Authority::with_rsa();
    let egress = trusting(&authority.pem());
    assert_eq!(
        refusal(&egress, authority.server_with_sha1()).await,
        "the certificate is signed in a way that is not safe any more, such as with SHA-1"
    );
    let receiver = Receiver::start_tls(authority.server()).await.unwrap();
    answered(post(&egress, &receiver.url("/")).await);
}

/// C29: whether a certificate was revoked is asked of nobody; what it names to be asked is an address that a stranger chose (INV-8).
#[tokio::test]
async fn nobody_is_asked_whether_a_certificate_was_revoked() {
    let authority = Authority::new();
    let list = Receiver::start().await.unwrap();
    let uris = vec![list.url("/revoked.crl")];
    let config = authority.server_with(|params| {
        params.crl_distribution_points = vec![CrlDistributionPoint { uris }];
    });
    let receiver = Receiver::start_tls(config).await.unwrap();
    answered(post(&trusting(&authority.pem()), &receiver.url("/")).await);
    assert_eq!(list.connections(), 0);
}

/// A `ServerHello` of this version that chooses this cipher suite (RFC 5246, 7.4.1.3).
const TLS_1_0: &[u8] = b"\x16\x03\x01\x00\x2a\x02\x00\x00\x26\x03\x01\
    01234567890123456789012345678901\x00\x00\x2f\x00";
const TLS_1_2_CBC: &[u8] = b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03\
    01234567890123456789012345678901\x00\xc0\x13\x00";

/// C31: no byte of HTTP is sent, and the words say what to look at.
#[tokio::test]
async fn outdated_tls_and_what_is_no_tls_are_told_apart() {
    let outdated = "the endpoint offers neither TLS 1.2 nor 1.3 with a current cipher suite";
    for (what, words) in [
        (OnAccept::Say(TLS_1_0), outdated),
        (OnAccept::Say(TLS_1_2_CBC), outdated),
        // The alerts protocol_version, handshake_failure, unrecognized_name, internal_error (RFC 8446, 6).
        (OnAccept::Say(b"\x15\x03\x01\x00\x02\x02\x46"), outdated),
        (
            OnAccept::Say(b"\x15\x03\x03\x00\x02\x02\x28"),
            "the endpoint refused the handshake; it may offer only outdated cipher suites, or want a client certificate",
        ),
        (
            OnAccept::Say(b"\x15\x03\x03\x00\x02\x02\x70"),
            "the endpoint refused the handshake; it knows no server of this host name",
        ),
        (
            OnAccept::Say(b"\x15\x03\x03\x00\x02\x02\x50"),
            "the endpoint refused the handshake (TLS alert 80)",
        ),
        (
            OnAccept::Say(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "the endpoint does not speak TLS on this port",
        ),
        (
            OnAccept::Say(b""),
            "the endpoint closed the connection during the handshake",
        ),
        (
            OnAccept::ResetAfter(5),
            "the endpoint reset the connection during the handshake",
        ),
    ] {
        let receiver = Receiver::start().await.unwrap();
        receiver.on_accept(what);
        let url = receiver.url("/").replace("http:", "https:");
        let failure = failed(post(&open(), &url).await, ErrorKind::Tls);
        assert_eq!(failure.detail, words, "{what:?}");
        assert_eq!(failure.remote_address, Some(receiver.address()));
    }
}

/// C37: the question, SNI and Host have one spelling of the host, which has no final dot.
#[tokio::test]
async fn a_host_has_one_spelling_in_the_question_the_handshake_and_the_request() {
    let hosts = [
        ("b\u{fc}cher.test", "xn--bcher-kva.test"),
        ("xn--bcher-kva.test", "xn--bcher-kva.test"),
        ("fa\u{df}.test", "xn--fa-hia.test"),
        ("EXAMPLE.TEST.", "example.test"),
    ];
    let authority = Authority::new();
    let names = hosts.map(|(_, canonical)| canonical);
    let receiver = Receiver::start_tls(authority.server_of(&names))
        .await
        .unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let server = NameServer::start(move |name, _, _| {
        seen.lock().unwrap().push(name.to_owned());
        NameAnswer::Addresses(vec![[127, 0, 0, 1].into()])
    });
    let server = server.await.unwrap();
    let port = receiver.address().port();
    for (written, canonical) in hosts {
        // A client of its own, so that a kept connection does not save the question.
        let egress = trusting_and_asking(&authority.pem(), server.address());
        answered(post(&egress, &format!("HTTPS://{written}:{port}/")).await);
        let request = receiver.requests().pop().unwrap();
        let host = format!("{canonical}:{port}");
        assert_eq!(request.header("host"), Some(host.as_str()), "{written}");
        let name = receiver.server_names().pop().unwrap();
        assert_eq!(name.as_deref(), Some(canonical), "{written}");
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        assert!(
            asked.iter().all(|name| name == canonical),
            "{written}: {asked:?}"
        );
        assert!(!asked.is_empty(), "{written}");
    }
}

#[tokio::test]
async fn plain_http_on_an_https_url_is_a_tls_failure() {
    let receiver = Receiver::start().await.unwrap();
    receiver.on_accept(OnAccept::Close);
    let url = receiver.url("/").replace("http:", "https:");
    failed(post(&open(), &url).await, ErrorKind::Tls);
}

#[tokio::test]
async fn a_handshake_that_hangs_is_a_timeout() {
    let receiver = Receiver::start().await.unwrap();
    receiver.on_accept(OnAccept::Hang);
    let url = receiver.url("/").replace("http:", "https:");
    let sent = post_within(&open(), &url, Duration::from_secs(1)).await;
    let failure = failed(sent, ErrorKind::Timeout);
    assert_eq!(failure.remote_address, Some(receiver.address()));
    assert_eq!(
        failure.detail,
        "the endpoint took the connection, but the TLS handshake did not end within 1 s"
    );
}

#[test]
fn extra_roots_that_hold_no_certificate_are_an_error_at_the_start() {
    let options = EgressOptions {
        extra_roots: Some(b"nothing".to_vec()),
        ..EgressOptions::default()
    };
    let built = Egress::new(EgressPolicy::parse("").unwrap(), &options);
    assert!(matches!(built, Err(EgressError::NoRootsGiven)));
}

/// An HTTP/2 server that answers with the request's body, and how many connections it has accepted.
async fn http2_server(authority: &Authority, max_streams: u32) -> (SocketAddr, Arc<AtomicUsize>) {
    let mut config = authority.server().as_ref().clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let connections = Arc::new(AtomicUsize::new(0));
    let accepted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let stream = acceptor.accept(stream).await.unwrap();
            let echo = service_fn(|request: Request<Incoming>| async move {
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                Ok::<_, Infallible>(Response::new(Full::new(
                    body.unwrap_or_else(|_| Bytes::new()),
                )))
            });
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(max_streams);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), echo));
        }
    });
    (address, connections)
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered() {
    let authority = Authority::new();
    let (address, _) = http2_server(&authority, 100).await;
    let answer = answered(post(&trusting(&authority.pem()), &format!("https://{address}/")).await);
    assert_eq!(
        (answer.status, answer.body.as_ref()),
        (200, b"{}".as_slice())
    );
    assert_eq!(answer.remote_address, Some(address));
}

#[tokio::test]
async fn an_http2_server_that_takes_one_stream_at_a_time_gets_all() {
    let authority = Authority::new();
    let (address, _) = http2_server(&authority, 1).await;
    let egress = trusting(&authority.pem());
    let senders: Vec<_> = (0..50)
        .map(|_| {
            let (egress, url) = (egress.clone(), format!("https://{address}/"));
            tokio::spawn(async move { post_within(&egress, &url, AMPLE).await })
        })
        .collect();
    for sender in senders {
        assert_eq!(answered(sender.await.unwrap()).status, 200);
    }
}

#[tokio::test]
async fn requests_to_an_http2_origin_share_a_connection() {
    let authority = Authority::new();
    let (address, connections) = http2_server(&authority, 100).await;
    let egress = trusting(&authority.pem());
    let url = format!("https://{address}/");
    answered(post(&egress, &url).await);
    let senders: Vec<_> = (0..50)
        .map(|_| {
            let (egress, url) = (egress.clone(), url.clone());
            tokio::spawn(async move { post(&egress, &url).await })
        })
        .collect();
    for sender in senders {
        answered(sender.await.unwrap());
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// INV-13: a receiver that ends a connection ends all that is under way on it.
#[tokio::test]
async fn requests_of_two_tenants_share_no_http2_connection() {
    let authority = Authority::new();
    let (address, connections) = http2_server(&authority, 100).await;
    let egress = trusting(&authority.pem());
    let url = format!("https://{address}/");
    for which in [1, 2, 1, 2] {
        answered(post_of(tenant(which), &egress, &url, AMPLE).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

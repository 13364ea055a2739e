//! TLS: what is trusted, what is refused and why, and HTTP/2 over it.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use posthorn_domain::{address::EgressPolicy, delivery::ErrorKind};
use posthorn_egress::{Egress, EgressError, EgressOptions};
use posthorn_tests::receiver::{OnAccept, Receiver};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::fixture::{AMPLE, answered, failed, open, post, post_within, trusting};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's configuration with a certificate for 127.0.0.1, changed by `change` before it is signed.
fn server(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    configure(certificate.der().clone(), &key)
}

fn configure(
    certificate: rustls::pki_types::CertificateDer<'static>,
    key: &KeyPair,
) -> ServerConfig {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

/// The words of the TLS failure that a server of this configuration causes.
async fn refusal(egress: &Egress, config: ServerConfig) -> String {
    let receiver = Receiver::start_tls(Arc::new(config)).await.unwrap();
    let failure = failed(post(egress, &receiver.url("/")).await, ErrorKind::Tls);
    assert_eq!(failure.remote_address, Some(receiver.address()));
    assert!(receiver.requests().is_empty());
    failure.detail
}

#[tokio::test]
async fn an_extra_root_is_trusted() {
    let authority = authority();
    let receiver = Receiver::start_tls(Arc::new(server(&authority, |_| ())))
        .await
        .unwrap();
    let egress = trusting(&authority.pem());
    answered(post(&egress, &receiver.url("/")).await);
    assert_eq!(receiver.requests().len(), 1);
}

#[tokio::test]
async fn an_unknown_issuer_is_refused_before_a_byte_of_http() {
    let detail = refusal(&open(), server(&authority(), |_| ())).await;
    assert!(
        detail.starts_with("the certificate's issuer is not known"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_self_signed_certificate_is_refused() {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let detail = refusal(&open(), configure(certificate.der().clone(), &key)).await;
    assert!(detail.starts_with("the certificate"), "{detail}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let authority = authority();
    let config = server(&authority, |params| {
        params.not_after = date_time_ymd(2001, 1, 1);
    });
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate has expired"
    );
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_is_refused() {
    let authority = authority();
    let config = server(&authority, |params| {
        params.not_before = date_time_ymd(3000, 1, 1);
    });
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate is not valid yet"
    );
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let authority = authority();
    let other = vec![rcgen::SanType::DnsName("other.test".try_into().unwrap())];
    let config = server(&authority, |params| params.subject_alt_names = other);
    assert_eq!(
        refusal(&trusting(&authority.pem()), config).await,
        "the certificate is for another host name"
    );
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
    failed(
        post_within(&open(), &url, Duration::from_secs(1)).await,
        ErrorKind::Timeout,
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

/// An HTTP/2 server that answers with the request's body.
async fn http2_server(authority: &Authority, max_streams: u32) -> SocketAddr {
    let mut config = server(authority, |_| ());
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
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
    address
}

#[tokio::test]
async fn http2_is_spoken_where_it_is_offered() {
    let authority = authority();
    let address = http2_server(&authority, 100).await;
    let answer = answered(post(&trusting(&authority.pem()), &format!("https://{address}/")).await);
    assert_eq!(
        (answer.status, answer.body.as_ref()),
        (200, b"{}".as_slice())
    );
    assert_eq!(answer.remote_address, Some(address));
}

#[tokio::test]
async fn an_http2_server_that_takes_one_stream_at_a_time_gets_all() {
    let authority = authority();
    let address = http2_server(&authority, 1).await;
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

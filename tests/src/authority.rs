//! A certificate authority that nobody knows, and what it signs: for receivers that speak TLS on 127.0.0.1.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_RSA_SHA256,
    RsaKeySize, SanType,
};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The object identifier of `sha256WithRSAEncryption` (RFC 8017, appendix C), whose last byte is 5 for SHA-1.
const RSA_SHA256: [u8; 11] = [
    0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b,
];

/// An authority with a key of its own.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A root.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(authority(), key).unwrap())
    }

    /// A root with an RSA key.
    #[must_use]
    pub fn with_rsa() -> Self {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
        Self(CertifiedIssuer::self_signed(authority(), key).unwrap())
    }

    /// One that this one vouches for.
    #[must_use]
    pub fn intermediate(&self) -> Self {
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::signed_by(authority(), key, &self.0).unwrap())
    }

    /// Its certificate, as it is put among the roots.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Its certificate, as a server sends it.
    #[must_use]
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// A server with a good certificate for 127.0.0.1.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        self.server_with(|_| ())
    }

    /// A server with a good certificate for these names.
    #[must_use]
    pub fn server_of(&self, names: &[&str]) -> Arc<ServerConfig> {
        let names = names.iter().map(|name| (*name).try_into().unwrap());
        let names = names.map(SanType::DnsName).collect();
        self.server_with(|params| params.subject_alt_names = names)
    }

    /// The same, whose certificate `change` has changed before it was signed.
    pub fn server_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let (certificate, key) = self.certified(change);
        configure(vec![certificate], &key)
    }

    /// The same, which sends these certificates after its own.
    #[must_use]
    pub fn server_in_chain(&self, above: Vec<CertificateDer<'static>>) -> Arc<ServerConfig> {
        let (certificate, key) = self.certified(|_| ());
        configure([vec![certificate], above].concat(), &key)
    }

    /// A server whose certificate says that it is signed with SHA-1. Only for an authority with an RSA key; the signature is not
    /// looked at by whoever refuses SHA-1, and is none.
    #[must_use]
    pub fn server_with_sha1(&self) -> Arc<ServerConfig> {
        let (certificate, key) = self.certified(|_| ());
        let mut der = certificate.to_vec();
        let named: Vec<usize> = (0..der.len())
            .filter(|at| {
                der.get(*at..)
                    .is_some_and(|rest| rest.starts_with(&RSA_SHA256))
            })
            .collect();
        for at in &named {
            if let Some(last) = der.get_mut(at + RSA_SHA256.len() - 1) {
                *last = 5;
            }
        }
        // In what is signed, and beside the signature.
        assert_eq!(named.len(), 2, "the algorithm is named twice");
        configure(vec![der.into()], &key)
    }

    fn certified(
        &self,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (CertificateDer<'static>, KeyPair) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), key)
    }
}

/// A server whose certificate nobody but itself has signed.
#[must_use]
pub fn self_signed_server() -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    configure(vec![certificate.der().clone()], &key)
}

/// A server whose own certificate is self-signed and says that it is an authority's, or that it is none's; and that certificate, as it
/// is put among the roots.
#[must_use]
pub fn self_signed_saying(is_ca: IsCa) -> (Arc<ServerConfig>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    let pem = certificate.pem();
    (configure(vec![certificate.der().clone()], &key), pem)
}

/// Each has a name of its own: by it the issuer of a certificate is looked for.
fn authority() -> CertificateParams {
    static MADE: AtomicUsize = AtomicUsize::new(1);
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    let name = format!("Authority {}", MADE.fetch_add(1, Ordering::Relaxed));
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

fn configure(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Arc::new(config)
}

//! TLS: which roots are trusted, and a failed handshake in words that a customer can act on.

use std::{io, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, PeerMisbehaved,
    RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

use crate::options::EgressError;

/// The client's side of TLS 1.2 and 1.3, offering HTTP/2 and HTTP/1.1, trusting the built-in roots, the system's, and
/// those given.
pub(crate) fn client_config(extra_roots: Option<&[u8]>) -> Result<Arc<ClientConfig>, EgressError> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let system = rustls_native_certs::load_native_certs();
    if let Some(error) = system.errors.first() {
        tracing::debug!(%error, "the system's root certificates were not all read; the built-in ones serve");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(pem) = extra_roots {
        add_extra(&mut roots, pem)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(EgressError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whether this PEM text may be given as [`crate::EgressOptions::extra_roots`].
///
/// # Errors
///
/// Why not: it is no PEM, holds no certificate, or one that cannot be a root.
pub fn check_roots(pem: &[u8]) -> Result<(), EgressError> {
    add_extra(&mut RootCertStore::empty(), pem)
}

fn add_extra(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), EgressError> {
    let mut found = false;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(EgressError::RootsNotPem)?;
        roots.add(certificate).map_err(EgressError::RootUnusable)?;
        found = true;
    }
    if found {
        Ok(())
    } else {
        Err(EgressError::NoRootsGiven)
    }
}

/// The TLS library's error inside an I/O error, if one is there.
pub(crate) fn tls_error(error: &io::Error) -> Option<&TlsError> {
    error.get_ref()?.downcast_ref()
}

/// Says why a handshake failed.
pub(crate) fn reason(error: &io::Error) -> String {
    match tls_error(error) {
        Some(error) => tls_reason(error),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the endpoint closed the connection during the handshake".to_owned()
        }
        None if error.kind() == io::ErrorKind::ConnectionReset => {
            "the endpoint reset the connection during the handshake".to_owned()
        }
        None => format!(
            "the connection broke during the handshake ({})",
            error.kind()
        ),
    }
}

fn tls_reason(error: &TlsError) -> String {
    match error {
        TlsError::InvalidCertificate(error) => certificate_reason(error),
        TlsError::AlertReceived(AlertDescription::ProtocolVersion)
        | TlsError::PeerIncompatible(_)
        // Chosen though it was not offered: there was nothing else to choose.
        | TlsError::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite) => {
            "the endpoint offers neither TLS 1.2 nor 1.3 with a current cipher suite".to_owned()
        }
        TlsError::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the endpoint refused the handshake; it may offer only outdated cipher suites, or want a client certificate"
                .to_owned()
        }
        TlsError::AlertReceived(alert) => format!("the endpoint refused the handshake (alert {alert:?})"),
        TlsError::InvalidMessage(_) => "the endpoint does not speak TLS on this port".to_owned(),
        TlsError::PeerMisbehaved(how) => format!("the endpoint broke the rules of the handshake ({how:?})"),
        other => other.to_string(),
    }
}

fn certificate_reason(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "the certificate has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host name".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is not known; it may be self-signed, or an intermediate certificate is missing"
                .to_owned()
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed in a way that is not safe any more, such as with SHA-1".to_owned()
        }
        CertificateError::BadSignature => {
            "the certificate is not signed by the authority that it names".to_owned()
        }
        CertificateError::Revoked => "the certificate has been revoked".to_owned(),
        other => format!("the certificate is not acceptable: {other}"),
    }
}

//! TLS: which roots are trusted, and a failed handshake in words that a customer can act on.

use std::{io, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error as TlsError, OtherError,
    PeerMisbehaved, RootCertStore,
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
    // For whoever runs this server. In an attempt stand words of ours alone: a library's are for its own developers.
    tracing::debug!(%error, "a handshake failed");
    match error {
        TlsError::InvalidCertificate(error) => certificate_reason(error),
        TlsError::AlertReceived(AlertDescription::ProtocolVersion)
        | TlsError::PeerIncompatible(_)
        // Chosen though it was not offered: there was nothing else to choose.
        | TlsError::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite) => {
            "the endpoint offers neither TLS 1.2 nor 1.3 with a current cipher suite"
        }
        TlsError::AlertReceived(AlertDescription::HandshakeFailure) => {
            "the endpoint refused the handshake; it may offer only outdated cipher suites, or want a client certificate"
        }
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            "the endpoint wants a client certificate, and there is none to show"
        }
        TlsError::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the endpoint refused the handshake; it knows no server of this host name"
        }
        TlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            "the endpoint refused the handshake; it speaks neither HTTP/2 nor HTTP/1.1"
        }
        // The numbers are those of RFC 8446, 6.
        TlsError::AlertReceived(alert) => {
            return format!("the endpoint refused the handshake (TLS alert {})", u8::from(*alert));
        }
        TlsError::InvalidMessage(_) => "the endpoint does not speak TLS on this port",
        TlsError::NoCertificatesPresented => "the endpoint presented no certificate",
        TlsError::DecryptError => {
            "what the endpoint sent cannot be decrypted; something on the way may have changed it"
        }
        TlsError::PeerMisbehaved(_)
        | TlsError::PeerSentOversizedRecord
        | TlsError::InappropriateMessage { .. }
        | TlsError::InappropriateHandshakeMessage { .. } => {
            "the endpoint broke the rules of the handshake; its TLS may be broken"
        }
        _ => "the handshake failed",
    }
    .to_owned()
}

/// Each says what to change. None can say that a certificate's revocation is not known: nobody is asked for it.
fn certificate_reason(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another host name"
        }
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is not known; it may be self-signed, or an intermediate certificate is missing"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "the certificate is signed in a way that is not safe any more, such as with SHA-1"
        }
        CertificateError::BadSignature => {
            "the certificate is not signed by the authority that it names"
        }
        CertificateError::Revoked => "the certificate has been revoked",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for servers; its extended key usage has to name serverAuth"
        }
        CertificateError::BadEncoding => MALFORMED,
        CertificateError::UnhandledCriticalExtension => CRITICAL_EXTENSION,
        CertificateError::Other(OtherError(error)) => {
            error.downcast_ref().map_or(UNACCEPTABLE, path_reason)
        }
        _ => UNACCEPTABLE,
    }
}

const MALFORMED: &str = "the certificate is malformed; it has to be issued anew";
const CRITICAL_EXTENSION: &str = "the certificate has a critical extension that is not supported; it has to be issued anew without it";
const UNACCEPTABLE: &str = "the certificate is not acceptable; it has to be issued anew";

/// What rustls has no words for.
fn path_reason(error: &webpki::Error) -> &'static str {
    use webpki::Error;
    match error {
        Error::CaUsedAsEndEntity => {
            "the certificate is an authority's (CA:TRUE), as many self-signed ones are; a server needs one with CA:FALSE"
        }
        Error::EndEntityUsedAsCa => {
            "the certificate is signed with one that is no authority's (it does not say CA:TRUE)"
        }
        Error::PathLenConstraintViolated => {
            "the certificate's chain has more authorities than one of them allows below it (path length)"
        }
        Error::NameConstraintViolation => {
            "the certificate is for a name that an authority of its chain may not sign for (name constraints)"
        }
        Error::MaximumPathDepthExceeded
        | Error::MaximumPathBuildCallsExceeded
        | Error::MaximumSignatureChecksExceeded
        | Error::MaximumNameConstraintComparisonsExceeded => {
            "the certificate's chain is too long to be checked; only what leads to its root belongs into it"
        }
        Error::UnsupportedCertVersion => {
            "the certificate is not of X.509 version 3; it has to be issued anew"
        }
        Error::UnsupportedCriticalExtension => CRITICAL_EXTENSION,
        Error::EmptyEkuExtension
        | Error::ExtensionValueInvalid
        | Error::InvalidNetworkMaskConstraint
        | Error::InvalidSerialNumber
        | Error::MalformedDnsIdentifier
        | Error::MalformedExtensions
        | Error::MalformedNameConstraint
        | Error::SignatureAlgorithmMismatch => MALFORMED,
        _ => UNACCEPTABLE,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::*;

    /// A library's text is made of the names of its types.
    fn is_plain(words: &str) -> bool {
        let is_camel = |word: &str| {
            let mut pairs = word.chars().zip(word.chars().skip(1));
            word != "serverAuth" && pairs.any(|(a, b)| a.is_lowercase() && b.is_uppercase())
        };
        !words.contains(['{', '"', '_'])
            && !words.split(|c: char| !c.is_alphanumeric()).any(is_camel)
    }

    #[test]
    fn every_fault_of_a_certificate_is_told_in_plain_words() {
        let never = UnixTime::since_unix_epoch(Duration::ZERO);
        for error in [
            CertificateError::BadEncoding,
            CertificateError::Expired,
            CertificateError::NotValidYet,
            CertificateError::Revoked,
            CertificateError::UnhandledCriticalExtension,
            CertificateError::UnknownIssuer,
            CertificateError::UnknownRevocationStatus,
            CertificateError::ExpiredRevocationList,
            CertificateError::ExpiredRevocationListContext {
                time: never,
                next_update: never,
            },
            CertificateError::BadSignature,
            CertificateError::NotValidForName,
            CertificateError::InvalidPurpose,
            CertificateError::InvalidOcspResponse,
            CertificateError::ApplicationVerificationFailure,
            CertificateError::Other(OtherError(Arc::new(std::fmt::Error))),
        ] {
            let words = tls_reason(&TlsError::InvalidCertificate(error));
            assert!(
                words.starts_with("the certificate") && is_plain(&words),
                "{words}"
            );
        }
    }

    #[test]
    fn every_fault_of_a_chain_has_words_of_its_own() {
        use webpki::Error;
        for error in [
            Error::CaUsedAsEndEntity,
            Error::EmptyEkuExtension,
            Error::EndEntityUsedAsCa,
            Error::ExtensionValueInvalid,
            Error::InvalidNetworkMaskConstraint,
            Error::InvalidSerialNumber,
            Error::MalformedDnsIdentifier,
            Error::MalformedExtensions,
            Error::MalformedNameConstraint,
            Error::MaximumNameConstraintComparisonsExceeded,
            Error::MaximumPathBuildCallsExceeded,
            Error::MaximumPathDepthExceeded,
            Error::MaximumSignatureChecksExceeded,
            Error::NameConstraintViolation,
            Error::PathLenConstraintViolated,
            Error::SignatureAlgorithmMismatch,
            Error::UnsupportedCertVersion,
            Error::UnsupportedCriticalExtension,
        ] {
            let other = OtherError(Arc::new(error.clone()));
            let words = tls_reason(&TlsError::InvalidCertificate(CertificateError::Other(
                other,
            )));
            assert!(
                words.starts_with("the certificate") && is_plain(&words),
                "{words}"
            );
            assert_ne!(words, UNACCEPTABLE, "{error:?}");
        }
    }

    #[test]
    fn every_fault_of_a_handshake_is_told_in_plain_words() {
        let others = [
            TlsError::NoCertificatesPresented,
            TlsError::UnsupportedNameType,
            TlsError::DecryptError,
            TlsError::EncryptError,
            TlsError::General("CamelCase { canary }".to_owned()),
            TlsError::PeerSentOversizedRecord,
            TlsError::NoApplicationProtocol,
            TlsError::BadMaxFragmentSize,
            TlsError::PeerMisbehaved(PeerMisbehaved::TooManyKeyUpdateRequests),
            TlsError::Other(OtherError(Arc::new(std::fmt::Error))),
        ];
        let alerts = (0..=255).map(|code| TlsError::AlertReceived(AlertDescription::from(code)));
        for error in others.into_iter().chain(alerts) {
            let words = tls_reason(&error);
            assert!(is_plain(&words), "{words}");
        }
    }
}

//! Clients and requests for the tests beside this.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_domain::{address::EgressPolicy, delivery::ErrorKind, id::TenantId, url::EndpointUrl};
use posthorn_egress::{Answer, Egress, EgressOptions, NameServers, Outgoing, SendFailure, Sent};
use uuid::Uuid;

/// Longer than anything here takes that is not meant to time out.
pub(crate) const AMPLE: Duration = Duration::from_secs(15);

/// A client that may reach the loopback.
pub(crate) fn open() -> Egress {
    allowing("127.0.0.0/8,::1/128")
}

/// A client with this much of `POSTHORN_EGRESS_ALLOW`.
pub(crate) fn allowing(allow: &str) -> Egress {
    Egress::new(
        EgressPolicy::parse(allow).unwrap(),
        &EgressOptions::default(),
    )
    .unwrap()
}

/// A client that asks this name server alone.
pub(crate) fn asking(allow: &str, server: SocketAddr) -> Egress {
    let options = EgressOptions {
        name_servers: NameServers::Only(vec![server]),
        ..EgressOptions::default()
    };
    Egress::new(EgressPolicy::parse(allow).unwrap(), &options).unwrap()
}

/// A client that trusts these roots too.
pub(crate) fn trusting(pem: &str) -> Egress {
    let options = EgressOptions {
        extra_roots: Some(pem.as_bytes().to_vec()),
        ..EgressOptions::default()
    };
    Egress::new(EgressPolicy::parse("127.0.0.0/8").unwrap(), &options).unwrap()
}

/// One that asks this name server alone, too.
pub(crate) fn trusting_and_asking(pem: &str, server: SocketAddr) -> Egress {
    let options = EgressOptions {
        extra_roots: Some(pem.as_bytes().to_vec()),
        name_servers: NameServers::Only(vec![server]),
        ..EgressOptions::default()
    };
    Egress::new(EgressPolicy::parse("127.0.0.0/8").unwrap(), &options).unwrap()
}

/// A moment, to tell how long something took where the deadline is what is tested.
pub(crate) struct Began(Instant);

impl Began {
    #[expect(clippy::disallowed_methods, reason = "the deadline is what is tested")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    #[expect(clippy::disallowed_methods, reason = "the deadline is what is tested")]
    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Sends `{}` with one header.
pub(crate) async fn post(egress: &Egress, url: &str) -> Sent {
    post_within(egress, url, AMPLE).await
}

/// Sends `{}` with one header and this deadline.
pub(crate) async fn post_within(egress: &Egress, url: &str, timeout: Duration) -> Sent {
    post_of(tenant(1), egress, url, timeout).await
}

/// One of some tenants.
pub(crate) fn tenant(which: u128) -> TenantId {
    TenantId::from_uuid(Uuid::from_u128(which))
}

/// The same, of this tenant.
pub(crate) async fn post_of(
    tenant: TenantId,
    egress: &Egress,
    url: &str,
    timeout: Duration,
) -> Sent {
    let headers = HeaderMap::from_iter([(
        HeaderName::from_static("webhook-id"),
        HeaderValue::from_static("evt_1"),
    )]);
    let url = EndpointUrl::parse(url).unwrap();
    egress
        .send(Outgoing {
            tenant,
            url: &url,
            headers,
            body: Bytes::from_static(b"{}"),
            timeout,
        })
        .await
}

/// The answer, which there must be.
#[track_caller]
pub(crate) fn answered(sent: Sent) -> Answer {
    match sent {
        Sent::Answered(answer) => answer,
        Sent::Failed(failure) => panic!("no answer: {failure:?}"),
    }
}

/// The failure, which there must be, of this kind.
#[track_caller]
pub(crate) fn failed(sent: Sent, kind: ErrorKind) -> SendFailure {
    match sent {
        Sent::Failed(failure) => {
            assert_eq!(failure.kind, kind, "{failure:?}");
            failure
        }
        Sent::Answered(answer) => panic!("answered: {answer:?}"),
    }
}

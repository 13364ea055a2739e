//! INV-8: nothing is sent to an address that policy forbids.

use std::collections::BTreeSet;

use posthorn_domain::{
    address::{EgressPolicy, OwnPlaces, Place},
    delivery::ErrorKind,
    url::{EndpointUrl, Host},
};
use posthorn_egress::{Egress, EgressOptions, NameServers, Sent, is_this_machine};
use posthorn_tests::{
    name_server::{NameAnswer, NameServer},
    receiver::{Receiver, Reply},
};

use crate::fixture::{allowing, answered, asking, failed, post};

#[tokio::test]
async fn a_forbidden_literal_is_refused_without_a_connection() {
    let receiver = Receiver::start().await.unwrap();
    failed(
        post(&allowing(""), &receiver.url("/")).await,
        ErrorKind::RefusedTarget,
    );
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn every_forbidden_address_is_refused_as_a_literal_and_through_a_name() {
    let v4 = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 169.254.169.254 169.254.170.2 \
              172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.51.100.1 \
              203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255";
    let v6 = ":: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:a9fe:a9fe ::ffff:0:7f00:1 ::5efe:7f00:1 64:ff9b::7f00:1 \
              64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1 2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 fc00::1 \
              fd00:ec2::254 fe80::1 fec0::1 ff02::1";
    let addresses: Vec<std::net::IpAddr> = v4
        .split_whitespace()
        .chain(v6.split_whitespace())
        .map(|text| text.parse().unwrap())
        .collect();
    let listed = addresses.clone();
    let server = NameServer::start(move |name, _, _| {
        let at: usize = name
            .trim_start_matches('n')
            .split('.')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        NameAnswer::Addresses(vec![listed[at]])
    })
    .await
    .unwrap();
    let egress = asking("", server.address());
    for (at, address) in addresses.iter().enumerate() {
        let literal = if address.is_ipv6() {
            format!("http://[{address}]:9/")
        } else {
            format!("http://{address}:9/")
        };
        if EndpointUrl::parse(&literal).is_ok() {
            failed(post(&egress, &literal).await, ErrorKind::RefusedTarget);
        }
        failed(
            post(&egress, &format!("http://n{at}.test:9/")).await,
            ErrorKind::RefusedTarget,
        );
    }
}

#[tokio::test]
async fn a_refused_target_is_told_in_the_same_words_whatever_the_reason() {
    let server = NameServer::start(|name, _, _| {
        let answers: &[&str] = match name {
            "private.test" => &["10.0.0.1"],
            "metadata.test" => &["169.254.169.254"],
            "mixed.test" => &["1.1.1.1", "192.168.0.1"],
            _ => &["fd00::1"],
        };
        NameAnswer::Addresses(answers.iter().map(|ip| ip.parse().unwrap()).collect())
    })
    .await
    .unwrap();
    let own = OwnPlaces {
        listeners: vec!["127.0.0.1:8400".parse().unwrap()],
        ..OwnPlaces::default()
    };
    let policy = EgressPolicy::parse("127.0.0.1").unwrap().with_own(own);
    let options = EgressOptions {
        name_servers: NameServers::Only(vec![server.address()]),
        ..EgressOptions::default()
    };
    let egress = Egress::new(policy, &options).unwrap();
    let mut told = BTreeSet::new();
    for host in [
        "10.0.0.1",
        "[fd00::1]",
        "127.0.0.2",
        "169.254.169.254",
        "224.0.0.1",
        "192.0.2.1",
        "[2002:7f00:1::1]",
        "127.0.0.1:8400",
        "localhost:8400",
        "private.test",
        "metadata.test",
        "mixed.test",
        "v6.test",
    ] {
        let failure = failed(
            post(&egress, &format!("http://{host}/")).await,
            ErrorKind::RefusedTarget,
        );
        told.insert((failure.detail, failure.remote_address));
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn a_name_with_one_forbidden_answer_is_refused_whole() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|_, _, _| {
        NameAnswer::Addresses(vec![
            "127.0.0.1".parse().unwrap(),
            "10.0.0.1".parse().unwrap(),
        ])
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.1", server.address());
    let url = format!("http://mixed.test:{}/", receiver.address().port());
    let failure = failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
    assert_eq!(receiver.connections(), 0);
    assert!(!failure.detail.contains("10.0.0.1"), "{}", failure.detail);
}

#[tokio::test]
async fn a_name_that_changes_its_answer_never_reaches_the_forbidden_address() {
    // Both listen on the same port: 127.0.0.1 is allowed, 127.0.0.2 is not.
    let allowed = Receiver::start().await.unwrap();
    let port = allowed.address().port();
    let forbidden = Receiver::start_at(format!("127.0.0.2:{port}").parse().unwrap())
        .await
        .unwrap();
    let server = NameServer::start(|_, _, before| {
        // Two questions, one for each family, make one resolution.
        let address = if before / 2 % 2 == 0 {
            "127.0.0.1"
        } else {
            "127.0.0.2"
        };
        NameAnswer::Addresses(vec![address.parse().unwrap()])
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.1", server.address());
    // So that every request makes its own connection.
    allowed.script("/", Reply::status(200).header("connection", "close"));
    let (mut reached, mut refused) = (0, 0);
    for _ in 0..1000 {
        match post(&egress, &format!("http://rebinding.test:{port}/")).await {
            Sent::Answered(_) => reached += 1,
            Sent::Failed(failure) => {
                assert_eq!(failure.kind, ErrorKind::RefusedTarget, "{failure:?}");
                refused += 1;
            }
        }
    }
    assert!(
        reached > 100 && refused > 100,
        "{reached} reached, {refused} refused"
    );
    assert_eq!(forbidden.connections(), 0);
}

#[tokio::test]
async fn the_server_s_own_listener_is_refused_though_its_network_is_allowed() {
    let receiver = Receiver::start().await.unwrap();
    let own = OwnPlaces {
        listeners: vec![receiver.address()],
        ..OwnPlaces::default()
    };
    let policy = EgressPolicy::parse("127.0.0.0/8").unwrap().with_own(own);
    let egress = Egress::new(policy, &EgressOptions::default()).unwrap();
    failed(
        post(&egress, &receiver.url("/v1/events")).await,
        ErrorKind::RefusedTarget,
    );
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_listener_on_every_address_is_refused_at_each_address_of_this_machine() {
    // A receiver stands where the server would listen: what is refused could be reached.
    let receiver = Receiver::start_at("0.0.0.0:0".parse().unwrap())
        .await
        .unwrap();
    let port = receiver.address().port();
    let own = OwnPlaces {
        listeners: vec![receiver.address()],
        is_this_machine,
        ..OwnPlaces::default()
    };
    let policy = EgressPolicy::parse("0.0.0.0/0,::/0,0.0.0.0").unwrap();
    let open = Egress::new(policy.clone(), &EgressOptions::default()).unwrap();
    let egress = Egress::new(policy.with_own(own), &EgressOptions::default()).unwrap();
    for (reached, host) in addresses_of_this_machine().into_iter().enumerate() {
        let url = format!("http://{host}:{port}/");
        failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
        assert_eq!(receiver.connections(), reached, "{host}");
        answered(post(&open, &url).await);
    }
}

/// Beside the loopback's, the one that the machine would send to the outside from, if it has one.
fn addresses_of_this_machine() -> Vec<std::net::IpAddr> {
    let outside = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("1.1.1.1:9")?;
        socket.local_addr()
    });
    let loopback = ["127.0.0.1", "127.3.2.1", "0.0.0.0"].map(|ip| ip.parse().unwrap());
    loopback
        .into_iter()
        .chain(outside.map(|from| from.ip()))
        .collect()
}

#[tokio::test]
async fn the_database_is_refused_by_whatever_name_it_is_reached() {
    let database = Receiver::start().await.unwrap();
    let port = database.address().port();
    let server =
        NameServer::start(|_, _, _| NameAnswer::Addresses(vec!["127.0.0.1".parse().unwrap()]))
            .await
            .unwrap();
    for own in ["127.0.0.1", "localhost"] {
        let host = own
            .parse()
            .map_or_else(|_| Host::Name(own.to_owned()), Host::Ip);
        let own = OwnPlaces {
            databases: vec![Place { host, port }],
            is_this_machine,
            ..OwnPlaces::default()
        };
        let policy = EgressPolicy::parse("127.0.0.0/8").unwrap().with_own(own);
        let options = EgressOptions {
            name_servers: NameServers::Only(vec![server.address()]),
            ..EgressOptions::default()
        };
        let egress = Egress::new(policy, &options).unwrap();
        for host in ["127.0.0.1", "127.0.0.2", "localhost", "other.test"] {
            let url = format!("http://{host}:{port}/");
            failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
        }
    }
    assert_eq!(database.connections(), 0);
}

#[tokio::test]
async fn nothing_is_sent_to_the_database_s_port_while_its_own_name_cannot_be_resolved() {
    let receiver = Receiver::start().await.unwrap();
    let own = OwnPlaces {
        databases: vec![Place {
            // A label too long to be asked for.
            host: Host::Name(format!("{}.invalid", "a".repeat(64))),
            port: receiver.address().port(),
        }],
        ..OwnPlaces::default()
    };
    let policy = EgressPolicy::parse("127.0.0.0/8").unwrap().with_own(own);
    let egress = Egress::new(policy, &EgressOptions::default()).unwrap();
    failed(
        post(&egress, &receiver.url("/")).await,
        ErrorKind::RefusedTarget,
    );
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_port_in_the_allowed_list_holds_for_names_too() {
    let (right, wrong) = (
        Receiver::start().await.unwrap(),
        Receiver::start().await.unwrap(),
    );
    let server =
        NameServer::start(|_, _, _| NameAnswer::Addresses(vec!["127.0.0.1".parse().unwrap()]))
            .await
            .unwrap();
    let egress = asking(
        &format!("127.0.0.0/8:{}", right.address().port()),
        server.address(),
    );
    answered(
        post(
            &egress,
            &format!("http://port.test:{}/", right.address().port()),
        )
        .await,
    );
    let url = format!("http://port.test:{}/", wrong.address().port());
    failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
    assert_eq!(wrong.connections(), 0);
}

#[tokio::test]
async fn a_url_in_the_clear_is_not_sent_to_where_https_alone_is_wanted() {
    let receiver = Receiver::start().await.unwrap();
    let policy = EgressPolicy::parse("127.0.0.0/8").unwrap().https_only(true);
    let egress = Egress::new(policy, &EgressOptions::default()).unwrap();
    let failure = failed(
        post(&egress, &receiver.url("/")).await,
        ErrorKind::RefusedTarget,
    );
    assert!(failure.detail.contains("https"), "{}", failure.detail);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn localhost_is_reached_when_only_its_ipv4_address_is_allowed() {
    let receiver = Receiver::start().await.unwrap();
    let answer = answered(
        post(
            &allowing("127.0.0.0/8"),
            &format!("http://localhost:{}/", receiver.address().port()),
        )
        .await,
    );
    assert_eq!(answer.remote_address, Some(receiver.address()));
}

#[tokio::test]
async fn localhost_is_refused_by_default() {
    let receiver = Receiver::start().await.unwrap();
    let url = format!("http://localhost:{}/", receiver.address().port());
    failed(post(&allowing(""), &url).await, ErrorKind::RefusedTarget);
    assert_eq!(receiver.connections(), 0);
}

//! Names that do not resolve, or only half.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use posthorn_domain::{delivery::ErrorKind, limits};
use posthorn_tests::{
    name_server::{Family, NameAnswer, NameServer},
    receiver::Receiver,
};
use tokio::net::TcpSocket;

use crate::fixture::{AMPLE, Began, answered, asking, failed, post, post_within};

fn loopback() -> NameAnswer {
    NameAnswer::Addresses(vec![IpAddr::from([127, 0, 0, 1])])
}

async fn failure_of(answer: NameAnswer) -> String {
    let server = NameServer::start(move |_, _, _| answer.clone())
        .await
        .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let sent =
        tokio::time::timeout(Duration::from_secs(7), post(&egress, "http://name.test/")).await;
    failed(sent.expect("a bounded time"), ErrorKind::Dns).detail
}

#[tokio::test]
async fn an_unknown_name_is_a_dns_failure() {
    assert_eq!(
        failure_of(NameAnswer::Unknown).await,
        "the host name does not exist (NXDOMAIN)"
    );
}

#[tokio::test]
async fn a_name_without_addresses_is_a_dns_failure() {
    let detail = failure_of(NameAnswer::Addresses(Vec::new())).await;
    assert_eq!(detail, "the host name has no A or AAAA record");
}

#[tokio::test]
async fn a_server_failure_is_a_dns_failure() {
    let detail = failure_of(NameAnswer::Failure).await;
    assert_eq!(
        detail,
        "the name server could not answer for this host name; its zone may be broken"
    );
}

#[tokio::test]
async fn silence_is_a_dns_failure_within_seconds() {
    let detail = failure_of(NameAnswer::Silence).await;
    assert_eq!(detail, "no name server answered for this host name in time");
}

#[tokio::test]
async fn a_loop_of_aliases_is_a_dns_failure() {
    failure_of(NameAnswer::Alias("name.test".to_owned())).await;
}

/// C46: however long the endpoint's deadline is, what was waited for is a name.
#[tokio::test]
async fn a_deadline_that_ends_a_silent_lookup_is_a_dns_failure() {
    let server = NameServer::start(|_, _, _| NameAnswer::Silence)
        .await
        .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let sent = post_within(&egress, "http://name.test/", Duration::from_secs(1)).await;
    assert_eq!(
        failed(sent, ErrorKind::Dns).detail,
        "no name server answered for this host name within 1 s"
    );
}

#[tokio::test]
async fn hundreds_of_dead_names_hold_up_nobody_else() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|name, _, _| {
        if name == "good.test" {
            loopback()
        } else {
            NameAnswer::Silence
        }
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let dead: Vec<_> = (0..600)
        .map(|n| {
            let egress = egress.clone();
            tokio::spawn(async move {
                post_within(&egress, &format!("http://dead{n}.test/"), AMPLE).await
            })
        })
        .collect();
    let asked = async {
        while server.questions() < 600 {
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::time::timeout(limits::EGRESS_DNS_TRY, asked).await;
    let url = format!("http://good.test:{}/", receiver.address().port());
    answered(post_within(&egress, &url, limits::EGRESS_DNS).await);
    for dead in dead {
        dead.abort();
    }
}

/// C46: more names than the resolver asks for at once.
#[tokio::test]
async fn more_dead_names_than_a_node_has_slots_hold_up_nobody_else() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|name, _, _| {
        if name.starts_with("good") {
            loopback()
        } else {
            NameAnswer::Silence
        }
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let mut dead = Vec::new();
    for n in 0..limits::IN_FLIGHT_PER_NODE {
        let egress = egress.clone();
        dead.push(tokio::spawn(async move {
            post_within(&egress, &format!("http://dead{n}.test/"), AMPLE).await
        }));
        // No more at once than its socket holds: what is lost is asked again, and takes its time.
        let asked = async {
            while server.questions() < n {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(50), asked).await;
    }
    for n in 0..20 {
        let url = format!("http://good{n}.test:{}/", receiver.address().port());
        answered(post_within(&egress, &url, limits::EGRESS_DNS).await);
    }
    for dead in dead {
        failed(dead.await.unwrap(), ErrorKind::Dns);
    }
}

/// C46: an answer of 50 kB, which does not fit into UDP.
#[tokio::test]
async fn an_answer_of_thousands_of_addresses_is_read_over_tcp_and_vetted_whole() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|name, family, _| {
        let many = (0..3200_u16).map(|_| IpAddr::from([127, 0, 0, 1]));
        let last = match (name, family) {
            ("good.test", _) => [127, 0, 0, 1],
            _ => [10, 0, 0, 1],
        };
        NameAnswer::Addresses(many.chain([IpAddr::from(last)]).collect())
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let port = receiver.address().port();
    answered(post(&egress, &format!("http://good.test:{port}/")).await);
    let url = format!("http://bad.test:{port}/");
    failed(post(&egress, &url).await, ErrorKind::RefusedTarget);
    assert_eq!(receiver.requests().len(), 1);
}

/// C45: an address that swallows packets, as a broken route to IPv6 does.
#[tokio::test]
async fn an_address_that_swallows_packets_gives_way_to_the_next() {
    let receiver = Receiver::start().await.unwrap();
    let port = receiver.address().port();
    let swallowing = Swallowing::start(port).await;
    let server = NameServer::start(|_, _, _| {
        NameAnswer::Addresses(
            ["::1", "127.0.0.1"]
                .map(|text| text.parse().unwrap())
                .into(),
        )
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8,::1/128", server.address());
    let begun = Began::now();
    let url = format!("http://broken.test:{port}/");
    let answer = answered(post_within(&egress, &url, Duration::from_secs(3)).await);
    assert_eq!(answer.remote_address, Some(receiver.address()));
    assert!(
        begun.elapsed() >= limits::EGRESS_DIAL_STAGGER,
        "it was tried first"
    );
    drop(swallowing);
}

/// A port of `::1` on which nobody accepts, and whose queue is full: the kernel answers nothing more.
struct Swallowing {
    _listener: tokio::net::TcpListener,
    _queued: Vec<tokio::net::TcpStream>,
}

impl Swallowing {
    async fn start(port: u16) -> Self {
        let socket = TcpSocket::new_v6().unwrap();
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut queued = Vec::new();
        loop {
            let connecting = tokio::net::TcpStream::connect(address);
            match tokio::time::timeout(Duration::from_millis(300), connecting).await {
                Ok(connected) => queued.push(connected.unwrap()),
                Err(_) => {
                    return Self {
                        _listener: listener,
                        _queued: queued,
                    };
                }
            }
        }
    }
}

#[tokio::test]
async fn a_name_server_that_is_silent_on_aaaa_delays_but_does_not_prevent() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|_, family, _| match family {
        Family::V4 => loopback(),
        Family::V6 => NameAnswer::Silence,
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let url = format!("http://half.test:{}/", receiver.address().port());
    answered(post_within(&egress, &url, Duration::from_secs(3)).await);
}

#[tokio::test]
async fn a_dead_first_address_gives_way_to_the_next() {
    let receiver = Receiver::start().await.unwrap();
    // 127.0.0.2 refuses this port; ::1 does too.
    let server = NameServer::start(|_, _, _| {
        NameAnswer::Addresses(
            ["::1", "127.0.0.2", "127.0.0.1"]
                .map(|text| text.parse().unwrap())
                .into(),
        )
    })
    .await
    .unwrap();
    let egress = asking("127.0.0.0/8,::1/128", server.address());
    let url = format!("http://some.test:{}/", receiver.address().port());
    assert_eq!(
        answered(post(&egress, &url).await).remote_address,
        Some(receiver.address())
    );
}

#[tokio::test]
async fn host_is_the_name_not_the_address() {
    let receiver = Receiver::start().await.unwrap();
    let server = NameServer::start(|_, _, _| loopback()).await.unwrap();
    let egress = asking("127.0.0.0/8", server.address());
    let authority = format!("named.test:{}", receiver.address().port());
    answered(post(&egress, &format!("http://{authority}/")).await);
    assert_eq!(
        receiver.requests()[0].header("host"),
        Some(authority.as_str())
    );
}

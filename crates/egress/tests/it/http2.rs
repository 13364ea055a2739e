//! HTTP/2 receivers that close, refuse, stall and flood (C27).

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use posthorn_domain::{delivery::ErrorKind, url::EndpointUrl};
use posthorn_egress::{Egress, Outgoing, Sent};
use posthorn_tests::{
    authority::Authority,
    receiver::http2::{Http2Receiver, Http2Reply, code, frame, head},
};

use crate::fixture::{AMPLE, answered, failed, post, post_within, tenant, trusting};

const SHORT: Duration = Duration::from_secs(1);

/// A receiver that answers so, and a client that trusts it.
async fn scene(replies: impl IntoIterator<Item = Http2Reply>) -> (Http2Receiver, Egress) {
    let authority = Authority::new();
    let receiver = Http2Receiver::start(&authority.server()).await.unwrap();
    receiver.script(replies);
    (receiver, trusting(&authority.pem()))
}

/// Sends 4 MiB.
async fn post_large(egress: &Egress, receiver: &Http2Receiver, timeout: Duration) -> Sent {
    let url = EndpointUrl::parse(&receiver.url("/")).unwrap();
    let outgoing = Outgoing {
        tenant: tenant(1),
        url: &url,
        headers: HeaderMap::new(),
        body: Bytes::from(vec![b'x'; 4 * 1024 * 1024]),
        timeout,
    };
    egress.send(outgoing).await
}

/// The receiver's connections have all ended.
async fn none_open(receiver: &Http2Receiver) {
    let ended = async {
        while receiver.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(6), ended).await;
    ended.expect("every connection ends");
}

/// The kind and words of what one request comes to, and how often it was seen.
async fn failure(reply: Http2Reply, kind: ErrorKind) -> (String, usize) {
    let (receiver, egress) = scene([reply]).await;
    let failure = failed(post_within(&egress, &receiver.url("/"), SHORT).await, kind);
    assert_eq!(failure.remote_address, Some(receiver.address()));
    none_open(&receiver).await;
    (failure.detail, receiver.requests().len())
}

#[tokio::test]
async fn a_goaway_between_requests_costs_no_attempt() {
    let farewell = Http2Reply::status(200).then_go_away(code::NO_ERROR);
    let (receiver, egress) = scene([farewell.clone(), farewell, Http2Reply::status(204)]).await;
    for status in [200, 200, 204] {
        assert_eq!(
            answered(post(&egress, &receiver.url("/")).await).status,
            status
        );
    }
    assert_eq!((receiver.requests().len(), receiver.connections()), (3, 3));
}

#[tokio::test]
async fn a_goaway_in_mid_stream_lets_the_request_finish_and_the_next_takes_a_new_connection() {
    let draining = Http2Reply::head(200)
        .data("a")
        .then_go_away(code::NO_ERROR)
        .last_data("b");
    let (receiver, egress) = scene([draining, Http2Reply::status(204)]).await;
    let answer = answered(post(&egress, &receiver.url("/")).await);
    assert_eq!(
        (answer.status, answer.body.as_ref()),
        (200, b"ab".as_slice())
    );
    assert_eq!(
        answered(post(&egress, &receiver.url("/")).await).status,
        204
    );
    assert_eq!((receiver.requests().len(), receiver.connections()), (2, 2));
}

#[tokio::test]
async fn a_connection_that_drains_while_a_request_hangs_on_it_holds_up_no_other() {
    let draining = Http2Reply::hang().then_go_away(code::NO_ERROR);
    let (receiver, egress) = scene([draining, Http2Reply::status(204)]).await;
    let (hanging, url) = (egress.clone(), receiver.url("/"));
    let hanging = tokio::spawn(async move { post_within(&hanging, &url, AMPLE).await });
    receiver.wait_for(1, AMPLE).await;
    for _ in 0..20 {
        let sent = post_within(&egress, &receiver.url("/"), SHORT).await;
        assert_eq!(answered(sent).status, 204);
    }
    assert_eq!(receiver.connections(), 2);
    hanging.abort();
}

/// RFC 9113, 8.7: nobody has acted on it, so it is no failed attempt.
#[tokio::test]
async fn a_request_that_its_receiver_did_not_look_at_is_sent_once_more_at_once() {
    for untouched in [
        Http2Reply::reset(code::REFUSED_STREAM),
        Http2Reply::reset(code::REFUSED_STREAM).at_once(),
        Http2Reply::go_away_before(code::NO_ERROR),
        Http2Reply::go_away_before(code::NO_ERROR).then_close(),
    ] {
        let (receiver, egress) = scene([untouched.clone(), Http2Reply::status(204)]).await;
        let answer = answered(post_within(&egress, &receiver.url("/"), SHORT * 2).await);
        assert_eq!(answer.status, 204, "{untouched:?}");
        let seen = receiver.requests();
        let connections: Vec<_> = seen.iter().map(|request| request.connection).collect();
        assert_eq!(connections, [1, 2], "{untouched:?}");
        assert_eq!(seen[1].body.as_ref(), b"{}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_twice_is_a_connect_failure() {
    let (detail, seen) = failure(Http2Reply::reset(code::REFUSED_STREAM), ErrorKind::Connect).await;
    assert_eq!(
        detail,
        "the endpoint refused the request, and once more on a new connection (HTTP/2 REFUSED_STREAM)"
    );
    assert_eq!(seen, 2);
}

#[tokio::test]
async fn a_request_that_may_have_been_acted_on_is_not_sent_again() {
    for (reply, words) in [
        (
            Http2Reply::reset(code::INTERNAL_ERROR),
            "the endpoint broke the request off (HTTP/2 INTERNAL_ERROR)",
        ),
        (
            Http2Reply::go_away_before(code::ENHANCE_YOUR_CALM),
            "the endpoint closed the connection without taking the request (HTTP/2 ENHANCE_YOUR_CALM)",
        ),
        (
            Http2Reply::go_away(code::NO_ERROR).then_close(),
            "the endpoint closed the connection before its answer was complete",
        ),
        (
            Http2Reply::close(),
            "the endpoint closed the connection before its answer was complete",
        ),
        (
            Http2Reply::hang().then_reset_connection(),
            "the endpoint reset the connection before its answer was complete",
        ),
        (
            Http2Reply::head(200)
                .data("a")
                .then_reset(code::INTERNAL_ERROR),
            "the endpoint answered 200, but its body broke off after 1 bytes",
        ),
        (
            Http2Reply::head(200).data("a").then_close(),
            "the endpoint answered 200, but its body broke off after 1 bytes",
        ),
    ] {
        let (detail, seen) = failure(reply.clone(), ErrorKind::Connect).await;
        assert_eq!((detail.as_str(), seen), (words, 1), "{reply:?}");
    }
}

#[tokio::test]
async fn what_is_not_valid_http2_is_a_protocol_failure() {
    let headless = frame(code::DATA, code::END_STREAM, 1, b"a");
    let endless = [
        frame(code::HEADERS, 0, 1, &head(200)),
        frame(code::CONTINUATION, 0, 1, &head(200)),
    ]
    .concat();
    for reply in [
        Http2Reply::hang().then_raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Http2Reply::hang().then_raw(headless),
        // A head in no more than two frames, and then a frame of another kind.
        Http2Reply::hang().then_raw(endless).data("a"),
        // A stream that nobody has opened.
        Http2Reply::hang().then_raw(frame(code::HEADERS, code::END_HEADERS, 7, &head(200))),
    ] {
        let (detail, seen) = failure(reply.clone(), ErrorKind::Protocol).await;
        assert!(
            detail.starts_with("the answer is not valid HTTP/2"),
            "{detail}: {reply:?}"
        );
        assert_eq!(seen, 1);
    }
}

/// C18, C20 over HTTP/2: a head without end.
#[tokio::test]
async fn a_head_of_endless_frames_is_a_protocol_failure_before_the_deadline() {
    // A name and a value of 100 bytes, literally.
    let field = [&[0x00, 1, b'x', 100][..], &[b'v'; 100]].concat();
    let reply = Http2Reply::hang()
        .then_raw(frame(code::HEADERS, 0, 1, &head(200)))
        .then_flood(frame(code::CONTINUATION, 0, 1, &field));
    let (detail, seen) = failure(reply, ErrorKind::Protocol).await;
    assert!(detail.contains("larger than 32 KiB"), "{detail}");
    assert_eq!(seen, 1);
}

#[tokio::test]
async fn an_answer_before_the_request_is_read_is_the_answer() {
    let refusal = Http2Reply::status(413).at_once().then_reset(code::NO_ERROR);
    let (receiver, egress) = scene([refusal]).await;
    assert_eq!(
        answered(post_large(&egress, &receiver, AMPLE).await).status,
        413
    );
}

/// C19 over HTTP/2: the request's own body is not let through.
#[tokio::test]
async fn a_stream_that_is_held_by_its_window_ends_at_the_deadline_and_leaves_nothing() {
    let (receiver, egress) = scene([Http2Reply::status(200)]).await;
    receiver.settings(&[(code::INITIAL_WINDOW_SIZE, 0)]);
    // More than is sent before the settings have come.
    failed(
        post_large(&egress, &receiver, SHORT).await,
        ErrorKind::Timeout,
    );
    none_open(&receiver).await;
}

/// INV-13: who hangs on an origin holds up nobody who sends to the same.
#[tokio::test]
async fn a_hanging_stream_on_a_connection_that_takes_one_holds_up_no_other() {
    let (receiver, egress) = scene([
        Http2Reply::status(200),
        Http2Reply::hang(),
        Http2Reply::status(204),
    ])
    .await;
    receiver.settings(&[(code::MAX_CONCURRENT_STREAMS, 1)]);
    answered(post(&egress, &receiver.url("/")).await);
    let (hanging, url) = (egress.clone(), receiver.url("/hang"));
    let hanging = tokio::spawn(async move { post_within(&hanging, &url, AMPLE).await });
    receiver.wait_for(2, AMPLE).await;
    for _ in 0..20 {
        let sent = post_within(&egress, &receiver.url("/"), SHORT).await;
        assert_eq!(answered(sent).status, 204);
    }
    // One for the hanging, one for all others.
    assert_eq!(receiver.connections(), 2);
    hanging.abort();
    none_open(&receiver).await;
}

#[tokio::test]
async fn a_receiver_that_takes_no_stream_at_all_is_a_timeout_and_leaves_nothing() {
    let (receiver, egress) = scene([Http2Reply::status(200)]).await;
    receiver.settings(&[(code::MAX_CONCURRENT_STREAMS, 0)]);
    let sending = (0..5).map(|_| {
        let (egress, url) = (egress.clone(), receiver.url("/"));
        tokio::spawn(async move { post_within(&egress, &url, SHORT).await })
    });
    for sent in sending.collect::<Vec<_>>() {
        // The settings may come behind the first request of a connection, which is answered then.
        if let Sent::Failed(failure) = sent.await.unwrap() {
            assert_eq!(failure.kind, ErrorKind::Timeout, "{failure:?}");
        }
    }
    none_open(&receiver).await;
}

#[tokio::test]
async fn a_flood_of_settings_or_pings_is_a_timeout_that_leaves_no_connection() {
    let settings = frame(code::SETTINGS, 0, 0, &[]);
    let ping = frame(code::PING, 0, 0, &[0; 8]);
    let window = frame(code::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
    for reply in [
        Http2Reply::hang().then_flood(settings.repeat(64)),
        Http2Reply::hang().then_flood(ping.repeat(64)),
        Http2Reply::hang().then_flood(window.repeat(64)),
        Http2Reply::hang().then_deaf_flood(settings.repeat(64)),
        Http2Reply::hang().then_deaf_flood(ping.repeat(64)),
    ] {
        let (receiver, egress) = scene([reply.clone()]).await;
        match post_within(&egress, &receiver.url("/"), SHORT).await {
            Sent::Failed(failure) => assert!(
                matches!(
                    failure.kind,
                    ErrorKind::Timeout | ErrorKind::Connect | ErrorKind::Protocol
                ),
                "{failure:?}"
            ),
            Sent::Answered(answer) => panic!("{answer:?}"),
        }
        none_open(&receiver).await;
        assert_eq!(receiver.requests().len(), 1, "{reply:?}");
    }
}

/// C20 over HTTP/2.
#[tokio::test]
async fn a_large_body_over_http2_is_cut_at_16_kib_and_its_stream_ended() {
    let mut reply = Http2Reply::head(200);
    for _ in 0..16 {
        reply = reply.data(vec![b'x'; 4 * 1024]);
    }
    let (receiver, egress) = scene([reply]).await;
    let answer = answered(post(&egress, &receiver.url("/")).await);
    assert_eq!((answer.body.len(), answer.cut), (16 * 1024, true));
    none_open(&receiver).await;
}

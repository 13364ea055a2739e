//! Answers that are not quite HTTP, or HTTP at its edges. Each ends at once, as an answer or as a failure with a kind and words.

use std::time::Duration;

use posthorn_domain::delivery::ErrorKind;
use posthorn_egress::Sent;
use posthorn_tests::receiver::{OnAccept, Receiver, Reply};

use crate::fixture::{open, post, post_within};

/// All of what is below ends long before.
const SOON: Duration = Duration::from_secs(5);

/// Status, body, and whether that was cut; or kind and words of a failure.
type Outcome = Result<(u16, usize, bool), (ErrorKind, String)>;

async fn outcome(reply: Reply) -> Outcome {
    let receiver = Receiver::start().await.unwrap();
    receiver.script("/", reply);
    let outcome = match post_within(&open(), &receiver.url("/"), SOON).await {
        Sent::Answered(answer) => Ok((answer.status, answer.body.len(), answer.cut)),
        Sent::Failed(failure) => {
            assert_eq!(failure.remote_address, Some(receiver.address()));
            Err((failure.kind, failure.detail))
        }
    };
    assert_eq!(receiver.requests().len(), 1, "each is one request");
    outcome
}

fn invalid(why: &str) -> Outcome {
    Err((
        ErrorKind::Protocol,
        format!("the answer is not valid HTTP ({why})"),
    ))
}

fn too_large() -> Outcome {
    let detail = "the head of the answer is larger than 32 KiB or 100 headers".to_owned();
    Err((ErrorKind::Protocol, detail))
}

/// Runs a table of answers and says all that are not as wanted.
async fn assert_all(table: Vec<(&str, String, Outcome)>) {
    let mut wrong = Vec::new();
    for (name, answer, wanted) in table {
        let came = outcome(Reply::raw(answer).then_close()).await;
        if came != wanted {
            wrong.push(format!("{name}: wanted {wanted:?}, came {came:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn head(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n")
}

#[tokio::test]
async fn a_malformed_field_is_told_apart_from_one_that_is_only_odd() {
    let length = "content-length: 2\r\n";
    let many = "x-other: v\r\n".repeat(101);
    assert_all(vec![
        (
            "a field over two lines",
            head("x-a: b\r\n c\r\ncontent-length: 0\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "a bare CR",
            head("x-a: b\rc\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "bare LFs",
            "HTTP/1.1 200 OK\ncontent-length: 0\n\n".to_owned(),
            Ok((200, 0, false)),
        ),
        (
            "a NUL",
            head("x-a: b\0c\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "a space in a name",
            head("x a: b\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "a space before the colon",
            head("content-length : 2\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "a field without a name",
            head(": b\r\n"),
            invalid("invalid HTTP header parsed"),
        ),
        (
            "bytes that are not UTF-8",
            head(&format!("x-a: \u{e9}\r\n{length}")) + "ok",
            Ok((200, 2, false)),
        ),
        ("over 100 fields", head(&many), too_large()),
        (
            "a head of 200 kB",
            head(&format!("x-a: {}\r\n{length}", "v".repeat(200_000))),
            too_large(),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_length_that_contradicts_itself_is_no_answer() {
    assert_all(vec![
        (
            "the same twice",
            head("content-length: 2\r\ncontent-length: 2\r\n") + "ok",
            Ok((200, 2, false)),
        ),
        (
            "a list of the same",
            head("content-length: 2, 2\r\n") + "ok",
            Ok((200, 2, false)),
        ),
        (
            "two",
            head("content-length: 2\r\ncontent-length: 3\r\n") + "ok",
            invalid("invalid content-length parsed"),
        ),
        (
            "a negative one",
            head("content-length: -2\r\n") + "ok",
            invalid("invalid content-length parsed"),
        ),
        (
            "one with a sign",
            head("content-length: +2\r\n") + "ok",
            invalid("invalid content-length parsed"),
        ),
        (
            "one that is no number",
            head("content-length: two\r\n") + "ok",
            invalid("invalid content-length parsed"),
        ),
        (
            "one over 64 bits",
            head("content-length: 99999999999999999999\r\n") + "ok",
            invalid("invalid content-length parsed"),
        ),
        (
            "length and chunks",
            head("content-length: 2\r\ntransfer-encoding: chunked\r\n") + "2\r\nok\r\n0\r\n\r\n",
            Ok((200, 2, false)),
        ),
        (
            "an encoding that nobody knows",
            head("transfer-encoding: x\r\n") + "ok",
            Ok((200, 2, false)),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_malformed_chunk_is_a_protocol_failure() {
    let chunked = |body: &str| head("transfer-encoding: chunked\r\n") + body;
    let bad = |read: usize| -> Outcome {
        let detail =
            format!("the endpoint answered 200, but its body is not valid HTTP after {read} bytes");
        Err((ErrorKind::Protocol, detail))
    };
    assert_all(vec![
        (
            "a size that is no number",
            chunked("zz\r\nok\r\n0\r\n\r\n"),
            bad(0),
        ),
        ("a negative size", chunked("-1\r\nok\r\n0\r\n\r\n"), bad(0)),
        (
            "a size over 64 bits",
            chunked("fffffffffffffffff\r\nok\r\n0\r\n\r\n"),
            bad(0),
        ),
        (
            "no end of a chunk",
            chunked("2\r\nokay\r\n0\r\n\r\n"),
            bad(2),
        ),
        (
            "an extension",
            chunked("2;a=b\r\nok\r\n0\r\n\r\n"),
            Ok((200, 2, false)),
        ),
        (
            "trailers",
            chunked("2\r\nok\r\n0\r\nx-a: b\r\n\r\n"),
            Ok((200, 2, false)),
        ),
        (
            "trailers without end",
            chunked(&format!("2\r\nok\r\n0\r\n{}", "x-a: b\r\n".repeat(10_000))),
            bad(2),
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_status_is_three_digits_and_what_it_means_is_its_first() {
    let status = |status: &str| format!("HTTP/1.1 {status} Odd\r\ncontent-length: 0\r\n\r\n");
    let no_status = || -> Outcome {
        let detail = "the answer has no valid status".to_owned();
        Err((ErrorKind::Protocol, detail))
    };
    assert_all(vec![
        ("000", status("000"), no_status()),
        ("099", status("099"), no_status()),
        ("600", status("600"), Ok((600, 0, false))),
        ("999", status("999"), Ok((999, 0, false))),
        ("four digits", status("2000"), no_status()),
        ("two digits", status("20"), no_status()),
        ("no digits", status("abc"), no_status()),
        (
            "no reason",
            "HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n".to_owned(),
            Ok((200, 0, false)),
        ),
    ])
    .await;
}

#[tokio::test]
async fn another_protocol_is_a_protocol_failure() {
    assert_all(vec![
        (
            "HTTP/0.9",
            "<html>ok</html>\r\n".to_owned(),
            invalid("invalid HTTP version parsed"),
        ),
        (
            "HTTP/1.2",
            "HTTP/1.2 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
            invalid("invalid HTTP version parsed"),
        ),
        (
            "HTTP/2 by name",
            "HTTP/2 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(),
            invalid("invalid HTTP version parsed"),
        ),
        (
            "the preface of HTTP/2",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            invalid("invalid HTTP version parsed"),
        ),
        (
            "a mail server",
            "220 mail.example ESMTP\r\n".to_owned(),
            invalid("invalid HTTP version parsed"),
        ),
    ])
    .await;
}

/// C22: at each stage, by a reset.
#[tokio::test]
async fn a_reset_at_any_stage_is_a_connect_failure_and_one_request_at_most() {
    let reset = "the endpoint reset the connection before its answer was complete";
    for (head, words) in [
        ("", reset),
        ("HTTP/1.1 200 OK\r\ncontent-le", reset),
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n0123456789",
            "the endpoint answered 200, but its body broke off after 10 bytes",
        ),
    ] {
        let came = outcome(Reply::raw(head).then_reset()).await;
        assert_eq!(
            came,
            Err((ErrorKind::Connect, words.to_owned())),
            "{head:?}"
        );
    }
    let receiver = Receiver::start().await.unwrap();
    for read in [1, 40] {
        // While the request is written.
        receiver.on_accept(OnAccept::ResetAfter(read));
        let failure =
            crate::fixture::failed(post(&open(), &receiver.url("/")).await, ErrorKind::Connect);
        assert_eq!(failure.detail, reset);
    }
    assert!(receiver.requests().is_empty());
}

//! Wrong input, wrong callers, and a database that is away: a clear answer each time, and nothing lost.

mod addresses;
mod bodies;
mod callers;
mod database;
mod lengths;
mod requests;

use posthorn_tests::program::{Answer, At, Client};
use serde_json::{Value, json};

/// What every refusal looks like (RFC 9457), whoever refused.
#[track_caller]
fn assert_problem(answer: &Answer, status: u16, code: &str) -> Value {
    let problem = answer.expect(status);
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(problem.text("/code"), code, "{problem}");
    assert_eq!(problem.pointer("/status"), Some(&json!(status)));
    assert_eq!(problem.text("/type"), format!("/docs/problems/{code}"));
    assert!(!problem.text("/title").is_empty());
    assert_eq!(problem.text("/request_id"), answer.header("x-request-id"));
    problem
}

/// The pointers of a refusal's faults.
fn pointers(problem: &Value) -> Vec<String> {
    let errors = problem.list("/errors");
    errors.iter().map(|error| error.text("/pointer")).collect()
}

async fn nothing_listed(api: &Client, path: &str) {
    let page = api.get(path).await.expect(200);
    assert_eq!(page.list("/data"), [] as [Value; 0], "{path}");
}

//! When keys were last used.

use http::Method;
use posthorn_tests::engine::AMPLE;
use posthorn_tests::wait::until;

use super::Api;

/// A use that was written more than a minute ago.
const LONG_AGO: &str = "UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'";

/// Statements of this database that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";

#[tokio::test]
async fn the_last_use_of_a_key_is_written_at_most_once_a_minute() {
    let api = Api::start().await;
    let program = api.program().await;
    let mut written = Vec::new();
    for moves in [false, false, true] {
        if moves {
            api.rows.run(LONG_AGO).await;
        }
        for _ in 0..3 {
            program.get("/v1/events").await.expect(200);
        }
        assert_eq!(api.key_uses.len(), 1);
        written.push(api.key_uses.run_once(&api.node.database).await.unwrap());
        assert!(api.key_uses.is_empty());
    }
    assert_eq!(written, [1, 0, 1]);
}

#[tokio::test]
async fn a_call_that_is_refused_is_no_use_of_a_key() {
    let api = Api::start().await;
    api.anonymous(Method::GET, "/v1/events").await.expect(401);
    assert!(api.key_uses.is_empty());
}

/// INV-11: whatever the database does, calls go on, and the use stays noted.
#[tokio::test]
async fn calls_go_on_while_the_use_of_their_key_cannot_be_written() {
    let api = Api::start().await;
    let program = api.program().await;
    program.get("/v1/events").await.expect(200);
    api.rows.run("BEGIN").await;
    api.rows
        .run("LOCK TABLE api_keys IN SHARE ROW EXCLUSIVE MODE")
        .await;
    let (uses, database) = (api.key_uses.clone(), api.node.database.clone());
    let writing = tokio::spawn(async move { uses.run_once(&database).await });
    until("the writing to wait", AMPLE, async || {
        (api.rows.number(WAITING).await == 1).then_some(())
    })
    .await;
    for _ in 0..3 {
        program.event("order.paid").await;
    }
    assert!(!writing.is_finished());
    assert_eq!(api.key_uses.len(), 1);
    api.rows.run("COMMIT").await;
    assert_eq!(writing.await.unwrap().unwrap(), 1);
}

//! Threads: who answers callers does not send.

use crate::stage::{AMPLE, Stage};

/// Endpoints of each event.
const ENDPOINTS: usize = 250;

/// Events.
const EVENTS: usize = 40;

/// INV-13: a burst of deliveries is not queued before those who submit. What is told is on which threads the work was
/// done, for how long somebody waited depends on this machine.
#[tokio::test(flavor = "multi_thread")]
async fn deliveries_are_sent_and_recorded_by_threads_of_their_own() {
    let stage = Stage::set().await;
    for _ in 0..ENDPOINTS {
        stage.endpoint("/to", 500, 50).await;
    }
    let used = || {
        (
            stage.node.ticks("posthorn"),
            stage.node.ticks("posthorn-send"),
        )
    };
    let (answering, sending) = used();
    for _ in 0..EVENTS {
        stage.api.submit("order.paid", b"{}").await;
    }
    let all = ENDPOINTS * EVENTS;
    stage.receiver.wait_for("/to", all, 3 * AMPLE).await;
    let (answered, sent) = used();
    let (answering, sending) = (answered - answering, sent - sending);
    // When all is well it is ten to twenty times as much; ticks are coarse.
    assert!(sending > 3 * answering, "{sending} against {answering}");
}

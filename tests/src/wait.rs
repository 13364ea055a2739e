//! Waiting for something that another process does: asked again and again until it is so, with a deadline.
//!
//! The only place in the tests of the whole program that lets time pass.

use std::time::Duration;

/// Between the first two looks; then longer and longer.
const SHORTEST: Duration = Duration::from_millis(10);

/// Between two looks at most.
const LONGEST: Duration = Duration::from_millis(160);

/// Asks until there is an answer, and returns it. `what` completes the sentence "waited for …".
///
/// # Panics
///
/// When there is none `within` the time.
#[expect(clippy::panic, reason = "an assertion of the test that waits")]
pub async fn until<T>(what: &str, within: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        let mut between = SHORTEST;
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            pause(between).await;
            between = (between * 2).min(LONGEST);
        }
    };
    let Ok(answer) = tokio::time::timeout(within, asking).await else {
        panic!("waited for {what}, {within:?} long")
    };
    answer
}

/// Lets time pass where time itself is what the test is about: a load that runs for a while, a process that stands
/// still past its lease. Never a way to wait for something.
#[expect(
    clippy::disallowed_methods,
    reason = "real time is what is being tested"
)]
pub async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

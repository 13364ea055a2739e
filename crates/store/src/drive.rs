//! The one driver of every loop: a step is `run_once`, the driver repeats it.
//!
//! A hint makes the next step come sooner; the timer is what is relied on. Tests call the step itself.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Repeats `step` every `period`, and at once after a `hint`, until `stop`. A step that has begun is finished.
pub async fn drive<F, S>(
    clock: &Clock,
    period: Duration,
    hint: Option<&Notify>,
    stop: &CancellationToken,
    mut step: F,
) where
    F: FnMut() -> S,
    S: Future<Output = ()>,
{
    loop {
        step().await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = clock.sleep(period) => {}
            () = hinted(hint) => {}
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

async fn hinted(hint: Option<&Notify>) {
    match hint {
        Some(hint) => hint.notified().await,
        None => std::future::pending().await,
    }
}

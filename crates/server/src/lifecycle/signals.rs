//! SIGTERM and Ctrl-C: the first asks, the second insists.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// From here on a signal cancels the token; a second one ends the process at once.
///
/// # Errors
/// When signals cannot be listened to.
pub(super) fn watch() -> std::io::Result<CancellationToken> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    tokio::spawn(async move {
        loop {
            let status = tokio::select! {
                _ = term.recv() => 128 + SignalKind::terminate().as_raw_value(),
                _ = interrupt.recv() => 128 + SignalKind::interrupt().as_raw_value(),
            };
            if first.is_cancelled() {
                tracing::warn!("second signal: leaving at once");
                std::process::exit(status);
            }
            first.cancel();
        }
    });
    Ok(stop)
}

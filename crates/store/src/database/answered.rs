//! Waiting for the database, and giving a step up that nobody answers (INV-11).

use std::future::Future;
use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::DatabaseError;

/// Waits for a step for so long. What it came to is unknown when it was given up.
///
/// # Panics
/// Outside of a runtime.
///
/// # Errors
/// Its own, or [`unanswered`].
pub fn answered<T, E: From<io::Error>>(
    within: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> impl Future<Output = Result<T, E>> {
    // Not an async function: it would keep the step twice.
    tokio::time::timeout(within, step)
        .map(|answer| answer.unwrap_or_else(|_| Err(silence().into())))
}

/// That a step was given up: the database, or the way to it, has said nothing in time.
#[must_use]
pub fn unanswered() -> DatabaseError {
    silence().into()
}

/// The same, for the driver's errors.
pub(super) fn silence() -> io::Error {
    let text = "the database has not answered in time";
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Whether that is what an error of the driver says.
pub(super) fn is_unanswered(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
}

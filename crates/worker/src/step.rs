//! A step at the database on the way of a delivery.

use std::future::Future;

use posthorn_domain::limits;
use posthorn_store::database::{DatabaseError, answered};

/// Gives a step up when nobody answers: one of the endpoint's slots hangs on it (INV-11, INV-13). What it was about is found
/// again, by the due timer or by the next attempt.
pub(crate) fn bounded<T>(
    step: impl Future<Output = Result<T, DatabaseError>>,
) -> impl Future<Output = Result<T, DatabaseError>> {
    answered(limits::STEP, step)
}

//! What the errors of `store` mean to a caller. One mapping, used by `?`.

use std::error::Error;
use std::time::Duration;

use posthorn_domain::compat::CompatError;
use posthorn_domain::header::{HeaderError, HeadersError};
use posthorn_domain::rate::RateLimitError;
use posthorn_store::accept::{AcceptError, Acceptor};
use posthorn_store::configure::ConfigureError;
use posthorn_store::idempotent::IdempotentError;
use posthorn_store::read::DatabaseError;
use posthorn_store::replay::ReplayError;
use posthorn_store::test_send::TestSendError;

use crate::body::escape;
use crate::problem::{Failure, Fault, Problem};

/// When to come back after the database was away: its pool has waited by then.
const DATABASE_PAUSE: Duration = Duration::from_secs(2);

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        let cause = chain(&error);
        match error {
            DatabaseError::Unavailable(_) => Self {
                cause: Some(cause),
                ..Self::not_now(Problem::Unavailable, DATABASE_PAUSE)
            },
            DatabaseError::Failed(_) | DatabaseError::Unreadable(_) => Self::internal(cause),
        }
    }
}

impl From<ConfigureError> for Failure {
    fn from(error: ConfigureError) -> Self {
        match error {
            ConfigureError::Database(error) => error.into(),
            ConfigureError::NotFound => Self::new(Problem::NotFound),
            ConfigureError::UidTaken => Self::field(
                "/uid",
                Problem::UidTaken,
                "another object of this tenant has this uid",
            ),
            ConfigureError::TooManyEndpoints => Self::new(Problem::TooManyEndpoints),
            ConfigureError::TooManyKeys => Self::new(Problem::TooManyApiKeys),
            ConfigureError::Headers(error) => Self::faults(header_faults(&error).collect()),
            ConfigureError::Compat(error) => {
                let (pointer, problem) = compat_problem(&error);
                Self::field(pointer, problem, error.to_string())
            }
            ConfigureError::Metadata(error) => {
                Self::field("/metadata", Problem::MetadataInvalid, error.to_string())
            }
            ConfigureError::RateLimit(error) => rate_failure(error),
            ConfigureError::TooManyOldSecrets => Self::new(Problem::TooManyOldSecrets),
            ConfigureError::SchemeMissing => {
                Self::field("/scheme", Problem::FieldMissing, error.to_string())
            }
            ConfigureError::SecretInForce => {
                Self::field("/secret", Problem::SecretInvalid, error.to_string())
            }
            ConfigureError::SchemeUnused(_) => {
                Self::field("/scheme", Problem::SecretInvalid, error.to_string())
            }
            ConfigureError::Seal(_) | ConfigureError::Secret(_) | ConfigureError::Json(_) => {
                Self::internal(chain(&error))
            }
        }
    }
}

/// A rate that is refused, at the number that is wrong.
fn rate_failure(error: RateLimitError) -> Failure {
    Failure::faults(vec![rate_fault(error)])
}

/// Which of a rate's numbers is wrong, and how.
pub(crate) fn rate_fault(error: RateLimitError) -> Fault {
    let (pointer, problem) = match error {
        RateLimitError::PerSecond => ("/rate_limit/per_second", Problem::FieldInvalid),
        RateLimitError::PerSecondMissing => ("/rate_limit/per_second", Problem::FieldMissing),
        RateLimitError::Burst => ("/rate_limit/burst", Problem::FieldInvalid),
    };
    // Its words begin with the name of the number.
    Fault::new(pointer, problem, format!("/rate_limit/{error}"))
}

impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Database(error) => error.into(),
            ReplayError::NotFound => Self::new(Problem::NotFound),
            ReplayError::Retrying => Self::new(Problem::DeliveryRetrying),
            ReplayError::EndpointDisabled => Self::with_detail(
                Problem::EndpointDisabled,
                "nothing is sent to a disabled endpoint: change its `state` to `enabled` first, then replay",
            ),
            ReplayError::EndpointDeleted => Self::new(Problem::EndpointDeleted),
            ReplayError::PayloadGone => Self::new(Problem::PayloadGone),
            ReplayError::Moving => Self::not_now(Problem::Unavailable, DATABASE_PAUSE),
        }
    }
}

/// When to come back for a test: most take less.
const TEST_PAUSE: Duration = Duration::from_secs(1);

impl From<TestSendError> for Failure {
    fn from(error: TestSendError) -> Self {
        match error {
            TestSendError::TooMany => Self::not_now(Problem::TooManyTests, TEST_PAUSE),
            TestSendError::Busy => Self::not_now(Problem::Busy, TEST_PAUSE),
            TestSendError::NoEndpoint => Self::new(Problem::NotFound),
            TestSendError::ShuttingDown => Self::not_now(Problem::Unavailable, DATABASE_PAUSE),
        }
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Self {
        let wait = Acceptor::retry_after(error).unwrap_or(DATABASE_PAUSE);
        let failure = match error {
            AcceptError::Busy => Self::not_now(Problem::Busy, wait),
            AcceptError::Unavailable | AcceptError::ShuttingDown => {
                Self::not_now(Problem::Unavailable, wait)
            }
            // The tenant went between authentication and accept: its keys are no longer valid.
            AcceptError::TenantGone => Self::unauthenticated(),
            AcceptError::KeyReused => Self::new(Problem::IdempotencyKeyReused),
            AcceptError::UidReused => Self::field("/uid", Problem::UidReused, error.to_string()),
            AcceptError::KeyInUse => Self::not_now(Problem::IdempotencyKeyInUse, wait),
            AcceptError::Refused => Self::new(Problem::Internal),
        };
        Self {
            cause: Some(error.to_string()),
            ..failure
        }
    }
}

impl From<IdempotentError> for Failure {
    fn from(error: IdempotentError) -> Self {
        match error {
            IdempotentError::Database(error) => error.into(),
            IdempotentError::Seal(_) | IdempotentError::Headers(_) => Self::internal(chain(&error)),
        }
    }
}

/// What is wrong with a body's `headers`, each fault at its header.
pub(crate) fn header_faults(error: &HeadersError) -> impl Iterator<Item = Fault> {
    error.faults().iter().map(|fault| {
        let problem = match fault.error {
            HeaderError::TooMany(_) => Problem::TooManyHeaders,
            _ => Problem::HeaderInvalid,
        };
        let name = fault.name.as_deref().map(escape);
        let pointer = name.map_or_else(|| "/headers".to_owned(), |name| format!("/headers/{name}"));
        Fault::new(pointer, problem, fault.error.to_string())
    })
}

/// Which part of a compatibility scheme is wrong, and the problem that it is.
pub(crate) const fn compat_problem(error: &CompatError) -> (&'static str, Problem) {
    match error {
        CompatError::KindMissing => ("/signing/compat/kind", Problem::FieldMissing),
        CompatError::SecretMissing => ("/signing/compat/secret", Problem::FieldMissing),
        CompatError::HeaderMissing => ("/signing/compat/header", Problem::FieldMissing),
        CompatError::Header(_) => ("/signing/compat/header", Problem::HeaderInvalid),
        CompatError::Secret => ("/signing/compat/secret", Problem::SecretInvalid),
    }
}

/// An error with what caused it, for the log.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}

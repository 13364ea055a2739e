//! Who may do what: the one table of operations, their scopes and their problems.
//!
//! The extractor [`crate::authenticate::Caller`] looks the request up here and refuses what it does not find,
//! so an operation that is missing cannot be called. The OpenAPI document takes `x-access`, security and
//! problem answers from here, and a test compares the two.

use http::Method;
use posthorn_domain::scope::Scope;

use crate::problem::Problem;

/// One operation of the API.
#[derive(Debug)]
pub(crate) struct Operation {
    /// `verb_resource`; the same in the document.
    pub id: &'static str,
    /// Its method.
    pub method: Method,
    /// Its path, as the router has it.
    pub path: &'static str,
    /// The scope that a key needs.
    pub scope: Scope,
    /// Refusals of its own, beside those that every operation of its shape may give.
    pub problems: &'static [Problem],
}

/// What may be wrong with a new endpoint.
const NEW_ENDPOINT: &[Problem] = &[
    Problem::UidTaken,
    Problem::TooManyEndpoints,
    Problem::FieldDuplicate,
    Problem::EventTypePatternInvalid,
    Problem::TooManyEventTypes,
    Problem::UrlInvalid,
    Problem::UrlTooLong,
    Problem::HttpsRequired,
    Problem::TargetForbidden,
    Problem::DescriptionTooLong,
    Problem::HeaderInvalid,
    Problem::TooManyHeaders,
    Problem::MetadataInvalid,
    Problem::UidInvalid,
    Problem::SecretInvalid,
];

/// What may be wrong with the fields of a change.
const ENDPOINT_FIELDS: &[Problem] = &[
    Problem::UidTaken,
    Problem::FieldDuplicate,
    Problem::EventTypePatternInvalid,
    Problem::TooManyEventTypes,
    Problem::UrlInvalid,
    Problem::UrlTooLong,
    Problem::HttpsRequired,
    Problem::TargetForbidden,
    Problem::DescriptionTooLong,
    Problem::HeaderInvalid,
    Problem::TooManyHeaders,
    Problem::MetadataInvalid,
    Problem::UidInvalid,
    Problem::SecretInvalid,
];

/// All operations, in the order of the reference.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        id: "create_event",
        method: Method::POST,
        path: "/v1/events",
        scope: Scope::EventsWrite,
        problems: &[
            Problem::PayloadTooLarge,
            Problem::FieldDuplicate,
            Problem::EventTypeInvalid,
            Problem::PayloadTooDeep,
            Problem::UidInvalid,
            Problem::UidReused,
            Problem::HeaderInvalid,
            Problem::TooManyHeaders,
            Problem::MetadataInvalid,
            Problem::Busy,
        ],
    },
    Operation {
        id: "create_raw_event",
        method: Method::POST,
        path: "/v1/events/raw",
        scope: Scope::EventsWrite,
        problems: &[
            Problem::PayloadTooLarge,
            Problem::ParameterMissing,
            Problem::ParameterInvalid,
            Problem::EventTypeInvalid,
            Problem::PayloadTooDeep,
            Problem::UidInvalid,
            Problem::UidReused,
            Problem::Busy,
        ],
    },
    Operation {
        id: "list_events",
        method: Method::GET,
        path: "/v1/events",
        scope: Scope::EventsRead,
        problems: LIST,
    },
    Operation {
        id: "get_event",
        method: Method::GET,
        path: "/v1/events/{id}",
        scope: Scope::EventsRead,
        problems: &[],
    },
    Operation {
        id: "get_event_payload",
        method: Method::GET,
        path: "/v1/events/{id}/payload",
        scope: Scope::PayloadsRead,
        problems: &[],
    },
    Operation {
        id: "create_endpoint",
        method: Method::POST,
        path: "/v1/endpoints",
        scope: Scope::EndpointsWrite,
        problems: NEW_ENDPOINT,
    },
    Operation {
        id: "list_endpoints",
        method: Method::GET,
        path: "/v1/endpoints",
        scope: Scope::EndpointsRead,
        problems: LIST,
    },
    Operation {
        id: "get_endpoint",
        method: Method::GET,
        path: "/v1/endpoints/{id}",
        scope: Scope::EndpointsRead,
        problems: &[],
    },
    Operation {
        id: "update_endpoint",
        method: Method::PATCH,
        path: "/v1/endpoints/{id}",
        scope: Scope::EndpointsWrite,
        problems: ENDPOINT_FIELDS,
    },
    Operation {
        id: "delete_endpoint",
        method: Method::DELETE,
        path: "/v1/endpoints/{id}",
        scope: Scope::EndpointsWrite,
        problems: &[],
    },
    Operation {
        id: "test_endpoint",
        method: Method::POST,
        path: "/v1/endpoints/{id}/test",
        scope: Scope::EndpointsWrite,
        problems: &[
            Problem::FieldDuplicate,
            Problem::EventTypeInvalid,
            Problem::PayloadTooDeep,
            Problem::TooManyTests,
            Problem::Busy,
        ],
    },
    Operation {
        id: "get_endpoint_secrets",
        method: Method::GET,
        path: "/v1/endpoints/{id}/secrets",
        scope: Scope::EndpointsSecrets,
        problems: &[],
    },
    Operation {
        id: "rotate_endpoint_secret",
        method: Method::POST,
        path: "/v1/endpoints/{id}/rotate-secret",
        scope: Scope::EndpointsWrite,
        problems: &[
            Problem::FieldDuplicate,
            Problem::SecretInvalid,
            Problem::TooManyOldSecrets,
        ],
    },
    Operation {
        id: "list_deliveries",
        method: Method::GET,
        path: "/v1/deliveries",
        scope: Scope::EventsRead,
        problems: FILTERED_LIST,
    },
    Operation {
        id: "get_delivery",
        method: Method::GET,
        path: "/v1/deliveries/{id}",
        scope: Scope::EventsRead,
        problems: &[],
    },
    Operation {
        id: "list_attempts",
        method: Method::GET,
        path: "/v1/attempts",
        scope: Scope::EventsRead,
        problems: FILTERED_LIST,
    },
    Operation {
        id: "get_attempt",
        method: Method::GET,
        path: "/v1/attempts/{id}",
        scope: Scope::EventsRead,
        problems: &[],
    },
    Operation {
        id: "list_dead_letters",
        method: Method::GET,
        path: "/v1/dead-letters",
        scope: Scope::EventsRead,
        problems: LIST,
    },
    Operation {
        id: "get_dead_letter",
        method: Method::GET,
        path: "/v1/dead-letters/{id}",
        scope: Scope::EventsRead,
        problems: &[],
    },
    Operation {
        id: "replay_dead_letter",
        method: Method::POST,
        path: "/v1/dead-letters/{id}/replay",
        scope: Scope::ReplaysWrite,
        problems: &[
            Problem::DeliveryRetrying,
            Problem::EndpointDisabled,
            Problem::EndpointDeleted,
            Problem::PayloadGone,
        ],
    },
    Operation {
        id: "create_api_key",
        method: Method::POST,
        path: "/v1/api-keys",
        scope: Scope::Admin,
        problems: &[
            Problem::FieldDuplicate,
            Problem::NameInvalid,
            Problem::TooManyApiKeys,
        ],
    },
    Operation {
        id: "list_api_keys",
        method: Method::GET,
        path: "/v1/api-keys",
        scope: Scope::Admin,
        problems: LIST,
    },
    Operation {
        id: "get_api_key",
        method: Method::GET,
        path: "/v1/api-keys/{id}",
        scope: Scope::Admin,
        problems: &[],
    },
    Operation {
        id: "revoke_api_key",
        method: Method::DELETE,
        path: "/v1/api-keys/{id}",
        scope: Scope::Admin,
        problems: &[],
    },
    Operation {
        id: "list_audit_log",
        method: Method::GET,
        path: "/v1/audit-log",
        scope: Scope::AuditRead,
        problems: LIST,
    },
];

/// What may be wrong with the query of a list.
const LIST: &[Problem] = &[Problem::ParameterInvalid, Problem::CursorInvalid];
/// The same of a list that needs a filter.
const FILTERED_LIST: &[Problem] = &[
    Problem::ParameterMissing,
    Problem::ParameterInvalid,
    Problem::CursorInvalid,
];

impl Operation {
    /// The operation that a request is for. HEAD is GET without its body.
    #[must_use]
    pub(crate) fn of(method: &Method, path: &str) -> Option<&'static Self> {
        let method = if *method == Method::HEAD {
            &Method::GET
        } else {
            method
        };
        OPERATIONS
            .iter()
            .find(|operation| operation.method == *method && operation.path == path)
    }

    /// All refusals that it may give, each once, in the order of the list.
    #[must_use]
    pub(crate) fn all_problems(&self) -> Vec<Problem> {
        let mut all = vec![
            Problem::TransferEncodingUnsupported,
            Problem::Unauthenticated,
            Problem::TenantForbidden,
            Problem::ScopeMissing,
            Problem::InvalidRequest,
            Problem::ParameterUnknown,
            Problem::Internal,
            Problem::Unavailable,
        ];
        if self.path.contains("{id}") {
            all.push(Problem::NotFound);
        }
        if self.takes_body() {
            all.extend([
                Problem::MalformedJson,
                Problem::BodyUnreadable,
                Problem::RequestTimeout,
                Problem::ContentTypeUnsupported,
                Problem::ContentEncodingUnsupported,
            ]);
            if self.takes_fields() {
                all.extend([
                    Problem::BodyTooLarge,
                    Problem::FieldUnknown,
                    Problem::FieldMissing,
                    Problem::FieldInvalid,
                ]);
            }
            if self.takes_key() {
                all.extend([
                    Problem::IdempotencyKeyInvalid,
                    Problem::IdempotencyKeyReused,
                    Problem::IdempotencyKeyInUse,
                ]);
                if !self.submits_events() {
                    all.extend([
                        Problem::IdempotencyAnswerLost,
                        Problem::IdempotencyAnswerWithheld,
                    ]);
                }
            } else {
                all.push(Problem::IdempotencyKeyUnsupported);
            }
        }
        all.extend_from_slice(self.problems);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Whether it takes an `Idempotency-Key`.
    #[must_use]
    pub(crate) fn takes_key(&self) -> bool {
        self.method == Method::POST
    }

    /// Whether its keys are taken with the events that it submits.
    #[must_use]
    pub(crate) fn submits_events(&self) -> bool {
        ["create_event", "create_raw_event"].contains(&self.id)
    }

    /// Whether its body is an object with fields of ours.
    fn takes_fields(&self) -> bool {
        self.takes_body() && self.id != "create_raw_event"
    }

    fn takes_body(&self) -> bool {
        self.method == Method::POST || self.method == Method::PATCH
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn operation_ids_are_unique() {
        let ids: BTreeSet<_> = OPERATIONS.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), OPERATIONS.len());
    }

    #[test]
    fn head_is_looked_up_as_get() {
        assert_eq!(
            Operation::of(&Method::HEAD, "/v1/events").map(|operation| operation.id),
            Some("list_events")
        );
        assert!(Operation::of(&Method::PUT, "/v1/events").is_none());
    }
}

//! Every way in which the API says no: one list of codes, and the only place that knows their statuses.
//!
//! [`Problem`] is the list; [`Failure`] is one occurrence of an entry, with what there is to say about it.
//! A handler returns a [`Failure`]; [`crate::answer`] writes it as `application/problem+json` (RFC 9457)
//! with the request's id. Adding a code breaks nobody, so clients are told to expect unknown ones.

use std::borrow::Cow;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode};
use posthorn_domain::content_type::{self, ContentTypeError};
use posthorn_domain::limits;

use crate::access::Operation;

/// Makes the enum and its table from one list, so that no code can lack its status or its page.
macro_rules! problems {
    ($($(#[doc = $doc:literal])+ $name:ident = $status:ident, $code:literal, $title:literal;)+) => {
        /// A kind of refusal. Its code, status, title and page belong together and never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Problem {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Problem {
            /// All of them, in the order of their statuses.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name that programs compare.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)+ }
            }

            /// The status that the answer carries.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// One short sentence, the same in every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What it means and what to do about it: the text of its page.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+),)+ }
            }
        }
    };
}

problems! {
    /// The body is not one JSON value in UTF-8: there is a syntax error, a byte order mark, bytes that are not
    /// UTF-8, something after the value, or the body ended early. The detail says where.
    MalformedJson = BAD_REQUEST, "malformed_json", "The body is not JSON";
    /// The body could not be read to its end, or its length did not match what was announced.
    BodyUnreadable = BAD_REQUEST, "body_unreadable", "The body could not be read";
    /// The request names a Transfer-Encoding other than `chunked`. Send the body with a Content-Length, or in chunks and coded in no
    /// other way.
    TransferEncodingUnsupported = BAD_REQUEST, "transfer_encoding_unsupported", "The transfer encoding is not supported";
    /// There is no valid API key in the Authorization header. Send `Authorization: Bearer ph_…` with a key
    /// that is neither revoked nor expired. The answer is the same whatever is wrong with the key.
    Unauthenticated = UNAUTHORIZED, "unauthenticated", "A valid API key is needed";
    /// The API key is valid, but lacks the scope that this operation needs. The detail names the scope.
    ScopeMissing = FORBIDDEN, "scope_missing", "The API key lacks a scope";
    /// The request names a tenant with `Posthorn-Tenant`, and the API key is another tenant's. A key acts in its own
    /// tenant and in no other, so the header can be left out.
    TenantForbidden = FORBIDDEN, "tenant_forbidden", "The API key is of another tenant";
    /// There is no such object in this tenant. An id of another tenant gets the same answer as one that never was.
    NotFound = NOT_FOUND, "not_found", "There is no such object";
    /// No operation has this path. Paths have no slash at their end.
    RouteNotFound = NOT_FOUND, "route_not_found", "There is no such path";
    /// The path exists, but not with this method. The header Allow lists those that it has.
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not have this method";
    /// The request was not complete in time. Send it again.
    RequestTimeout = REQUEST_TIMEOUT, "request_timeout", "The request took too long to arrive";
    /// Another object of this tenant has this uid. A deleted object's uid is free again.
    UidTaken = CONFLICT, "uid_taken", "The uid is taken";
    /// The delivery already has an attempt coming, so there is nothing to replay. Its own page shows when.
    DeliveryRetrying = CONFLICT, "delivery_retrying", "The delivery already has an attempt coming";
    /// The endpoint is disabled, so nothing is sent to it. Enable it first, then replay.
    EndpointDisabled = CONFLICT, "endpoint_disabled", "The endpoint is disabled";
    /// The endpoint was deleted, so nothing can be sent to it any more.
    EndpointDeleted = CONFLICT, "endpoint_deleted", "The endpoint was deleted";
    /// The tenant has as many endpoints as it may have. Delete some that are no longer used.
    TooManyEndpoints = CONFLICT, "too_many_endpoints", "The tenant has too many endpoints";
    /// The tenant has as many API keys in force as it may have: 200. Revoke some that are no longer used.
    TooManyApiKeys = CONFLICT, "too_many_api_keys", "The tenant has too many API keys";
    /// As many old secrets sign for the endpoint as may: 5. Wait until one retires, or change the secret with `overlap_s` 0, which
    /// retires the present one at once.
    TooManyOldSecrets = CONFLICT, "too_many_old_secrets", "Too many old secrets still sign";
    /// The first request with this Idempotency-Key or uid is still under way. Send it again after the time in
    /// Retry-After: by then there is an answer, or the key is free.
    IdempotencyKeyInUse = CONFLICT, "idempotency_key_in_use", "A request with the idempotency key is under way";
    /// The first request with this Idempotency-Key was done, and the server or its database went down before the answer was kept.
    /// Nothing was done now. Look at what is there; another request needs another key.
    IdempotencyAnswerLost = CONFLICT, "idempotency_answer_lost", "The request was done and its answer is lost";
    /// The first request with this Idempotency-Key was done. Its answer may hold a secret, so it is given again to the API key that
    /// asked for it and to no other. Nothing was done now.
    IdempotencyAnswerWithheld = CONFLICT, "idempotency_answer_withheld", "The request was done for another API key";
    /// The payload was removed by retention, so it can be neither shown nor sent again.
    PayloadGone = GONE, "payload_gone", "The payload is gone";
    /// The body is larger than this operation takes. A payload may have 1 MiB.
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large";
    /// A payload may have 1 MiB (1,048,576 bytes), counted as it stands in the request.
    PayloadTooLarge = PAYLOAD_TOO_LARGE, "payload_too_large", "The payload is too large";
    /// The body must be sent with `Content-Type: application/json`, in UTF-8. `POST /v1/events/raw` takes other types, too:
    /// the detail lists them.
    ContentTypeUnsupported = UNSUPPORTED_MEDIA_TYPE, "content_type_unsupported", "The content type is not supported";
    /// Bodies are taken as they are: send no Content-Encoding, or `identity`.
    ContentEncodingUnsupported = UNSUPPORTED_MEDIA_TYPE, "content_encoding_unsupported", "The content encoding is not supported";
    /// Several things are wrong with the request; `errors` names each with its own code.
    InvalidRequest = UNPROCESSABLE_ENTITY, "invalid_request", "The request has several faults";
    /// The body has a field that this operation does not know. A field is never stored and ignored.
    FieldUnknown = UNPROCESSABLE_ENTITY, "field_unknown", "A field is unknown";
    /// A field that is needed is not there.
    FieldMissing = UNPROCESSABLE_ENTITY, "field_missing", "A field is missing";
    /// The same field stands twice in one object.
    FieldDuplicate = UNPROCESSABLE_ENTITY, "field_duplicate", "A field stands twice";
    /// A field has the wrong type or a value that it cannot have. The detail says what it may be.
    FieldInvalid = UNPROCESSABLE_ENTITY, "field_invalid", "A field is invalid";
    /// The query has a name that this operation does not know.
    ParameterUnknown = UNPROCESSABLE_ENTITY, "parameter_unknown", "A query parameter is unknown";
    /// A query parameter that is needed is not there: a list's filter, or what `POST /v1/events/raw` is told about its event.
    ParameterMissing = UNPROCESSABLE_ENTITY, "parameter_missing", "A query parameter is missing";
    /// A query parameter has a value that it cannot have, or stands twice.
    ParameterInvalid = UNPROCESSABLE_ENTITY, "parameter_invalid", "A query parameter is invalid";
    /// The cursor is not one that this list gave for this filter and order. Begin again without it.
    CursorInvalid = UNPROCESSABLE_ENTITY, "cursor_invalid", "The cursor is invalid";
    /// Only POST takes an Idempotency-Key. Other methods may be repeated as they are: leave the header out.
    IdempotencyKeyUnsupported = UNPROCESSABLE_ENTITY, "idempotency_key_unsupported", "Idempotency-Key is not taken here";
    /// An Idempotency-Key has 1 to 255 printable ASCII characters, bare or as a string in double quotes, and stands once.
    IdempotencyKeyInvalid = UNPROCESSABLE_ENTITY, "idempotency_key_invalid", "The idempotency key is invalid";
    /// The Idempotency-Key was used within the last 24 hours, with another body. Nothing was done. A new request needs
    /// a new key; the same request must be sent again byte for byte.
    IdempotencyKeyReused = UNPROCESSABLE_ENTITY, "idempotency_key_reused", "The idempotency key was used with another body";
    /// An event with this uid was submitted within the last 24 hours, with another body. Nothing was accepted. A new
    /// event needs a new uid; the same event must be submitted again byte for byte.
    UidReused = UNPROCESSABLE_ENTITY, "uid_reused", "The uid was used with another body";
    /// An event type has 1 to 8 parts of `A-Z a-z 0-9 _ -` joined by dots, and at most 128 characters.
    EventTypeInvalid = UNPROCESSABLE_ENTITY, "event_type_invalid", "The event type is invalid";
    /// A pattern is an event type in which `*` may stand for one part and, at the end, `**` for one or more.
    EventTypePatternInvalid = UNPROCESSABLE_ENTITY, "event_type_pattern_invalid", "A pattern of event types is invalid";
    /// An endpoint may have 1 to 100 patterns of event types.
    TooManyEventTypes = UNPROCESSABLE_ENTITY, "too_many_event_types", "There are too many patterns of event types";
    /// A payload may nest 128 levels of arrays and objects.
    PayloadTooDeep = UNPROCESSABLE_ENTITY, "payload_too_deep", "The payload nests too deeply";
    /// The URL must be an absolute http or https URL without user, password and fragment.
    UrlInvalid = UNPROCESSABLE_ENTITY, "url_invalid", "The URL is invalid";
    /// A URL may have 2,048 characters.
    UrlTooLong = UNPROCESSABLE_ENTITY, "url_too_long", "The URL is too long";
    /// This server sends to https URLs alone, as its operator has set (`https_only`).
    HttpsRequired = UNPROCESSABLE_ENTITY, "https_required", "The URL must be https";
    /// The URL names an address that the policy of this server forbids: private, loopback, link-local,
    /// metadata and reserved addresses, unless the operator allows them.
    TargetForbidden = UNPROCESSABLE_ENTITY, "target_forbidden", "The target's address is forbidden";
    /// A name has 1 to 100 characters, not all of them spaces, and no control character.
    NameInvalid = UNPROCESSABLE_ENTITY, "name_invalid", "The name is invalid";
    /// A description may have 500 characters.
    DescriptionTooLong = UNPROCESSABLE_ENTITY, "description_too_long", "The description is too long";
    /// A custom header cannot be used: its name or value is not valid, or it would override one that Posthorn sends.
    HeaderInvalid = UNPROCESSABLE_ENTITY, "header_invalid", "A custom header is invalid";
    /// An endpoint may have 20 custom headers, an event 10.
    TooManyHeaders = UNPROCESSABLE_ENTITY, "too_many_headers", "There are too many custom headers";
    /// Metadata is an object of at most 20 strings of limited length.
    MetadataInvalid = UNPROCESSABLE_ENTITY, "metadata_invalid", "The metadata is invalid";
    /// A uid has 1 to 128 of `A-Z a-z 0-9 . _ : -` and does not begin like an id of Posthorn.
    UidInvalid = UNPROCESSABLE_ENTITY, "uid_invalid", "The uid is invalid";
    /// A secret is `whsec_` and 24 to 64 bytes in standard base64, or an ed25519 key as `whsk_…`. It must
    /// suit the schemes that the endpoint signs with. A secret of a compatibility scheme has 16 to 256 printable ASCII characters.
    SecretInvalid = UNPROCESSABLE_ENTITY, "secret_invalid", "The secret is invalid";
    /// As many tests of this tenant's endpoints are under way as may be: 4 on each node. Send it again after the time in
    /// Retry-After.
    TooManyTests = TOO_MANY_REQUESTS, "too_many_tests", "Too many tests are under way";
    /// Something failed on our side. Quote the request id when you report it.
    Internal = INTERNAL_SERVER_ERROR, "internal", "Something failed on our side";
    /// The database cannot be reached, or the server is going down. Nothing was accepted; send it again
    /// after the time in Retry-After.
    Unavailable = SERVICE_UNAVAILABLE, "unavailable", "The service is unavailable";
    /// More events are arriving than can be written, or more tests are asked for than can be sent. Nothing was accepted; send it
    /// again after the time in Retry-After.
    Busy = SERVICE_UNAVAILABLE, "busy", "The service is busy";
}

impl Problem {
    /// The path of its page; also the `type` of its occurrences.
    #[must_use]
    pub fn page(self) -> String {
        format!("/docs/problems/{}", self.code())
    }

    /// The entry with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|problem| problem.code() == code)
    }
}

/// What is wrong with one field or query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// A JSON pointer (RFC 6901) into the body, or `?name` for a query parameter.
    pub pointer: String,
    /// The entry of the list that it falls under.
    pub problem: Problem,
    /// What is wrong, for a person.
    pub detail: String,
}

impl Fault {
    /// A fault at `pointer`. Both texts may hold names that the caller chose, so they are cut: an answer is not as large as
    /// whatever it refuses (INV-11).
    pub fn new(pointer: impl Into<String>, problem: Problem, detail: impl Into<String>) -> Self {
        Self {
            pointer: cut(pointer.into()),
            problem,
            detail: cut(detail.into()),
        }
    }
}

/// No longer than texts of errors are anywhere; what was cut ends in `…`.
fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(limits::ERROR_DETAIL_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// One occurrence of a [`Problem`]: an answer that is not what the caller asked for.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which entry of the list it is.
    pub problem: Problem,
    /// This occurrence in words. Absent where the title says it all, and always for 5xx.
    pub detail: Option<Cow<'static, str>>,
    /// The fields that are wrong; empty for problems that are not about fields.
    pub faults: Vec<Fault>,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// Why, for our log alone. Never sent.
    pub cause: Option<String>,
}

/// When to come back for the answer of a request that is under way: few take longer.
const KEY_PAUSE: Duration = Duration::from_secs(1);

impl Failure {
    /// An occurrence about which there is no more to say than its title.
    #[must_use]
    pub const fn new(problem: Problem) -> Self {
        Self {
            problem,
            detail: None,
            faults: Vec::new(),
            retry_after: None,
            cause: None,
        }
    }

    /// An occurrence with words of its own.
    pub fn with_detail(problem: Problem, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..Self::new(problem)
        }
    }

    /// One field that is wrong.
    pub fn field(pointer: impl Into<String>, problem: Problem, detail: impl Into<String>) -> Self {
        Self::faults(vec![Fault::new(pointer, problem, detail)])
    }

    /// Fields that are wrong. The answer's code is theirs when they share one, else `invalid_request`.
    #[must_use]
    pub fn faults(faults: Vec<Fault>) -> Self {
        let mut codes = faults.iter().map(|fault| fault.problem);
        let first = codes.next().unwrap_or(Problem::InvalidRequest);
        let problem = if codes.all(|code| code == first) {
            first
        } else {
            Problem::InvalidRequest
        };
        let detail = match faults.as_slice() {
            [only] => Some(Cow::Owned(only.detail.clone())),
            _ => None,
        };
        Self {
            detail,
            faults,
            ..Self::new(problem)
        }
    }

    /// Something of ours failed. The caller learns the request id, the log the cause.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self {
            cause: Some(cause.to_string()),
            ..Self::new(Problem::Internal)
        }
    }

    /// No valid key. The words are the same whatever is wrong with it, so that they help nobody guess.
    #[must_use]
    pub(crate) fn unauthenticated() -> Self {
        Self::with_detail(
            Problem::Unauthenticated,
            "send one header `Authorization: Bearer KEY` with an API key that is whole, not revoked and not expired; \
             `posthorn key create` makes one",
        )
    }

    /// A body of a type that the operation does not take, given by this method.
    #[must_use]
    pub(crate) fn content_type_unsupported(method: &Method) -> Self {
        let detail = if method == Method::PATCH {
            "send the body as JSON in UTF-8 with `Content-Type: application/merge-patch+json` or `application/json`"
        } else {
            "send the body as JSON in UTF-8 with `Content-Type: application/json`"
        };
        Self::with_detail(Problem::ContentTypeUnsupported, detail)
    }

    /// A body that is no payload by its type: its type is refused for this reason, or it has none.
    #[must_use]
    pub(crate) fn payload_type_unsupported(reason: Option<ContentTypeError>) -> Self {
        let reason = reason.map_or_else(
            || "a payload has one header Content-Type".to_owned(),
            |reason| reason.to_string(),
        );
        let detail = format!(
            "{reason}; taken are {}, and types that end in {}",
            content_type::TYPES.join(", "),
            content_type::SUFFIXES.join(" or ")
        );
        Self::with_detail(Problem::ContentTypeUnsupported, detail)
    }

    /// A body over `limit` bytes, which `problem` says by its code.
    #[must_use]
    pub(crate) fn too_large(problem: Problem, limit: usize) -> Self {
        if problem == Problem::PayloadTooLarge && limit == limits::PAYLOAD_BYTES {
            return Self::payload_too_large();
        }
        let of_payload = if problem == Problem::PayloadTooLarge {
            format!(", and its payload at most {}", limits::PAYLOAD_BYTES)
        } else {
            String::new()
        };
        let detail = format!("the body of this request has at most {limit} bytes{of_payload}");
        Self::with_detail(problem, detail)
    }

    /// A payload over its limit.
    #[must_use]
    pub(crate) fn payload_too_large() -> Self {
        let detail = format!("a payload has at most {} bytes", limits::PAYLOAD_BYTES);
        Self::with_detail(Problem::PayloadTooLarge, detail)
    }

    /// A valid key beside the name of a tenant that is not the key's.
    #[must_use]
    pub(crate) fn tenant_forbidden() -> Self {
        Self::with_detail(
            Problem::TenantForbidden,
            "the header Posthorn-Tenant does not name this API key's tenant: leave the header out, or use a key of \
             the tenant that it names",
        )
    }

    /// A valid key without the scope that the operation needs.
    #[must_use]
    pub(crate) fn scope_missing(operation: &Operation) -> Self {
        let detail = format!(
            "{} needs the scope {}",
            operation.id,
            operation.scope.as_str()
        );
        Self::with_detail(Problem::ScopeMissing, detail)
    }

    /// Another request with the key is under way.
    #[must_use]
    pub(crate) fn key_in_use() -> Self {
        Self::not_now(Problem::IdempotencyKeyInUse, KEY_PAUSE)
    }

    /// No work is taken now; try again after `wait`.
    #[must_use]
    pub fn not_now(problem: Problem, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..Self::new(problem)
        }
    }
}

impl IntoResponse for Failure {
    /// The status and, as an extension, the failure itself; [`crate::answer`] writes the body, for it knows the
    /// request's id.
    fn into_response(self) -> Response {
        let mut response = self.problem.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_snake_case() {
        let codes: BTreeSet<_> = Problem::ALL.iter().map(|problem| problem.code()).collect();
        assert_eq!(codes.len(), Problem::ALL.len());
        assert!(codes.iter().all(|code| {
            code.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        }));
    }

    #[test]
    fn the_list_is_in_the_order_of_statuses() {
        assert!(Problem::ALL.is_sorted_by_key(|problem| problem.status().as_u16()));
    }

    #[test]
    fn a_code_leads_back_to_its_problem() {
        for problem in Problem::ALL {
            assert_eq!(Problem::from_code(problem.code()), Some(*problem));
        }
        assert_eq!(Problem::from_code("no_such_code"), None);
    }

    #[test]
    fn what_is_refused_is_not_repeated_at_any_length() {
        let name = "\u{e4}".repeat(1_000_000);
        let fault = Fault::new(format!("/{name}"), Problem::FieldUnknown, name);
        assert_eq!(fault.detail.chars().count(), limits::ERROR_DETAIL_CHARS + 1);
        assert!(fault.pointer.ends_with('…') && fault.pointer.len() < 2000);
    }

    #[test]
    fn faults_that_share_a_code_give_it_to_the_answer() {
        let one = Fault::new("/a", Problem::FieldUnknown, "x");
        let two = Fault::new("/b", Problem::FieldUnknown, "y");
        assert_eq!(
            Failure::faults(vec![one, two]).problem,
            Problem::FieldUnknown
        );
    }

    #[test]
    fn faults_with_different_codes_are_an_invalid_request() {
        let one = Fault::new("/a", Problem::FieldUnknown, "x");
        let two = Fault::new("/b", Problem::UrlInvalid, "y");
        assert_eq!(
            Failure::faults(vec![one, two]).problem,
            Problem::InvalidRequest
        );
    }
}

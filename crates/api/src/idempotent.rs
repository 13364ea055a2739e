//! `Idempotency-Key`: a request that is sent again is answered as it was the first time.
//!
//! Every POST takes the header. [`once`] is the layer around all operations: it keeps their answers in `store`, and gives
//! them again byte for byte. Submitting an event is not its business: that operation's keys are taken with the event
//! ([`posthorn_store::accept`]), which no layer around it could do. Other methods may be repeated as they are; they take
//! no key, and say so where they read a body.
//!
//! A request that was begun is finished, whether or not its caller still waits: else a caller that hangs up in between
//! would leave a change without its answer.

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{FromRequestParts as _, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use posthorn_domain::idempotency::{BodyHash, IdempotencyKey};
use posthorn_domain::limits;
use posthorn_store::idempotent::{self, Answer, Claim, Claimed, KeyedRequest};

use crate::access::Operation;
use crate::authenticate::Caller;
use crate::body;
use crate::deadline;
use crate::problem::{Failure, Problem};
use crate::state::ApiState;

/// The header that a key comes in.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The header that marks an answer that was given before.
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The headers that belong to an answer itself; the others are made anew for each.
const KEPT_HEADERS: [HeaderName; 4] = [CONTENT_TYPE, LOCATION, ETAG, CACHE_CONTROL];

/// The key of a request, if it has one.
///
/// # Errors
/// 422 when the header is no key or stands twice.
pub(crate) fn key_of(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Failure> {
    let mut values = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Failure::with_detail(
            Problem::IdempotencyKeyInvalid,
            "Idempotency-Key may stand once",
        ));
    }
    match IdempotencyKey::parse(value.as_bytes()) {
        Ok(key) => Ok(Some(key)),
        Err(error) => Err(Failure::with_detail(
            Problem::IdempotencyKeyInvalid,
            error.to_string(),
        )),
    }
}

/// The mark of an answer that was given before, as a header.
pub(crate) const fn replayed() -> [(HeaderName, HeaderValue); 1] {
    [(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"))]
}

/// The layer. See the module.
pub(crate) async fn once(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    if submits_events(&request) {
        next.run(request).await
    } else if is_kept_here(&request) {
        // Boxed, as below: what most requests do not need would be carried along, and moved, with each.
        Box::pin(keep(state, request, next)).await
    } else {
        Box::pin(deadline::run(request, next)).await
    }
}

async fn keep(state: ApiState, request: Request, next: Next) -> Response {
    let (keyed, caller, request) = match take_apart(&state, request).await {
        Ok((Some(keyed), caller, request)) => (keyed, caller, request),
        Ok((None, _, request)) => return deadline::run(request, next).await,
        Err(failure) => return failure.into_response(),
    };
    let sealer = state.sealer();
    let claiming = idempotent::claim(state.database(), keyed, caller.key(), &sealer);
    match deadline::step(claiming).await {
        Ok(Claimed::Mine(claim)) => run(state, claim, request, next).await,
        Ok(Claimed::Answered(answer)) => again(answer),
        Ok(Claimed::Lost) => Failure::new(Problem::IdempotencyAnswerLost).into_response(),
        Ok(Claimed::Withheld) => Failure::new(Problem::IdempotencyAnswerWithheld).into_response(),
        Ok(Claimed::Running) => Failure::key_in_use().into_response(),
        Ok(Claimed::Reused) => Failure::new(Problem::IdempotencyKeyReused).into_response(),
        Err(error) => Failure::from(error).into_response(),
    }
}

/// Whether the answer to a request that submits no events is kept by this layer.
fn is_kept_here(request: &Request) -> bool {
    request.method() == Method::POST
        && request.headers().contains_key(&IDEMPOTENCY_KEY)
        && operation(request).is_some()
}

fn submits_events(request: &Request) -> bool {
    request.method() == Method::POST && operation(request).is_some_and(Operation::submits_events)
}

fn operation(request: &Request) -> Option<&'static Operation> {
    let path = request.extensions().get::<MatchedPath>()?;
    Operation::of(request.method(), path.as_str())
}

/// Reads a request whole, and puts it together again: with its key, its body's hash and who calls. No key where the path
/// is longer than any that exists.
async fn take_apart(
    state: &ApiState,
    request: Request,
) -> Result<(Option<KeyedRequest>, Caller, Request), Failure> {
    let (mut parts, body) = request.into_parts();
    let caller = Caller::from_request_parts(&mut parts, state).await?;
    let key = key_of(&parts.headers)?;
    let bytes = body::collect(
        &parts.headers,
        body,
        state,
        limits::REQUEST_BODY_BYTES,
        Problem::BodyTooLarge,
    )
    .await?;
    let route = format!("{} {}", parts.method, parts.uri.path());
    let keyed = key
        .filter(|_| route.len() <= limits::IDEMPOTENCY_ROUTE_BYTES)
        .map(|key| KeyedRequest {
            scope: caller.tenant(),
            route,
            key,
            body_hash: BodyHash::of(&bytes),
        });
    Ok((keyed, caller, Request::from_parts(parts, Body::from(bytes))))
}

/// Runs the request to its end and settles the claim. After a panic the key is free when the request's time is over, unless its
/// change stands.
async fn run(state: ApiState, claim: Claim, request: Request, next: Next) -> Response {
    let running = tokio::spawn(async move {
        let response = claim.cover(deadline::run(request, next)).await;
        settle(&state, claim, response).await
    });
    running
        .await
        .unwrap_or_else(|error| Failure::internal(error).into_response())
}

/// Keeps a success; failures are not remembered, where they are known to be some.
async fn settle(state: &ApiState, claim: Claim, response: Response) -> Response {
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        // Nobody knows what became of the change: when the request's time is over the key is free, or the change stands.
        return response;
    }
    let size = response.body().size_hint().exact();
    let fits = size.is_some_and(|bytes| bytes <= limits::IDEMPOTENT_ANSWER_BYTES as u64);
    if !response.status().is_success() || !fits {
        if let Err(error) = deadline::step(claim.release(state.database())).await {
            tracing::warn!(%error, "a key is not free before its request's time is over");
        }
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match to_bytes(body, limits::IDEMPOTENT_ANSWER_BYTES).await {
        Ok(body) => body,
        Err(error) => return Failure::internal(error).into_response(),
    };
    let answer = Answer {
        status: parts.status.as_u16(),
        headers: kept(&parts.headers),
        body: Bytes::clone(&body),
    };
    let sealer = state.sealer();
    let keeping = claim.keep(state.database(), &answer, &sealer);
    if let Err(error) = deadline::step(keeping).await {
        // The change stands, so its answer is given; to whoever asks again it is lost.
        tracing::warn!(%error, "an answer could not be kept for its key");
    }
    Response::from_parts(parts, Body::from(body))
}

fn kept(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |name: &HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    KEPT_HEADERS
        .iter()
        .filter_map(|name| Some((name.as_str().to_owned(), text(name)?)))
        .collect()
}

/// The answer as it was.
fn again(answer: Answer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers {
        if let (Ok(name), Ok(value)) = (
            HeaderName::try_from(name.as_str()),
            HeaderValue::try_from(value.as_str()),
        ) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().extend(replayed());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(values: &[&'static str]) -> Option<Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static(value));
        }
        key_of(&headers).err().map(|failure| failure.problem)
    }

    #[test]
    fn a_key_stands_once_and_is_one() {
        assert_eq!(problem(&[]), None);
        assert_eq!(problem(&["k"]), None);
        for values in [&["k", "k"][..], &[""], &["\"k"]] {
            assert_eq!(problem(values), Some(Problem::IdempotencyKeyInvalid));
        }
    }
}

//! The OpenAPI document: what the handlers say, completed and mended.
//!
//! Paths, parameters and schemas come from the handlers; security, `x-access` and refusals from the table of
//! operations, so neither can be forgotten beside a handler. The rest mends what the generator leaves so that
//! client generators stumble over nothing.

mod example;
mod mend;
pub(crate) mod words;

use std::sync::OnceLock;

use posthorn_domain::limits;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa::openapi::ServerBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use crate::access::{OPERATIONS, Operation};
use crate::answer::{PROBLEM_JSON, ProblemBody};
use crate::problem::Problem;

/// The name of the one security scheme.
const API_KEY: &str = "api_key";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Posthorn",
        description = "Submit events; Posthorn delivers each to every endpoint that wants it, signed, with retries, until it \
                       is accepted or laid in the dead letters.\n\nTimes are RFC 3339 in UTC. Lists are walked by opaque \
                       cursors. Unknown fields and query names are refused. Refusals are `application/problem+json`; \
                       compare their `code`. Values with `x-known-values` may come to have others."
    ),
    tags(
        (name = "events", description = "What happened, as you submitted it."),
        (name = "endpoints", description = "Where events go, and how."),
        (name = "deliveries", description = "One event for one endpoint, and how far it got."),
        (name = "attempts", description = "The requests that were made."),
        (name = "dead-letters", description = "Deliveries that failed for good, and sending them again."),
        (name = "api-keys", description = "What programs call with, and what each may do."),
        (name = "audit-log", description = "Who changed what.")
    ),
    components(schemas(ProblemBody))
)]
struct Document;

/// The document as the program serves it: pretty, and the same each time.
#[must_use]
pub fn openapi_json() -> String {
    let mut text = serde_json::to_string_pretty(document()).unwrap_or_default();
    text.push('\n');
    text
}

/// The document as a tree, made once.
pub(crate) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(make)
}

fn make() -> Value {
    let (_, mut api) = utoipa_axum::router::OpenApiRouter::with_openapi(Document::openapi())
        .merge(crate::routes::router())
        .split_for_parts();
    api.info.license = None;
    api.info.contact = None;
    api.servers = Some(vec![ServerBuilder::new().url("/").build()]);
    let key = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key, `ph_live_…` or `ph_test_…`."))
        .build();
    api.components
        .get_or_insert_default()
        .add_security_scheme(API_KEY, SecurityScheme::Http(key));
    let mut document = serde_json::to_value(&api).unwrap_or_default();
    for operation in OPERATIONS {
        complete(&mut document, operation);
    }
    mend::schemas(&mut document);
    add_examples(&mut document);
    document
}

/// Adds to an operation what the table says of it.
fn complete(document: &mut Value, operation: &Operation) {
    let method = operation.method.as_str().to_ascii_lowercase();
    let Some(entry) = document.pointer_mut(&format!(
        "/paths/{}/{method}",
        operation.path.replace('/', "~1")
    )) else {
        return;
    };
    let Some(entry) = entry.as_object_mut() else {
        return;
    };
    entry.insert("security".to_owned(), json!([{ API_KEY: [] }]));
    entry.insert(
        "x-access".to_owned(),
        json!({ "scope": operation.scope.as_str() }),
    );
    if operation.takes_key() {
        add_key(entry);
    }
    if let Some(responses) = entry.get_mut("responses").and_then(Value::as_object_mut) {
        for (status, problems) in by_status(operation) {
            responses.insert(status.to_string(), refusal(status, &problems));
        }
    }
}

/// Adds the header that every POST takes, and the one that marks an answer given before.
fn add_key(entry: &mut Map<String, Value>) {
    let parameter = json!({
        "name": "Idempotency-Key",
        "in": "header",
        "required": false,
        "description": "Your key for this request, 1 to 255 printable ASCII characters, bare or in double quotes. Within 24 hours \
                        the same key with the same body gets the first answer, with another body 422. Failures are not remembered.",
        "schema": { "type": "string", "minLength": 1, "maxLength": limits::IDEMPOTENCY_KEY_CHARS },
    });
    let parameters = entry.entry("parameters").or_insert_with(|| json!([]));
    if let Some(parameters) = parameters.as_array_mut() {
        parameters.push(parameter);
    }
    let responses = entry.get_mut("responses").and_then(Value::as_object_mut);
    let successes = responses
        .into_iter()
        .flatten()
        .filter(|(status, _)| status.starts_with('2'));
    for response in successes.filter_map(|(_, response)| response.as_object_mut()) {
        let headers = response.entry("headers").or_insert_with(|| json!({}));
        if let Some(headers) = headers.as_object_mut() {
            let mark = json!({
                "description": "`true`: the answer of an earlier request with the same key.",
                "required": false,
                "schema": { "type": "string" },
            });
            headers.insert("idempotency-replayed".to_owned(), mark);
        }
    }
}

fn by_status(operation: &Operation) -> Vec<(u16, Vec<Problem>)> {
    let mut statuses: Vec<(u16, Vec<Problem>)> = Vec::new();
    for problem in operation.all_problems() {
        let status = problem.status().as_u16();
        match statuses.last_mut() {
            Some((last, problems)) if *last == status => problems.push(problem),
            _ => statuses.push((status, vec![problem])),
        }
    }
    statuses
}

fn refusal(status: u16, problems: &[Problem]) -> Value {
    let codes: Vec<_> = problems.iter().map(|problem| problem.code()).collect();
    let mut headers = Map::new();
    headers.insert(
        "x-request-id".to_owned(),
        header("Names the request; quote it when you report a fault."),
    );
    if problems.contains(&Problem::IdempotencyKeyInUse) {
        let described =
            "Seconds to wait before the next call, where the code is idempotency_key_in_use.";
        headers.insert(
            "retry-after".to_owned(),
            json!({ "description": described, "required": false, "schema": { "type": "string" } }),
        );
    }
    if [429, 503].contains(&status) {
        headers.insert(
            "retry-after".to_owned(),
            header("Seconds to wait before the next call."),
        );
    }
    json!({
        "description": format!("Refused: {}.", codes.join(", ")),
        "headers": headers,
        "content": { PROBLEM_JSON: { "schema": { "$ref": "#/components/schemas/Problem" } } },
        "x-codes": codes,
    })
}

fn header(description: &str) -> Value {
    json!({ "description": description, "required": true, "schema": { "type": "string" } })
}

/// Gives every answer with a JSON body an example. What a handler gives as its example wins, field by field.
fn add_examples(document: &mut Value) {
    let whole = document.clone();
    let paths = document
        .pointer_mut("/paths")
        .and_then(Value::as_object_mut);
    for operation in paths
        .into_iter()
        .flatten()
        .flat_map(|(_, item)| members(item))
    {
        let responses = operation
            .get_mut("responses")
            .map(members)
            .unwrap_or_default();
        for content in responses
            .into_iter()
            .filter_map(|response| response.get_mut("content"))
        {
            if let Some(json) = content
                .get_mut("application/json")
                .and_then(Value::as_object_mut)
                && let Some(schema) = json.get("schema")
            {
                let mut example = example::sample(&whole, schema, "");
                if let Some(Value::Object(told)) = json.remove("example")
                    && let Some(example) = example.as_object_mut()
                {
                    example.extend(told);
                }
                json.insert("example".to_owned(), example);
            }
        }
    }
}

fn members(value: &mut Value) -> Vec<&mut Value> {
    value
        .as_object_mut()
        .into_iter()
        .flat_map(Map::values_mut)
        .collect()
}

#[cfg(test)]
mod tests;

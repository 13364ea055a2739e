//! An example for every answer, made from its schema, so that none can be out of date.
//!
//! A field's own example comes first, then its first known value; what may be null is null.

use serde_json::{Map, Value, json};

/// Ids and other texts of which the name of the field says what they look like.
const BY_NAME: &[(&str, &str)] = &[
    ("event_id", "evt_01kb6x8v2rhd7t4q9m3n5p6s7v"),
    ("endpoint_id", "ep_01kb6wq3c5e8h2k4n7r9t1v3x5"),
    (
        "delivery_id",
        "dlv_01kb6x8v2rhd7t4q9m3n5p6s7v01kb6wq3c5e8h2k4n7r9t1v3x5",
    ),
    ("type", "invoice.paid"),
    ("content_type", "application/json"),
    ("event_types", "**"),
    ("header_prefix", "webhook"),
    ("description", "orders"),
    ("name", "content-type"),
    ("value", "text/plain"),
];

/// A value that `schema` describes. `name` is the field's, where it is one.
pub(super) fn sample(document: &Value, schema: &Value, name: &str) -> Value {
    if let Some(example) = schema.get("example") {
        return example.clone();
    }
    if let Some(path) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(path.trim_start_matches('#'));
        return target.map_or(Value::Null, |target| sample(document, target, name));
    }
    if let Some(parts) = schema.get("allOf").and_then(Value::as_array) {
        return joined(document, parts);
    }
    if nullable(schema) {
        return Value::Null;
    }
    let members = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    if let Some(first) = members.and_then(|members| members.get(0)) {
        return sample(document, first, name);
    }
    let known = schema.get("enum").or_else(|| schema.get("x-known-values"));
    if let Some(first) = known.and_then(|known| known.get(0)) {
        return first.clone();
    }
    plain(document, schema, name)
}

/// Whether a value of the schema may be null.
pub(super) fn nullable(schema: &Value) -> bool {
    let null = Value::from("null");
    let listed = schema.get("type").and_then(Value::as_array);
    let joined = schema.get("anyOf").and_then(Value::as_array);
    listed.is_some_and(|types| types.contains(&null))
        || joined.is_some_and(|members| members.iter().any(|member| member["type"] == null))
}

fn joined(document: &Value, parts: &[Value]) -> Value {
    let mut whole = Map::new();
    for part in parts {
        if let Value::Object(fields) = sample(document, part, "") {
            whole.extend(fields);
        }
    }
    Value::Object(whole)
}

fn plain(document: &Value, schema: &Value, name: &str) -> Value {
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => object(document, schema),
        Some("array") => {
            let items = schema.get("items");
            json!([items.map_or(Value::Null, |items| sample(document, items, name))])
        }
        Some("string") if schema.get("format") == Some(&Value::from("date-time")) => {
            json!("2026-01-31T09:30:00.000000Z")
        }
        Some("string") => {
            let known = BY_NAME.iter().find(|(known, _)| *known == name);
            json!(known.map_or("text", |(_, text)| text))
        }
        Some("integer") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("number") => json!(1.0),
        Some("boolean") => json!(true),
        _ => Value::Null,
    }
}

fn object(document: &Value, schema: &Value) -> Value {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    let mut whole: Map<_, _> = fields
        .map(|(name, field)| (name.clone(), sample(document, field, name)))
        .collect();
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|values| values.is_object())
    {
        whole.insert("key".to_owned(), sample(document, values, ""));
    }
    Value::Object(whole)
}

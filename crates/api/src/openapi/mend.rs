//! What the generator leaves and client generators stumble over, mended.

use serde_json::{Map, Value, json};

/// Mends the components and everything that refers to them.
pub(super) fn schemas(document: &mut Value) {
    everywhere(document);
    let Some(components) = document
        .pointer_mut("/components/schemas")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    split_unions(components);
    for schema in components.values_mut() {
        all_present(schema);
    }
}

fn everywhere(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(everywhere),
        Value::Object(object) => {
            object.values_mut().for_each(everywhere);
            // Names of a JSON object are strings; saying so confuses some generators.
            object.remove("propertyNames");
            simplify_null(object);
        }
        _ => {}
    }
}

/// `oneOf` of null and one other schema is how the generator says nullable; `anyOf` is the same to a reader, and
/// does not ask that exactly one match.
fn simplify_null(object: &mut Map<String, Value>) {
    let null = Value::from("null");
    let nullable = object
        .get("oneOf")
        .and_then(Value::as_array)
        .is_some_and(|members| {
            members.len() == 2 && members.iter().any(|member| member["type"] == null)
        });
    if nullable && let Some(mut members) = object.remove("oneOf") {
        // The generator puts what a field is about on the member, where readers of fields do not look.
        for member in members.as_array_mut().into_iter().flatten() {
            if let Some(about) = member
                .as_object_mut()
                .and_then(|member| member.remove("description"))
            {
                object.entry("description").or_insert(about);
            }
        }
        object.insert("anyOf".to_owned(), members);
    }
}

/// A union whose members each fix `kind` gets a component for each member and a discriminator, which may point
/// to components alone.
fn split_unions(components: &mut Map<String, Value>) {
    let unions: Vec<_> = components
        .iter()
        .filter_map(|(name, schema)| Some((name.clone(), kinds(schema)?)))
        .collect();
    for (name, members) in unions {
        let mut references = Vec::new();
        let mut mapping = Map::new();
        for (kind, member) in members {
            let part = format!("{name}{}", capitalised(&kind));
            let reference = format!("#/components/schemas/{part}");
            references.push(json!({ "$ref": reference }));
            mapping.insert(kind.clone(), Value::from(reference));
            components.insert(part, described(member, &kind));
        }
        if let Some(union) = components.get_mut(&name) {
            union["oneOf"] = Value::from(references);
            union["discriminator"] = json!({ "propertyName": "kind", "mapping": mapping });
        }
    }
}

/// A member of a union, with words for the field that tells it from the others: the generator has none.
fn described(mut member: Value, kind: &str) -> Value {
    if let Some(field) = member.pointer_mut("/properties/kind") {
        field["description"] = json!(format!("What tells it from the others: always `{kind}`."));
    }
    member
}

/// The members of a union by their `kind`, if it is one.
fn kinds(schema: &Value) -> Option<Vec<(String, Value)>> {
    let members = schema.get("oneOf")?.as_array()?;
    members
        .iter()
        .map(|member| {
            let kind = member.pointer("/properties/kind/enum/0")?.as_str()?;
            Some((kind.to_owned(), member.clone()))
        })
        .collect()
}

fn capitalised(word: &str) -> String {
    let mut characters = word.chars();
    characters
        .next()
        .map(|first| first.to_uppercase().chain(characters).collect())
        .unwrap_or_default()
}

/// A field of an answer is always there, null or not; the generator takes nullable for optional. One that is neither nullable
/// nor required may be absent. Requests, which take no unknown field, and the parts of a union, which stand in both, are left as
/// they are.
fn all_present(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let kinded = object.get("properties").is_some_and(|fields| {
        fields
            .get("kind")
            .is_some_and(|kind| kind.get("enum").is_some())
    });
    if object.get("additionalProperties") == Some(&Value::Bool(false)) || kinded {
        return;
    }
    if let Some(parts) = object.get_mut("allOf").and_then(Value::as_array_mut) {
        parts.iter_mut().for_each(all_present);
    }
    if let Some(fields) = object.get("properties").and_then(Value::as_object) {
        let required = object.get("required").and_then(Value::as_array);
        let always = |name: &str, field: &Value| {
            super::example::nullable(field)
                || required.is_some_and(|names| names.iter().any(|other| other == name))
        };
        let names: Vec<_> = fields
            .iter()
            .filter(|(name, field)| always(name, field))
            .map(|(name, _)| name.clone())
            .collect();
        object.insert("required".to_owned(), Value::from(names));
    }
}

use serde_json::json;

use super::*;
use crate::docs::html::{escape, inline};
use crate::openapi::document;

/// The rows of a table with this name in front.
fn rows(html: &str, name: &str) -> Vec<String> {
    let start = format!("<tr><td><code>{}</code>", escape(name));
    html.split(&start)
        .skip(1)
        .map(|rest| rest.split("</tr>").next().unwrap().to_owned())
        .collect()
}

/// Whether a row says the number or word, apart from longer ones.
fn says(row: &str, value: &Value) -> bool {
    let wanted = escape(&plain(value));
    let apart = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '.');
    row.match_indices(&wanted).any(|(at, found)| {
        apart(row[..at].chars().next_back()) && apart(row[at + found.len()..].chars().next())
    })
}

#[test]
fn every_word_of_an_enumeration_is_shown_with_its_meaning() {
    let document = document();
    let mut seen = 0;
    for (name, schema) in object(document, "/components/schemas") {
        let words = list(schema, "/enum");
        let meanings = list(schema, "/x-enum-descriptions");
        assert_eq!(words.len(), meanings.len(), "{name}");
        let html = render_schema(document, name, schema);
        for (word, meaning) in words.iter().zip(meanings) {
            let row = rows(&html, word.as_str().unwrap()).concat();
            assert!(
                row.contains(&inline(meaning.as_str().unwrap())),
                "{name} {word}"
            );
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_union_says_one_of_and_what_tells_its_members_apart() {
    let document = document();
    let html = |name: &str| {
        let schema = &document["components"]["schemas"][name];
        render_schema(document, name, schema)
    };
    let policy = html("RetryPolicy");
    assert!(policy.contains("One of:") && !policy.contains("All of"));
    for kind in ["preset", "fixed", "exponential", "schedule"] {
        assert!(
            policy.contains(&format!("<code>kind</code>: <code>{kind}</code>")),
            "{kind}"
        );
    }
    let jitter = html("Jitter");
    assert!(
        jitter.contains("One of:")
            && jitter.contains("#JitterWord")
            && jitter.contains("#JitterSpread")
    );
    assert!(says(&html("JitterSpread"), &json!("0 to 1")));
}

/// What bounds a schema has, inside of it, too; what a reference leads to stands elsewhere.
fn all_bounds(schema: &Value, found: &mut Vec<Value>) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| all_bounds(item, found)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "minLength" | "maxLength" | "minimum" | "maximum" | "minItems" | "maxItems"
                    | "pattern" | "default" => found.push(field.clone()),
                    "enum" | "x-known-values" => {
                        found.extend(list(schema, &format!("/{name}")).to_vec());
                    }
                    "items" | "additionalProperties" | "anyOf" | "oneOf" => {
                        all_bounds(field, found);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_of_every_object_is_shown_with_its_words_and_all_its_bounds() {
    let document = document();
    let mut seen = 0;
    for (name, schema) in object(document, "/components/schemas") {
        let html = render_schema(document, name, schema);
        let parts = std::iter::once(schema).chain(list(schema, "/allOf"));
        for (field, described) in parts.flat_map(|part| object(part, "/properties")) {
            let words = text(described, "/description");
            let referred = described.get("$ref").is_some();
            assert!(
                !words.is_empty() || referred,
                "{name}.{field} has no description"
            );
            let rows = rows(&html, field);
            let mut bounds = Vec::new();
            all_bounds(described, &mut bounds);
            let whole = |row: &String| {
                row.contains(&inline(words)) && bounds.iter().all(|bound| says(row, bound))
            };
            assert!(
                rows.iter().any(whole),
                "{name}.{field}: {bounds:?} {rows:?}"
            );
            seen += bounds.len();
        }
    }
    assert!(seen > 60, "{seen}");
}

/// Whether null is among the values of a schema, which is not looked at as the page does.
fn takes_null(schema: &Value) -> bool {
    let own = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        Some(kind) => kind == "null",
        None => false,
    };
    let joined = ["/anyOf", "/oneOf"].map(|members| list(schema, members));
    own || joined.into_iter().flatten().any(takes_null)
}

#[test]
fn every_field_that_may_be_null_says_so_and_no_other_does() {
    let document = document();
    let (mut nullable, mut others) = (0, 0);
    for (name, schema) in object(document, "/components/schemas") {
        let html = render_schema(document, name, schema);
        let parts = std::iter::once(schema).chain(list(schema, "/allOf"));
        for (field, described) in parts.flat_map(|part| object(part, "/properties")) {
            let may_be = takes_null(described);
            let words = inline(text(described, "/description"));
            let told = |row: &String| {
                let cell = row.split("<td>").nth(1).unwrap_or_default();
                // What an object holds may be null without the field being so.
                let cell = cell.replace("(string or null)", "string");
                row.contains(&words) && cell.contains(" or null") == may_be
            };
            assert!(
                rows(&html, field).iter().any(told),
                "{name}.{field}, null: {may_be}: {:?}",
                rows(&html, field)
            );
            *(if may_be { &mut nullable } else { &mut others }) += 1;
        }
    }
    assert!(nullable > 40 && others > 100, "{nullable} {others}");
}

#[test]
fn a_pattern_is_shown_and_what_stands_inside_another_schema_has_its_bounds() {
    let shown = values(&json!({
        "anyOf": [
            { "type": "string", "pattern": "^<a>$" },
            { "type": "object", "additionalProperties": { "type": "string", "maxLength": 7 } },
        ],
    }));
    assert_eq!(
        shown,
        "string, matching <code>^&lt;a&gt;$</code> or object of string, at most 7 characters"
    );
}

#[test]
fn required_fields_stand_first() {
    let document = document();
    let schema = &document["components"]["schemas"]["CreateEndpoint"];
    let html = render_schema(document, "CreateEndpoint", schema);
    let place = |name: &str| html.find(&format!("<tr><td><code>{name}</code>")).unwrap();
    assert!(place("url") < place("description"));
}

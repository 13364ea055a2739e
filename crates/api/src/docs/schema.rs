//! Objects of the reference: their fields, words and bounds, as tables.

use serde_json::Value;

use super::html::{escape, inline, prose};
use super::tree::{list, object, plain, text};

/// The section of one component.
pub(super) fn render_schema(document: &Value, name: &str, schema: &Value) -> String {
    let mut html = format!(
        "<h3 id=\"{0}\">{0}</h3>{1}",
        escape(name),
        prose(text(schema, "/description"))
    );
    if schema.get("properties").is_none() && schema.get("type").is_some() {
        html.extend(["<p class=\"quiet\">", &values(schema), "</p>"]);
    }
    html.push_str(&words(schema));
    html.push_str(&fields(schema));
    for part in list(schema, "/allOf") {
        match part.get("$ref") {
            Some(_) => html.extend(["<p>All of ", &kind(part), ", and:</p>"]),
            None => html.extend([prose(text(part, "/description")), fields(part)]),
        }
    }
    html.push_str(&union(document, schema));
    if let Some(example) = schema.get("example").filter(|example| example.is_object()) {
        let example = serde_json::to_string_pretty(example).unwrap_or_default();
        html.extend([
            "<h4>Example</h4><pre><code>",
            &escape(&example),
            "</code></pre>",
        ]);
    }
    html
}

/// The words of an enumeration with their meanings.
fn words(schema: &Value) -> String {
    let meanings = list(schema, "/x-enum-descriptions");
    let row = |(at, word): (usize, &Value)| {
        let meaning = meanings.get(at).and_then(Value::as_str).unwrap_or_default();
        format!(
            "<tr><td><code>{}</code></td><td>{}</td></tr>",
            escape(&plain(word)),
            inline(meaning)
        )
    };
    if meanings.is_empty() {
        return String::new();
    }
    let rows: String = list(schema, "/enum").iter().enumerate().map(row).collect();
    format!("<table><tbody>{rows}</tbody></table>")
}

/// The members of a union: what tells each from the others, where it stands, what it is.
fn union(document: &Value, schema: &Value) -> String {
    let members = list(schema, "/oneOf");
    if members.is_empty() {
        return String::new();
    }
    let row = |member: &Value| {
        let target = text(member, "/$ref").trim_start_matches('#');
        let target = document.pointer(target).unwrap_or(member);
        let constant = text(target, "/properties/kind/enum/0");
        let mark = if constant.is_empty() {
            String::new()
        } else {
            format!("<code>kind</code>: <code>{}</code>", escape(constant))
        };
        format!(
            "<tr><td>{}</td><td>{mark}</td><td>{}</td></tr>",
            kind(member),
            [text(member, "/description"), text(target, "/description")]
                .map(inline)
                .join(" ")
        )
    };
    let rows: String = members.iter().map(row).collect();
    format!("<p>One of:</p><table><tbody>{rows}</tbody></table>")
}

/// The fields of an object, the required ones first.
fn fields(schema: &Value) -> String {
    let required = list(schema, "/required");
    let mut sorted: Vec<_> = object(schema, "/properties")
        .iter()
        .map(|(name, field)| (!required.iter().any(|other| other == name), name, field))
        .collect();
    sorted.sort_by_key(|(optional, ..)| *optional);
    let row = |(optional, name, field): (bool, &String, &Value)| {
        row(name, !optional, &values(field), text(field, "/description"))
    };
    let rows: String = sorted.into_iter().map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("<table><tbody>{rows}</tbody></table>")
    }
}

/// A row of a table of fields or parameters. `values` is HTML.
pub(super) fn row(name: &str, required: bool, values: &str, about: &str) -> String {
    let mark = if required {
        " <span class=\"quiet\">required</span>"
    } else {
        ""
    };
    format!(
        "<tr><td><code>{}</code>{mark}</td><td>{values}</td><td>{}</td></tr>",
        escape(name),
        inline(about)
    )
}

/// What values a schema has, within which bounds, and which is taken where none is given.
pub(super) fn values(schema: &Value) -> String {
    let mut all = kind(schema);
    for bound in bounds(schema) {
        all.extend([", ", &bound]);
    }
    if let Some(default) = schema.get("default") {
        all.extend([", default <code>", &escape(&plain(default)), "</code>"]);
    }
    all
}

/// The bounds of a schema in words: of the value, of its length, of its number of items, and what a text looks like.
fn bounds(schema: &Value) -> Vec<String> {
    let bound = |name: &str| schema.get(name).map(plain);
    let between = |least: &str, most: &str, of: &str| match (bound(least), bound(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{of}")),
        (Some(least), None) => Some(format!("at least {least}{of}")),
        (None, Some(most)) => Some(format!("at most {most}{of}")),
        (None, None) => None,
    };
    [
        between("minimum", "maximum", ""),
        between("minLength", "maxLength", " characters"),
        between("minItems", "maxItems", " items"),
        bound("pattern").map(|pattern| format!("matching <code>{}</code>", escape(&pattern))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What values a schema has, in a few words.
pub(super) fn kind(schema: &Value) -> String {
    let null = if is_nullable(schema) { " or null" } else { "" };
    format!("{}{null}", kind_besides_null(schema))
}

/// What values a schema has beside null, where its own type lists that.
fn kind_besides_null(schema: &Value) -> String {
    if let Some(name) = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|path| path.rsplit('/').next())
    {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    if let Some(members) = schema
        .get("anyOf")
        .or_else(|| schema.get("oneOf"))
        .and_then(Value::as_array)
    {
        return members.iter().map(values).collect::<Vec<_>>().join(" or ");
    }
    let words = schema
        .get("enum")
        .or_else(|| schema.get("x-known-values"))
        .and_then(Value::as_array);
    if let Some(words) = words {
        let words: Vec<_> = words
            .iter()
            .map(|word| format!("<code>{}</code>", escape(&plain(word))))
            .collect();
        return words.join(" ");
    }
    if let Some(items) = schema.get("items") {
        return format!("list of {}", inner(items));
    }
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|values| values.is_object())
    {
        return format!("object of {}", inner(values));
    }
    let format = schema
        .get("format")
        .and_then(Value::as_str)
        .map(|format| format!(" ({format})"))
        .unwrap_or_default();
    let names = match schema.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(some)) => some
            .iter()
            .filter(|kind| *kind != "null")
            .map(plain)
            .collect(),
        _ => return "any JSON value".to_owned(),
    };
    escape(&format!("{}{format}", names.join(" or ")))
}

/// What a list or an object holds. A choice stands apart from what else the whole may be.
fn inner(schema: &Value) -> String {
    let values = values(schema);
    if values.contains(" or ") {
        format!("({values})")
    } else {
        values
    }
}

fn is_nullable(schema: &Value) -> bool {
    list(schema, "/type").iter().any(|kind| kind == "null")
}

#[cfg(test)]
mod tests;

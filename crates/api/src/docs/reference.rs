//! The reference, from the OpenAPI document: operations by tag, then the objects, then the problems.

use serde_json::{Map, Value};

use super::html::{escape, inline, prose};
use super::page::page;
use crate::access::{OPERATIONS, Operation};
use crate::problem::Problem;

/// The whole reference of `document`. `public_url` is where its examples call.
pub(crate) fn render(document: &Value, public_url: &str) -> String {
    let tags = list(document, "/tags");
    let mut navigation = String::new();
    let mut main = introduction(document, public_url);
    for tag in tags {
        let name = text(tag, "/name");
        navigation.extend([format!("<h2>{}</h2>", escape(name))]);
        main.extend([format!(
            "<h2 id=\"{0}\">{0}</h2>{1}",
            escape(name),
            prose(text(tag, "/description"))
        )]);
        for (path, method, operation) in operations(document, name) {
            let id = escape(text(operation, "/operationId"));
            navigation.extend([format!(
                "<a href=\"#{id}\">{}</a>",
                escape(text(operation, "/summary").trim_end_matches('.'))
            )]);
            main.push_str(&render_operation(path, method, operation));
        }
    }
    navigation.push_str("<h2>Objects</h2>");
    main.push_str("<h2 id=\"objects\">Objects</h2>");
    for (name, schema) in object(document, "/components/schemas") {
        navigation.extend([format!("<a href=\"#{0}\">{0}</a>", escape(name))]);
        main.push_str(&render_schema(name, schema));
    }
    navigation.push_str("<h2>Problems</h2><a href=\"/docs/problems\">All codes</a>");
    page("Posthorn: API reference", &navigation, &main)
}

/// The list of all problems.
pub(crate) fn render_problems() -> String {
    let row = |problem: &Problem| {
        let code = problem.code();
        format!(
            "<tr><td>{}</td><td><a href=\"/docs/problems/{code}\"><code>{code}</code></a></td><td>{}</td></tr>",
            problem.status().as_u16(),
            inline(problem.title()),
        )
    };
    let rows: String = Problem::ALL.iter().map(row).collect();
    let intro = "<h1>Problems</h1><p>A refusal is <code>application/problem+json</code>. Compare its <code>code</code>; \
                 new codes may come. With several faults, <code>errors</code> names each by a JSON pointer, or by \
                 <code>?name</code> for a query parameter; the <code>code</code> is theirs when they share one.</p>";
    let table = format!(
        "<table><thead><tr><th>Status</th><th>Code</th><th>Meaning</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    page("Posthorn: problems", BACK, &format!("{intro}{table}"))
}

/// The page of one problem, where its `type` leads.
pub(crate) fn render_problem(problem: Problem) -> String {
    let main = format!(
        "<h1>{}</h1><p class=\"call\"><span class=\"verb\">{}</span> <code>{}</code></p>{}",
        inline(problem.title()),
        problem.status().as_u16(),
        problem.code(),
        prose(problem.meaning().trim()),
    );
    page(&format!("Posthorn: {}", problem.code()), BACK, &main)
}

const BACK: &str = "<a href=\"/docs\">API reference</a><a href=\"/docs/problems\">All problems</a>";

fn introduction(document: &Value, public_url: &str) -> String {
    let example = format!(
        "curl -sS {public_url}/v1/events -H 'Authorization: Bearer ph_test_…' -H 'Content-Type: application/json' \
         -d '{{\"type\":\"invoice.paid\",\"payload\":{{\"id\":1}}}}'"
    );
    format!(
        "<h1>API reference</h1>{}<p>The same as a document for programs: <a href=\"/openapi.json\">openapi.json</a>.</p>\
         <pre><code>{}</code></pre>",
        prose(text(document, "/info/description")),
        escape(&example),
    )
}

/// The operations of a tag with path and method, in the order of the table.
fn operations<'a>(document: &'a Value, tag: &str) -> Vec<(&'static str, &'static str, &'a Value)> {
    let of = |operation: &'static Operation| {
        let method = operation.method.as_str();
        let entry = object(document, "/paths")
            .get(operation.path)?
            .get(method.to_lowercase())?;
        (text(entry, "/tags/0") == tag).then_some((operation.path, method, entry))
    };
    OPERATIONS.iter().filter_map(of).collect()
}

fn render_operation(path: &str, method: &str, operation: &Value) -> String {
    let mut html = format!(
        "<h3 id=\"{}\">{}</h3><p class=\"call\"><span class=\"verb\">{method}</span> {}</p>",
        escape(text(operation, "/operationId")),
        inline(text(operation, "/summary").trim_end_matches('.')),
        escape(path),
    );
    html.push_str(&prose(text(operation, "/description")));
    html.extend([format!(
        "<p class=\"quiet\">Scope <code>{}</code></p>",
        escape(text(operation, "/x-access/scope"))
    )]);
    html.push_str(&parameters(operation));
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        html.extend([format!("<h4>Body</h4><p>{}</p>", kind(schema))]);
    }
    html.push_str(&responses(operation));
    html
}

fn parameters(operation: &Value) -> String {
    let row = |parameter: &Value| {
        let needed = if parameter.pointer("/required") == Some(&Value::Bool(true)) {
            " (needed)"
        } else {
            ""
        };
        format!(
            "<tr><td><code>{}</code>{needed}</td><td>{}</td><td>{}</td></tr>",
            escape(text(parameter, "/name")),
            parameter.get("schema").map(kind).unwrap_or_default(),
            inline(text(parameter, "/description")),
        )
    };
    let rows: String = list(operation, "/parameters").iter().map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("<h4>Parameters</h4><table><tbody>{rows}</tbody></table>")
    }
}

fn responses(operation: &Value) -> String {
    let mut rows = String::new();
    for (status, response) in object(operation, "/responses") {
        let content = object(response, "/content")
            .values()
            .next()
            .and_then(|content| content.get("schema"));
        let codes = list(response, "/x-codes").iter().filter_map(Value::as_str);
        let links: Vec<_> = codes
            .map(|code| format!("<a href=\"/docs/problems/{code}\"><code>{code}</code></a>"))
            .collect();
        let words = if links.is_empty() {
            format!(
                "{} {}",
                inline(text(response, "/description")),
                content.map(kind).unwrap_or_default()
            )
        } else {
            links.join(" ")
        };
        rows.extend([format!(
            "<tr><td>{}</td><td>{words}</td></tr>",
            escape(status)
        )]);
    }
    format!("<h4>Answers</h4><table><tbody>{rows}</tbody></table>")
}

fn render_schema(name: &str, schema: &Value) -> String {
    let mut html = format!(
        "<h3 id=\"{0}\">{0}</h3>{1}",
        escape(name),
        prose(text(schema, "/description"))
    );
    html.push_str(&fields(schema));
    for part in list(schema, "/allOf").iter().chain(list(schema, "/oneOf")) {
        match part.get("$ref") {
            Some(_) => html.extend(["<p>All of ", &kind(part), ", and:</p>"]),
            None => html.extend([prose(text(part, "/description")), fields(part)]),
        }
    }
    if let Some(example) = schema.get("example") {
        let example = serde_json::to_string_pretty(example).unwrap_or_default();
        html.extend([
            "<h4>Example</h4><pre><code>",
            &escape(&example),
            "</code></pre>",
        ]);
    }
    html
}

fn fields(schema: &Value) -> String {
    let needed = list(schema, "/required");
    let row = |(name, field): (&String, &Value)| {
        let mark = if needed.iter().any(|other| other == name) {
            ""
        } else {
            " <span class=\"quiet\">optional</span>"
        };
        format!(
            "<tr><td><code>{}</code>{mark}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            kind(field),
            inline(text(field, "/description"))
        )
    };
    let rows: String = object(schema, "/properties").iter().map(row).collect();
    if rows.is_empty() {
        rows
    } else {
        format!("<table><tbody>{rows}</tbody></table>")
    }
}

/// What values a schema has, in a few words.
fn kind(schema: &Value) -> String {
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
        return members.iter().map(kind).collect::<Vec<_>>().join(" or ");
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
        return format!("list of {}", kind(items));
    }
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|values| values.is_object())
    {
        return format!("object of {}", kind(values));
    }
    let format = schema
        .get("format")
        .and_then(Value::as_str)
        .map(|format| format!(" ({format})"))
        .unwrap_or_default();
    match schema.get("type") {
        Some(Value::String(one)) => escape(&format!("{one}{format}")),
        Some(Value::Array(some)) => escape(&format!(
            "{}{format}",
            some.iter().map(plain).collect::<Vec<_>>().join(" or ")
        )),
        _ => "any JSON value".to_owned(),
    }
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn object<'a>(value: &'a Value, pointer: &str) -> &'a Map<String, Value> {
    static EMPTY: std::sync::OnceLock<Map<String, Value>> = std::sync::OnceLock::new();
    value
        .pointer(pointer)
        .and_then(Value::as_object)
        .unwrap_or_else(|| EMPTY.get_or_init(Map::new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::document;

    #[test]
    fn the_reference_shows_every_operation_and_every_problem_has_a_page() {
        let page = render(&document(), "http://127.0.0.1:8400");
        for operation in OPERATIONS {
            assert!(
                page.contains(&format!("id=\"{}\"", operation.id)),
                "{}",
                operation.id
            );
        }
        let list = render_problems();
        for problem in Problem::ALL {
            assert!(list.contains(problem.code()));
            assert!(render_problem(*problem).contains(problem.code()));
        }
    }

    #[test]
    fn the_pages_load_and_run_nothing() {
        let page = render(&document(), "http://127.0.0.1:8400");
        for forbidden in ["<script", "<link", "<img", " src=", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}

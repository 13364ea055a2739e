//! The reference, from the OpenAPI document: operations by tag, then the objects, then the problems.

use posthorn_domain::scope::Scope;
use serde_json::Value;

use super::html::{escape, inline, prose};
use super::page::page;
use super::schema::{render_schema, row, values};
use super::tree::{list, object, text};
use crate::access::{OPERATIONS, Operation};
use crate::problem::Problem;

/// The whole reference of `document`. `public_url` is where its examples call.
pub(crate) fn render(document: &Value, public_url: &str) -> String {
    let tags = list(document, "/tags");
    let mut navigation = START.to_owned();
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
        main.push_str(&render_schema(document, name, schema));
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

const START: &str = "<h2>Start</h2><a href=\"#authentication\">Authentication</a><a href=\"#scopes\">Scopes</a><a href=\"#receiving\">Receiving</a>";

const AUTHENTICATION: &str = "Every call to `/v1` carries an API key in its header: `Authorization: Bearer KEY`. A key is \
    `ph_live_…` or `ph_test_…`, belongs to one tenant and sees nothing of another. Each operation names the scope that its key needs; \
    without it the answer is 403.";

const SCOPES: &str = "A key has the scopes that it was made with, as in \
    `posthorn key create --tenant TENANT --scopes events:write,events:read`; where none are named, all but `admin`.";

const RECEIVING: &str = "Requests to your endpoints are signed as Standard Webhooks says, so its libraries verify them. \
    The headers are `webhook-id` (the event's id, the same on each attempt), `webhook-timestamp` (Unix seconds) and \
    `webhook-signature` (one or more signatures with a space between them; one that fits is enough).\n\n\
    To verify `v1` by hand: join id, timestamp and the raw body with dots; take HMAC-SHA256 of that, keyed with the secret after \
    `whsec_`, decoded from base64; write it in base64 after `v1,`; compare in constant time; refuse a timestamp more than five minutes off. \
    Do not parse the body before.";

const STANDARD_WEBHOOKS: &str =
    "<a href=\"https://www.standardwebhooks.com/\">Standard Webhooks</a>";

fn introduction(document: &Value, public_url: &str) -> String {
    let example = format!(
        "curl -sS {public_url}/v1/events -H 'Authorization: Bearer ph_test_…' -H 'Content-Type: application/json' \
         -d '{{\"type\":\"invoice.paid\",\"payload\":{{\"id\":1}}}}'"
    );
    format!(
        "<h1>API reference</h1>{}<p>The same as a document for programs: <a href=\"/openapi.json\">openapi.json</a>.</p>\
         <h2 id=\"authentication\">Authentication</h2>{}<pre><code>{}</code></pre>\
         <h2 id=\"scopes\">Scopes</h2>{}{}\
         <h2 id=\"receiving\">Receiving</h2>{}",
        prose(text(document, "/info/description")),
        prose(AUTHENTICATION),
        escape(&example),
        prose(SCOPES),
        scopes(),
        prose(RECEIVING).replace("Standard Webhooks", STANDARD_WEBHOOKS),
    )
}

/// All scopes: what each is for, and which operations ask for it.
fn scopes() -> String {
    let row = |scope: &Scope| {
        let operations: Vec<_> = OPERATIONS
            .iter()
            .filter(|operation| operation.scope == *scope)
            .map(|operation| format!("<a href=\"#{0}\"><code>{0}</code></a>", operation.id))
            .collect();
        let operations = match scope {
            Scope::Admin => format!("all, and alone {}", operations.join(" ")),
            _ if operations.is_empty() => "none yet".to_owned(),
            _ => operations.join(" "),
        };
        format!(
            "<tr><td><code>{scope}</code></td><td>{}</td><td>{operations}</td></tr>",
            inline(scope.meaning())
        )
    };
    let rows: String = Scope::ALL.iter().map(row).collect();
    format!(
        "<table><thead><tr><th>Scope</th><th>Lets a key</th><th>Operations</th></tr></thead><tbody>{rows}</tbody></table>"
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
    html.push_str(&request_body(operation));
    html.push_str(&responses(operation));
    html
}

/// What the body may be, by its content type.
fn request_body(operation: &Value) -> String {
    let row = |(content_type, content): (&String, &Value)| {
        let shown = content.get("schema").map(values).unwrap_or_default();
        let content_type = escape(content_type);
        format!("<tr><td><code>{content_type}</code></td><td>{shown}</td></tr>")
    };
    let rows: String = object(operation, "/requestBody/content")
        .iter()
        .map(row)
        .collect();
    if rows.is_empty() {
        return rows;
    }
    let about = text(operation, "/requestBody/description");
    let about = if about.is_empty() {
        String::new()
    } else {
        prose(about)
    };
    format!("<h4>Body</h4>{about}<table><tbody>{rows}</tbody></table>")
}

fn parameters(operation: &Value) -> String {
    let row = |parameter: &Value| {
        let required = parameter.pointer("/required") == Some(&Value::Bool(true));
        row(
            text(parameter, "/name"),
            required,
            &parameter.get("schema").map(values).unwrap_or_default(),
            text(parameter, "/description"),
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
                "{} {}{}",
                inline(text(response, "/description")),
                content.map(values).unwrap_or_default(),
                headers(response)
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

/// The headers of an answer, one a line.
fn headers(response: &Value) -> String {
    let line = |(name, header): (&String, &Value)| {
        format!(
            "<br>Header <code>{}</code>: {}",
            escape(name),
            inline(text(header, "/description"))
        )
    };
    object(response, "/headers").iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::openapi::document;

    #[test]
    fn the_reference_shows_every_operation_and_every_problem_has_a_page() {
        let page = render(document(), "http://127.0.0.1:8400");
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
    fn a_parameter_is_shown_with_its_bounds_default_and_need() {
        let page = render(document(), "http://127.0.0.1:8400");
        assert!(page.contains(
            "<code>limit</code></td><td>integer (int32), 1 to 250, default <code>50</code></td>"
        ));
        assert!(page.contains("<code>id</code> <span class=\"quiet\">required</span>"));
        assert!(!page.contains("needed)"));
    }

    #[test]
    fn the_reference_says_how_to_call_and_how_to_verify() {
        let page = render(document(), "http://127.0.0.1:8400");
        for place in ["authentication", "receiving"] {
            assert!(page.contains(&format!("id=\"{place}\"")), "{place}");
            assert!(page.contains(&format!("href=\"#{place}\"")), "{place}");
        }
        assert!(page.contains("Authorization: Bearer KEY"));
        assert!(page.contains("<a href=\"https://www.standardwebhooks.com/\">"));
    }

    #[test]
    fn every_scope_is_listed_with_its_meaning_and_the_operations_that_ask_for_it() {
        let page = render(document(), "http://127.0.0.1:8400");
        let table = page.split("id=\"scopes\"").nth(1).unwrap();
        let table = table.split("</table>").next().unwrap();
        for scope in Scope::ALL {
            let start = format!("<tr><td><code>{scope}</code></td><td>");
            let row = table.split(&start).nth(1).unwrap_or_default();
            let row = row.split("</tr>").next().unwrap();
            assert!(row.starts_with(&inline(scope.meaning())), "{scope}: {row}");
            assert!(!scope.meaning().is_empty());
        }
        for operation in OPERATIONS {
            let link = format!("href=\"#{}\"", operation.id);
            let scope = format!("<code>{}</code></td>", operation.scope);
            let row = table.split("<tr>").find(|row| row.contains(&link)).unwrap();
            assert!(row.contains(&scope), "{}", operation.id);
        }
    }

    /// Everything that the document tells of its paths and objects stands on the page, too; what refusals have in common is on
    /// their own pages.
    #[test]
    fn every_description_of_the_document_is_on_the_page() {
        fn descriptions(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Array(items) => items.iter().for_each(|item| descriptions(item, found)),
                Value::Object(fields) if fields.contains_key("x-codes") => {}
                Value::Object(fields) => {
                    for (name, field) in fields {
                        match field.as_str() {
                            Some(text) if name == "description" || name == "summary" => {
                                found.insert(text.trim_end_matches('.').to_owned());
                            }
                            // What a parameter is for is told by itself.
                            _ if name == "schema" && fields.contains_key("in") => {}
                            _ if name != "example" => descriptions(field, found),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        let document = document();
        let mut found = BTreeSet::new();
        for part in ["/tags", "/paths", "/components/schemas"] {
            descriptions(document.pointer(part).unwrap(), &mut found);
        }
        let page = render(document, "http://127.0.0.1:8400");
        for text in found.iter().flat_map(|text| text.split("\n\n")) {
            assert!(page.contains(&inline(text)), "{text}");
        }
        assert!(found.len() > 150, "{}", found.len());
    }

    #[test]
    fn a_body_that_may_be_of_many_types_is_shown_with_each_and_with_its_bound() {
        let page = render(document(), "http://127.0.0.1:8400");
        let about = page.split("id=\"create_raw_event\"").nth(1).unwrap();
        let about = about.split("<h3").next().unwrap();
        for content_type in posthorn_domain::content_type::TYPES {
            let shown = format!("<td><code>{content_type}</code></td>");
            assert!(about.contains(&shown), "{content_type}");
        }
        assert!(about.contains("1,048,576 bytes"));
        assert_eq!(posthorn_domain::limits::PAYLOAD_BYTES, 1_048_576);
    }

    #[test]
    fn a_payload_is_shown_as_bytes() {
        let page = render(document(), "http://127.0.0.1:8400");
        assert!(page.contains("The payload. string (binary)"));
    }

    #[test]
    fn the_pages_load_and_run_nothing() {
        let page = render(document(), "http://127.0.0.1:8400");
        for forbidden in ["<script", "<link", "<img", " src=", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}

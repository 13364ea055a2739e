use std::collections::BTreeSet;

use super::*;

/// Method, path and operation of the whole document.
fn operations() -> Vec<(String, String, Value)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap().clone();
    paths
        .into_iter()
        .flat_map(|(path, item)| {
            let item = item.as_object().unwrap().clone();
            item.into_iter()
                .map(move |(method, operation)| (method, path.clone(), operation))
        })
        .collect()
}

#[test]
fn the_document_and_the_table_name_the_same_operations() {
    let documented: BTreeSet<_> = operations()
        .into_iter()
        .map(|(method, path, operation)| {
            (
                method,
                path,
                operation["operationId"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let tabled: BTreeSet<_> = OPERATIONS
        .iter()
        .map(|operation| {
            (
                operation.method.as_str().to_lowercase(),
                operation.path.to_owned(),
                operation.id.to_owned(),
            )
        })
        .collect();
    assert_eq!(documented, tabled);
}

#[test]
fn every_operation_has_one_tag_security_access_and_refusals() {
    for (method, path, operation) in operations() {
        assert_eq!(
            operation["tags"].as_array().unwrap().len(),
            1,
            "{method} {path}"
        );
        assert_eq!(
            operation["security"],
            json!([{ "api_key": [] }]),
            "{method} {path}"
        );
        assert!(
            operation["x-access"]["scope"].is_string(),
            "{method} {path}"
        );
        for status in ["401", "403", "422", "500", "503"] {
            assert!(
                operation["responses"][status].is_object(),
                "{method} {path} {status}"
            );
        }
    }
}

#[test]
fn every_operation_says_what_it_does_and_what_it_answers() {
    for (method, path, operation) in operations() {
        assert!(operation["summary"].is_string(), "{method} {path}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!(
                response["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{method} {path} {status}"
            );
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Object(object) => {
                found.extend(
                    object
                        .get("$ref")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                object.values().for_each(|item| references(item, found));
            }
            _ => {}
        }
    }
    let document = document();
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        assert!(
            document
                .pointer(reference.trim_start_matches('#'))
                .is_some(),
            "{reference}"
        );
    }
}

#[test]
fn a_request_body_takes_no_field_that_is_not_described() {
    for name in [
        "EventSubmission",
        "CreateEndpoint",
        "UpdateEndpoint",
        "SigningRequest",
        "TestEndpoint",
    ] {
        let schema = &document()["components"]["schemas"][name];
        assert_eq!(schema["additionalProperties"], json!(false), "{name}");
    }
}

#[test]
fn retry_policies_are_told_apart_by_their_kind() {
    let schema = &document()["components"]["schemas"]["RetryPolicy"];
    assert_eq!(
        schema["discriminator"]["propertyName"], "kind",
        "{schema:#}"
    );
}

#[test]
fn the_document_is_the_same_each_time() {
    assert_eq!(openapi_json(), openapi_json());
}

#[test]
fn every_field_of_an_answer_is_always_there() {
    let document = document();
    for name in [
        "Event",
        "Delivery",
        "Endpoint",
        "DeadLetter",
        "Cursors",
        "EventAccepted",
        "Problem",
    ] {
        let schema = &document["components"]["schemas"][name];
        // The one that is absent where there is nothing to say.
        let always = |field: &&String| (name, field.as_str()) != ("Problem", "detail");
        let fields: BTreeSet<_> = schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .filter(always)
            .cloned()
            .collect();
        let required: BTreeSet<_> = schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| field.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(fields, required, "{name}");
    }
}

#[test]
fn every_answer_in_json_has_an_example() {
    for (method, path, operation) in operations() {
        for (status, response) in operation["responses"].as_object().unwrap() {
            if let Some(json) = response["content"].get("application/json") {
                assert!(json["example"].is_object(), "{method} {path} {status}");
            }
        }
    }
}

#[test]
fn the_committed_document_is_the_one_that_the_program_serves() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == openapi_json(),
        "`cargo xtask openapi` writes openapi/openapi.json anew"
    );
}

/// The words in the document are spelled there and in `domain`; neither may lead.
#[test]
fn the_words_of_the_document_are_those_of_the_domain() {
    use posthorn_domain::body::BodyForm;
    use posthorn_domain::delivery::{Cause, DeliveryState, ErrorKind, Trigger};
    use posthorn_domain::endpoint::{EndpointState, KeepResponses};
    use posthorn_domain::retry::Preset;

    fn words<T: std::fmt::Display>(all: &[T]) -> Value {
        all.iter()
            .map(|word| Value::from(word.to_string()))
            .collect()
    }
    let schemas = document()["components"]["schemas"].clone();
    assert_eq!(schemas["EndpointState"]["enum"], words(EndpointState::ALL));
    assert_eq!(schemas["BodyForm"]["enum"], words(BodyForm::ALL));
    assert_eq!(schemas["KeepResponses"]["enum"], words(KeepResponses::ALL));
    assert_eq!(schemas["Preset"]["enum"], words(Preset::ALL));
    let known =
        |schema: &str, field: &str| schemas[schema]["properties"][field]["x-known-values"].clone();
    assert_eq!(known("Endpoint", "body"), words(BodyForm::ALL));
    assert_eq!(known("Delivery", "state"), words(DeliveryState::ALL));
    assert_eq!(known("DeadLetter", "cause"), words(Cause::ALL));
    assert_eq!(known("AttemptError", "kind"), words(ErrorKind::ALL));
    assert_eq!(known("AttemptSummary", "trigger"), words(Trigger::ALL));
}

#[test]
fn a_policy_of_each_kind_is_described_as_it_is_read() {
    use posthorn_domain::retry::RetryPolicy;

    let document = document();
    for kind in ["Preset", "Fixed", "Exponential", "Schedule"] {
        let schema = &document["components"]["schemas"][format!("RetryPolicy{kind}")];
        let mut policy = example::sample(document, schema, "");
        if kind == "Schedule" {
            policy["delays_ms"] = json!([1000, 2000]);
        }
        let read: RetryPolicy = serde_json::from_value(policy.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap()["kind"], policy["kind"]);
    }
}

#[test]
fn a_nullable_field_keeps_its_description() {
    let schemas = document()["components"]["schemas"].clone();
    for (schema, field) in [
        ("CreateEndpoint", "rate_limit"),
        ("Delivery", "next_attempt_at"),
        ("Delivery", "last_attempt"),
        ("AttemptSummary", "error"),
    ] {
        let field = &schemas[schema]["properties"][field];
        assert!(field["description"].is_string(), "{schema} {field}");
    }
}

#[test]
fn a_payload_is_binary() {
    let schema = document()["paths"]["/v1/events/{id}/payload"]["get"]["responses"]["200"]["content"]
        ["application/octet-stream"]["schema"]
        .clone();
    assert_eq!(
        (&schema["type"], &schema["format"]),
        (&json!("string"), &json!("binary"))
    );
}

#[test]
fn no_answer_says_of_a_secret_that_it_is_never_shown_again() {
    let text = openapi_json();
    for untrue in ["not again", "not shown again", "this once"] {
        assert!(!text.contains(untrue), "{untrue}");
    }
    for id in ["/v1/endpoints", "/v1/endpoints/{id}/rotate-secret"] {
        let about = document()["paths"][id]["post"]["description"].clone();
        assert!(
            about.as_str().unwrap().contains("endpoints:secrets"),
            "{id}"
        );
    }
}

/// The presets' numbers are told in words; the policies themselves are `domain`'s.
#[test]
fn a_preset_s_meaning_tells_its_attempts() {
    use posthorn_domain::retry::{Preset, RetryPolicy};

    let schema = document()["components"]["schemas"]["Preset"].clone();
    for (at, &name) in Preset::ALL.iter().enumerate() {
        let meaning = schema["x-enum-descriptions"][at].as_str().unwrap();
        let attempts = RetryPolicy::Preset { name }.max_attempts();
        assert!(
            meaning.starts_with(&format!("{attempts} attempts")),
            "{name}: {meaning}"
        );
    }
}

#[test]
fn a_fatal_status_has_the_bounds_that_are_checked() {
    use posthorn_domain::endpoint::may_be_fatal;

    let schema = document()["components"]["schemas"]["FatalStatus"].clone();
    let fatal: Vec<u16> = (0..=999).filter(|&status| may_be_fatal(status)).collect();
    assert_eq!(schema["minimum"], json!(fatal.first().unwrap()));
    assert_eq!(schema["maximum"], json!(fatal.last().unwrap()));
}

#[test]
fn what_is_required_at_first_only_is_said() {
    let schemas = document()["components"]["schemas"].clone();
    for (schema, words) in [
        ("CompatRequest", "`kind` and `secret` are required"),
        ("RateLimitRequest", "`per_second` is required"),
    ] {
        assert!(
            schemas[schema]["description"]
                .as_str()
                .unwrap()
                .contains(words),
            "{schema}"
        );
    }
    let schemes = &schemas["SigningRequest"]["properties"]["schemes"]["items"];
    assert_eq!(schemes["$ref"], "#/components/schemas/SigningScheme");
}

#[test]
fn examples_do_not_contradict_themselves() {
    fn check(value: &Value, place: &str) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| check(item, place)),
            Value::Object(fields) => {
                if let (Some(matched), Some(count)) =
                    (fields.get("matched"), fields.get("deliveries_count"))
                {
                    assert_eq!(matched == &json!(true), count != &json!(0), "{place}");
                }
                if let (Some(count), Some(last)) =
                    (fields.get("attempt_count"), fields.get("last_attempt"))
                {
                    assert_eq!(count == &json!(0), last.is_null(), "{place}");
                }
                fields.values().for_each(|inner| check(inner, place));
            }
            _ => {}
        }
    }
    for (method, path, operation) in operations() {
        for response in operation["responses"].as_object().unwrap().values() {
            check(
                &response["content"]["application/json"]["example"],
                &format!("{method} {path}"),
            );
        }
    }
    let replay = &document()["paths"]["/v1/dead-letters/{id}/replay"]["post"]["responses"]["202"];
    let example = &replay["content"]["application/json"]["example"];
    assert_eq!(example["state"], "retrying");
}

//! Who may not, and what is not there.

use axum::body::Body;
use http::header::{ALLOW, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Method, Request};
use posthorn_domain::scope::Scope;
use serde_json::{Value, json};

use super::{Answer, Api, text};

/// Method, path with ids that nobody has, and scope of every operation of the document.
fn operations() -> Vec<(Method, String, String)> {
    let document: Value = serde_json::from_str(&posthorn_api::openapi_json()).unwrap();
    let nobody = "0".repeat(26);
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let id = match path.split('/').nth(2).unwrap() {
            "events" => format!("evt_{nobody}"),
            "endpoints" => format!("ep_{nobody}"),
            "api-keys" => format!("key_{nobody}"),
            "attempts" => format!("att_{nobody}{nobody}-1-{}", "0".repeat(16)),
            _ => format!("dlv_{nobody}{nobody}"),
        };
        for (method, operation) in item.as_object().unwrap() {
            let method = method.to_uppercase().parse().unwrap();
            found.push((
                method,
                path.replace("{id}", &id),
                text(&operation["x-access"], "scope"),
            ));
        }
    }
    found
}

/// A refusal without what differs from one request to the next.
fn but_for_the_request_id(answer: &Answer) -> (u16, Vec<String>, String) {
    let mut body = answer.json();
    body["request_id"] = json!("");
    let mut headers: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
    headers.sort();
    (answer.status.as_u16(), headers, body.to_string())
}

#[tokio::test]
async fn every_operation_needs_a_key() {
    let api = Api::start().await;
    for (method, path, _) in operations() {
        let answer = api.anonymous(method, &path).await;
        answer.refuses(401, "unauthenticated");
        assert_eq!(answer.headers[WWW_AUTHENTICATE], "Bearer");
    }
}

#[tokio::test]
async fn a_request_without_a_valid_key_is_told_what_to_send() {
    let api = Api::start().await;
    let refused = api
        .anonymous(Method::GET, "/v1/events")
        .await
        .refuses(401, "unauthenticated");
    assert!(
        text(&refused, "detail").contains("Authorization: Bearer"),
        "{refused}"
    );
}

/// INV-9: a key beside another tenant's name is a mistake that must not end in either tenant.
#[tokio::test]
async fn a_key_beside_another_tenants_name_is_refused_by_every_operation() {
    let api = Api::start().await;
    let (program, stranger) = (api.program().await, api.program().await);
    let (own, other) = (program.tenant.to_string(), stranger.tenant.to_string());
    let with = |method: Method, path: &str, names: &[&str]| {
        let request = names
            .iter()
            .fold(program.request(method, path), |request, name| {
                request.header("Posthorn-Tenant", *name)
            });
        api.send(request.body(Body::empty()).unwrap())
    };
    for (method, path, _) in operations() {
        with(method, &path, &[&other])
            .await
            .refuses(403, "tenant_forbidden");
    }
    for names in [
        ["", ""].as_slice(),
        &["nonsense"],
        &[&own, &other],
        &[&other, &own],
    ] {
        let refused = with(Method::GET, "/v1/events", names)
            .await
            .refuses(403, "tenant_forbidden");
        assert!(text(&refused, "detail").contains("Posthorn-Tenant"));
    }
    with(Method::GET, "/v1/events", &[&own]).await.expect(200);
}

#[tokio::test]
async fn every_operation_needs_its_scope_and_names_it() {
    let api = Api::start().await;
    let tenant = api.tenants.tenant().await;
    for (method, path, scope) in operations() {
        let others: Vec<_> = Scope::ALL
            .iter()
            .copied()
            .filter(|other| other.as_str() != scope && *other != Scope::Admin)
            .collect();
        let program = api.program_of(tenant, &others).await;
        let refusal = program
            .call(method, &path, None)
            .await
            .refuses(403, "scope_missing");
        assert!(text(&refusal, "detail").contains(&scope), "{refusal}");
    }
}

#[tokio::test]
async fn a_key_is_refused_in_the_same_words_whatever_is_wrong_with_it() {
    let api = Api::start().await;
    let program = api.program().await;
    let last = if program.key.ends_with('0') { '1' } else { '0' };
    let bent = format!("{}{last}", &program.key[..program.key.len() - 1]);
    let unknown =
        posthorn_domain::api_key::mint(posthorn_domain::api_key::Environment::Test, [7; 32]);
    let unknown = secrecy::ExposeSecret::expose_secret(&unknown).to_owned();
    let mut answers = Vec::new();
    for value in [
        format!("Bearer {bent}"),
        format!("Bearer {unknown}"),
        "Basic eDp5".into(),
        "Bearer".into(),
        String::new(),
    ] {
        let request = Request::builder()
            .uri("/v1/events")
            .header(AUTHORIZATION, value);
        answers.push(but_for_the_request_id(
            &api.send(request.body(Body::empty()).unwrap()).await,
        ));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[tokio::test]
async fn the_scheme_of_a_key_has_no_case() {
    let api = Api::start().await;
    let program = api.program().await;
    let request = Request::builder()
        .uri("/v1/events")
        .header("AUTHORIZATION", format!("bearer {}", program.key));
    api.send(request.body(Body::empty()).unwrap())
        .await
        .expect(200);
}

/// INV-9, through every operation that takes an id.
#[tokio::test]
async fn what_another_tenant_has_is_answered_as_what_nobody_has() {
    let api = Api::start().await;
    let (owner, stranger) = (api.administrator().await, api.administrator().await);
    let endpoint = text(&owner.endpoint(json!({ "uid": "shop" })).await, "id");
    let key = json!({ "name": "a", "scopes": ["admin"] });
    let key = owner.post("/v1/api-keys", &key).await.expect(201);
    let event = text(&owner.event("order.paid").await, "id");
    api.rows.run(super::dead_letters::LAY_ALL).await;
    let pair = format!(
        "{}{}",
        event.trim_start_matches("evt_"),
        endpoint.trim_start_matches("ep_")
    );
    let before = owner
        .get(&format!("/v1/deliveries/dlv_{pair}"))
        .await
        .expect(200);
    for (method, path, _) in operations()
        .into_iter()
        .filter(|(_, path, _)| path.contains("_0000"))
    {
        let (unknown, foreign) = (path.clone(), path.replace(&"0".repeat(52), &pair));
        let foreign = foreign.replace(&format!("evt_{}", "0".repeat(26)), &event);
        let foreign = foreign.replace(&format!("ep_{}", "0".repeat(26)), &endpoint);
        let foreign = foreign.replace(&format!("key_{}", "0".repeat(26)), &text(&key, "id"));
        assert_ne!(unknown, foreign);
        let body = || (method == Method::PATCH).then(|| b"{\"description\":\"mine\"}".to_vec());
        let unknown = stranger.call(method.clone(), &unknown, body()).await;
        let foreign = stranger.call(method.clone(), &foreign, body()).await;
        foreign.refuses(404, "not_found");
        assert_eq!(
            but_for_the_request_id(&foreign),
            but_for_the_request_id(&unknown),
            "{method} {path}"
        );
    }
    assert_eq!(stranger.get("/v1/endpoints/uid:shop").await.status, 404);
    for list in [
        "events",
        "endpoints",
        "dead-letters",
        &format!("deliveries?event_id={event}"),
        &format!("attempts?endpoint_id={endpoint}"),
    ] {
        assert_eq!(
            stranger.get(&format!("/v1/{list}")).await.expect(200)["data"],
            json!([]),
            "{list}"
        );
    }
    assert_eq!(
        owner
            .get(&format!("/v1/deliveries/dlv_{pair}"))
            .await
            .expect(200),
        before
    );
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_refused_in_the_same_form() {
    let api = Api::start().await;
    let program = api.program().await;
    for path in [
        "/v1/nothing",
        "/v1/events/",
        "/v1//events",
        "/v2/events",
        "/docs/problems/nothing",
    ] {
        program.get(path).await.refuses(404, "route_not_found");
    }
    let refused = program.call(Method::PUT, "/v1/events", None).await;
    refused.refuses(405, "method_not_allowed");
    assert_eq!(refused.headers[ALLOW], "POST,GET,HEAD");
    for path in [
        "/v1/events/evt_x",
        "/v1/events/ep_x",
        "/v1/endpoints/%00",
        "/v1/endpoints/%FF",
        "/v1/endpoints/uid:a%00",
        "/v1/endpoints/uid:",
        "/v1/endpoints/uid:%C3%A9",
        "/v1/deliveries/dlv_",
    ] {
        program.get(path).await.refuses(404, "not_found");
    }
}

#[tokio::test]
async fn head_answers_as_get_without_a_body_and_options_needs_no_key() {
    let api = Api::start().await;
    let program = api.program().await;
    let head = program.call(Method::HEAD, "/v1/events", None).await;
    assert_eq!((head.status.as_u16(), head.bytes.len()), (200, 0));
    let options = api.anonymous(Method::OPTIONS, "/v1/events").await;
    assert_eq!((options.status.as_u16(), options.bytes.len()), (204, 0));
    assert!(!options.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_query_is_read_strictly() {
    let api = Api::start().await;
    let program = api.program().await;
    let refused = program
        .get("/v1/events?limitt=5")
        .await
        .refuses(422, "parameter_unknown");
    assert_eq!(refused["errors"][0]["pointer"], "?limitt");
    for limit in ["0", "-1", "251", "1000000000", "abc", "10abc", "", "1.5"] {
        program
            .get(&format!("/v1/events?limit={limit}"))
            .await
            .refuses(422, "parameter_invalid");
    }
    program
        .get("/v1/events?limit=5&limit=5")
        .await
        .refuses(422, "parameter_invalid");
    program
        .get("/v1/events?order=up")
        .await
        .refuses(422, "parameter_invalid");
    program
        .get("/v1/events?since=yesterday")
        .await
        .refuses(422, "parameter_invalid");
    program
        .get("/v1/events?cursor=%00")
        .await
        .refuses(422, "cursor_invalid");
    program
        .get("/v1/deliveries")
        .await
        .refuses(422, "parameter_missing");
    program
        .get("/v1/attempts")
        .await
        .refuses(422, "parameter_missing");
    program
        .get("/v1/endpoints/uid:x?y=1")
        .await
        .refuses(422, "parameter_unknown");
}

#[tokio::test]
async fn every_problem_leads_to_its_page() {
    let api = Api::start().await;
    for problem in posthorn_api::problem::Problem::ALL {
        let page = api.anonymous(Method::GET, &problem.page()).await;
        assert_eq!(page.status, 200);
        assert!(
            page.headers["content-security-policy"]
                .to_str()
                .unwrap()
                .starts_with("default-src 'none'")
        );
    }
}

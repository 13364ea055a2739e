//! The demo: a tenant, a key and three endpoints, made once by the program and through the API.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::ports;
use super::server::Server;
use crate::http::Api;
use crate::process::wait_until;
use crate::workspace::{Workspace, write_private};

const TENANT: &str = "Acme";

// Names in `.posthorn/demo.env`.
const TENANT_ID: &str = "POSTHORN_DEMO_TENANT";
const KEY: &str = "POSTHORN_DEMO_KEY";
const API: &str = "POSTHORN_DEMO_API";
const RECEIVER: &str = "POSTHORN_DEMO_RECEIVER";

/// What makes each endpoint worth a look.
const ENDPOINTS: &[(&str, &str)] = &[
    ("ok", "Takes everything."),
    ("flaky", "Fails one of five; what fails is sent again."),
    (
        "down",
        "Fails always; what was sent ends in the dead letters after three attempts.",
    ),
];

pub(super) struct Demo {
    api: Api,
    made: bool,
}

impl Demo {
    pub(super) fn told(&self) -> String {
        let what = if self.made { "made" } else { "kept" };
        format!(
            "tenant {TENANT} (test), {} endpoints, {what}",
            ENDPOINTS.len()
        )
    }

    pub(super) fn api(self) -> Api {
        self.api
    }
}

/// Finds the demo of an earlier run, or makes it; its endpoints follow the receiver's port, as long as nobody sends
/// them elsewhere.
pub(super) fn ready(
    workspace: &Workspace,
    server: &Server,
    port: u16,
    receiver: u16,
) -> Result<Demo> {
    let kept = key(workspace)
        .map(|key| Api::new(port, Some(key)))
        .filter(is_known);
    let made = kept.is_none();
    let api = match kept {
        Some(api) => api,
        None => make(workspace, server, port)?,
    };
    note(
        workspace,
        &[
            (API, &format!("http://127.0.0.1:{port}")),
            (RECEIVER, &format!("http://127.0.0.1:{receiver}")),
        ],
    )?;
    endpoints(&api, receiver)?;
    Ok(Demo { api, made })
}

/// The demo's key, if it was made.
pub(super) fn key(workspace: &Workspace) -> Option<String> {
    noted(workspace)
        .lines()
        .find_map(|line| Some(line.strip_prefix(KEY)?.strip_prefix('=')?.trim().to_owned()))
}

/// What is written down for whoever tries the demo by hand: a file for a shell to read.
fn noted(workspace: &Workspace) -> String {
    std::fs::read_to_string(workspace.join(".posthorn/demo.env")).unwrap_or_default()
}

/// Writes these names down, in place of what they said before.
fn note(workspace: &Workspace, values: &[(&str, &str)]) -> Result<()> {
    let is_new = |line: &&str| {
        let name = line.split_once('=').map_or(*line, |(name, _)| name);
        values.iter().all(|(new, _)| *new != name)
    };
    let before = noted(workspace);
    let kept = before.lines().filter(is_new).map(str::to_owned);
    let new = values.iter().map(|(name, value)| format!("{name}={value}"));
    let lines: Vec<_> = kept.chain(new).collect();
    let text = format!("{}\n", lines.join("\n"));
    write_private(&workspace.private()?.join("demo.env"), &text)
}

/// A key of data that was since deleted is unknown.
fn is_known(api: &Api) -> bool {
    api.get("/v1/endpoints?limit=1")
        .is_ok_and(|answer| answer.status != 401)
}

fn make(workspace: &Workspace, server: &Server, port: u16) -> Result<Api> {
    let tenant = server.ask(&["tenant", "create", TENANT, "--test"])?;
    let tenant = text(&tenant, "id")?;
    let key = server.ask(&["key", "create", "--tenant", &tenant, "--name", "demo"])?;
    let key = text(&key, "key")?;
    note(workspace, &[(TENANT_ID, &tenant), (KEY, &key)])?;
    let api = Api::new(port, Some(key));
    // It was made by another process; the server looks for such changes four times a second.
    if !wait_until(Duration::from_secs(10), || is_known(&api)) {
        bail!("the server does not know the key that was made for the demo");
    }
    Ok(api)
}

fn endpoints(api: &Api, receiver: u16) -> Result<()> {
    let listed = api
        .call("GET", "/v1/endpoints?limit=250", None)
        .context("listing the demo's endpoints")?;
    let listed: &[Value] = listed
        .get("data")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice);
    for (name, description) in ENDPOINTS {
        let url = format!("http://127.0.0.1:{receiver}/{name}");
        let kept = listed.iter().find(|endpoint| {
            endpoint.pointer("/metadata/demo").and_then(Value::as_str) == Some(name)
        });
        match kept {
            None => {
                let mut wanted =
                    json!({"url": url, "description": description, "metadata": {"demo": name}});
                if let (Some(fields), "down") = (wanted.as_object_mut(), *name) {
                    // Soon enough to be watched.
                    let policy = json!({"kind": "fixed", "delay_ms": 2000, "max_attempts": 3});
                    fields.insert("retry_policy".to_owned(), policy);
                }
                api.call("POST", "/v1/endpoints", Some(&wanted))
                    .context("making a demo endpoint")?;
            }
            Some(endpoint) if is_left_behind(endpoint, name, receiver) => {
                let path = format!("/v1/endpoints/{}", text(endpoint, "id")?);
                api.call("PATCH", &path, Some(&json!({"url": url})))
                    .context("moving a demo endpoint")?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Whether an endpoint still has the address that an earlier run gave it, at a port that the receiver has left. What a
/// person changed is his, across restarts too.
fn is_left_behind(endpoint: &Value, name: &str, receiver: u16) -> bool {
    let url = endpoint.get("url").and_then(Value::as_str);
    let Some((port, path)) = url
        .and_then(|url| url.strip_prefix("http://127.0.0.1:"))
        .and_then(|rest| rest.split_once('/'))
    else {
        return false;
    };
    path == name
        && port
            .parse()
            .is_ok_and(|port: u16| port != receiver && ports::span(ports::RECEIVER).contains(&port))
}

fn text(value: &Value, key: &str) -> Result<String> {
    let found = value.get(key).and_then(Value::as_str);
    Ok(found
        .with_context(|| format!("there is no `{key}` in the answer"))?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(url: &str) -> bool {
        is_left_behind(&json!({"url": url}), "down", 8412)
    }

    #[test]
    fn an_endpoint_follows_the_receiver_from_every_port_that_it_may_have_had() {
        assert!(moves("http://127.0.0.1:8410/down"));
        assert!(moves("http://127.0.0.1:8419/down"));
        assert!(!moves("http://127.0.0.1:8412/down"), "it is there already");
    }

    #[test]
    fn an_endpoint_that_a_person_sends_elsewhere_stays_there() {
        for url in [
            "http://127.0.0.1:8410/ok",
            "http://127.0.0.1:8412/ok",
            "http://127.0.0.1:8410/down/",
            "http://127.0.0.1:9000/down",
            "http://127.0.0.1/down",
            "http://localhost:8410/down",
            "https://127.0.0.1:8410/down",
            "https://example.com/down",
        ] {
            assert!(!moves(url), "{url}");
        }
    }
}

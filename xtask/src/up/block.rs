//! What a person needs to know, once everything runs.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::demo;
use super::running::Running;
use crate::say::{Voice, tell};
use crate::workspace::Workspace;

pub(super) struct Block {
    api: String,
    receiver: String,
    key: String,
}

impl Block {
    pub(super) fn of(workspace: &Workspace, running: &Running) -> Result<Self> {
        Ok(Self {
            api: format!("http://127.0.0.1:{}", running.api_port),
            receiver: format!("http://127.0.0.1:{}", running.receiver_port),
            key: demo::key(workspace).context("reading the demo's key")?,
        })
    }

    pub(super) fn print(&self, voice: Voice) {
        if voice.json() {
            tell(self.to_json());
        } else {
            tell(self.to_text());
        }
    }

    /// One line to paste.
    fn curl(&self) -> String {
        let Self { api, key, .. } = self;
        // With a proxy in the shell, curl would ask it for this machine's own address.
        let direct = if behind_proxy() { "--noproxy '*' " } else { "" };
        format!(
            "curl -sS {direct}{api}/v1/events -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \
             -d '{{\"type\":\"invoice.paid\",\"payload\":{{\"id\":1}}}}'"
        )
    }

    fn to_text(&self) -> String {
        let Self { api, receiver, .. } = self;
        format!(
            "\n  API        {api}/v1      reference: {api}/docs\n  \
             Receiver   {receiver}/ok  /flaky (1 of 5 fails)  /down\n\n  \
             Send an event (paste this):\n  {}\n",
            self.curl()
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "api": format!("{}/v1", self.api),
            "docs": format!("{}/docs", self.api),
            "receiver": {
                "ok": format!("{}/ok", self.receiver),
                "flaky": format!("{}/flaky", self.receiver),
                "down": format!("{}/down", self.receiver),
            },
            "key": self.key,
            "curl": self.curl(),
        })
    }
}

/// Whether curl would use a proxy for plain http.
fn behind_proxy() -> bool {
    ["http_proxy", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_to_paste_is_one_line() {
        let block = Block {
            api: "http://127.0.0.1:8400".into(),
            receiver: "http://127.0.0.1:8410".into(),
            key: "ph_test_x".into(),
        };
        let line = block.curl();
        assert!(!line.contains('\n') && !line.contains('\\'), "{line}");
        assert!(
            line.contains(r#"-d '{"type":"invoice.paid","payload":{"id":1}}'"#),
            "{line}"
        );
        assert_eq!(
            block.to_json()["receiver"]["flaky"],
            "http://127.0.0.1:8410/flaky"
        );
    }
}

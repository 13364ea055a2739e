//! `posthorn doctor`: everything that can be asked without changing anything.

use std::path::Path;

use posthorn_domain::limits;
use posthorn_store::database::Database;
use posthorn_store::migrate::{self, Login, Standing};
use posthorn_store::oracle;
use secrecy::SecretString;
use serde_json::json;

use super::{CommonFlags, DatabaseFlags};
use crate::database::Reach;
use crate::managed::Cluster;
use crate::master_keys;

/// One question and its answer.
struct Finding {
    question: &'static str,
    answer: Result<String, String>,
}

/// Asks everything, prints the answers, and fails when one of them is bad.
pub(super) async fn run(common: &CommonFlags, database: &DatabaseFlags) -> anyhow::Result<()> {
    let (settings, environment) = common.settings(database)?;
    let reach = Reach::open(&settings.database, &environment).await?;
    let data_dir = reach.cluster().map(Cluster::data_dir);
    let findings = examine(reach.server(), settings.master_keys.as_ref(), data_dir).await;
    let place = reach.describe();
    reach.close().await?;
    let bad = findings
        .iter()
        .filter(|finding| finding.answer.is_err())
        .count();
    let lines: Vec<String> = findings.iter().map(Finding::line).collect();
    let objects: Vec<serde_json::Value> = findings.iter().map(Finding::object).collect();
    common.output.print(
        &format!("database    {place}\n{}", lines.join("\n")),
        &json!({ "ok": bad == 0, "database": place, "findings": objects }),
    )?;
    anyhow::ensure!(bad == 0, "{bad} of {} findings are bad", findings.len());
    Ok(())
}

async fn examine(
    login: Login,
    master_keys: Option<&SecretString>,
    data_dir: Option<&Path>,
) -> Vec<Finding> {
    let mut findings = match migrate::inspect(&login).await {
        Ok(standing) => examine_schema(&standing),
        Err(error) => return vec![Finding::bad("schema", error.to_string())],
    };
    if findings.iter().all(|finding| finding.answer.is_ok()) {
        findings.extend(examine_inside(login, master_keys, data_dir).await);
    }
    findings
}

fn examine_schema(standing: &Standing) -> Vec<Finding> {
    let version = standing.server_version;
    let missing = &standing.pending.names;
    let ahead = format!("{} days ahead", standing.days_ahead);
    vec![
        Finding::good(
            "postgresql",
            format!("{}.{}", version / 10_000, version % 10_000),
        ),
        match standing.pending.refuse_newer() {
            Err(error) => Finding::bad("schema", error.to_string()),
            Ok(()) if !missing.is_empty() => {
                Finding::bad("schema", format!("missing: {}", missing.join(", ")))
            }
            Ok(()) => Finding::good("schema", "complete"),
        },
        if standing.days_ahead >= 1 {
            Finding::good("partitions", ahead)
        } else {
            Finding::bad("partitions", ahead)
        },
    ]
}

/// What can only be asked of a schema that is complete.
async fn examine_inside(
    login: Login,
    master_keys: Option<&SecretString>,
    data_dir: Option<&Path>,
) -> Vec<Finding> {
    let login = match login.vet().await {
        Ok(login) => login,
        Err(error) => return vec![Finding::bad("login", error.to_string())],
    };
    let keys = match master_keys::prove(master_keys, data_dir, &login).await {
        Ok(Some(_)) => Finding::good("master keys", "they open what is sealed here"),
        Ok(None) => Finding::good("master keys", "none given, so not looked at"),
        Err(error) => Finding::bad("master keys", format!("{error:#}")),
    };
    let user = Finding::good("login", login.user());
    vec![user, keys, examine_deliveries(login).await]
}

/// INV-2: nothing that was promised is nowhere.
async fn examine_deliveries(login: Login) -> Finding {
    let database = Database::new(login.database_options(1, 1));
    let lost = oracle::lost(&database, limits::LOST_SHOWN).await;
    database.close().await;
    match lost {
        Ok(lost) if lost.is_empty() => Finding::good("deliveries", "none is lost"),
        Ok(lost) => {
            let ids: Vec<String> = lost.iter().map(ToString::to_string).collect();
            Finding::bad(
                "deliveries",
                format!("{} are lost: {}", ids.len(), ids.join(" ")),
            )
        }
        Err(error) => Finding::bad("deliveries", error.to_string()),
    }
}

impl Finding {
    fn good(question: &'static str, answer: impl Into<String>) -> Self {
        Self {
            question,
            answer: Ok(answer.into()),
        }
    }

    fn bad(question: &'static str, answer: impl Into<String>) -> Self {
        Self {
            question,
            answer: Err(answer.into()),
        }
    }

    fn line(&self) -> String {
        match &self.answer {
            Ok(text) => format!("{:<11} {text}", self.question),
            Err(text) => format!("{:<11} BAD: {text}", self.question),
        }
    }

    fn object(&self) -> serde_json::Value {
        let (ok, text) = match &self.answer {
            Ok(text) => (true, text),
            Err(text) => (false, text),
        };
        json!({ "question": self.question, "ok": ok, "answer": text })
    }
}

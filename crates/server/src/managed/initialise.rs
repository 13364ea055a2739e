//! A new cluster: made under another name and given its own when it is whole, so that a start that was
//! cut short leaves nothing that looks like one.

use std::fs;
use std::process::Stdio;

use super::account::Account;
use super::error::ClusterError;
use super::folders::{self, Folders};
use super::programs::Programs;
use super::{Cluster, tuning};

/// Makes the cluster: UTF-8, byte order for texts (the same everywhere), checksums on every page, and
/// nobody let in over a network.
pub(super) async fn make(
    folders: &Folders,
    programs: &Programs,
    account: &Account,
) -> Result<(), ClusterError> {
    let unfinished = folders.unfinished();
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(|source| folders::unusable(&unfinished, source))?;
    }
    folders::make_private(&unfinished, account)?;
    tracing::info!(version = programs.version, folder = %folders.cluster().display(), "making a PostgreSQL cluster");
    let mut command = account.command(&programs.initdb(), &unfinished);
    command
        .arg("--pgdata")
        .arg(&unfinished)
        .args([
            "--username",
            Cluster::SUPERUSER,
            "--encoding=UTF8",
            "--locale=C",
            "--data-checksums",
        ])
        .args([
            "--auth-local=trust",
            "--auth-host=reject",
            "--no-instructions",
        ])
        .stdout(Stdio::null());
    let output = tokio::process::Command::from(command).output().await;
    let output = output.map_err(|error| ClusterError::Failed {
        program: "initdb",
        said: error.to_string(),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ClusterError::Failed {
            program: "initdb",
            said,
        });
    }
    tuning::include_in(&unfinished).map_err(|source| folders::unusable(&unfinished, source))?;
    fs::rename(&unfinished, folders.cluster())
        .map_err(|source| folders::unusable(&folders.cluster(), source))
}

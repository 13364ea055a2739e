//! The ring of master keys: from the settings, or, beside a managed cluster, from a file that is made once.
//!
//! Losing the keys loses every signing secret in the database, so a missing file is only made anew where
//! nothing was sealed yet, and the operator is told once to keep a copy of it elsewhere (INV-10).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use posthorn_domain::seal::KeyRing;
use posthorn_store::entropy::Entropy;
use posthorn_store::master_key;
use posthorn_store::migrate::Login;
use secrecy::{ExposeSecret as _, SecretString};

use crate::cli::new_key_id;

/// Reads the ring and proves it against the database. `data_dir` is that of a managed cluster.
///
/// # Errors
/// When there is no ring, it does not parse, or it is not the one that sealed this database.
pub(crate) async fn ring(
    given: Option<&SecretString>,
    data_dir: Option<&Path>,
    login: &Login,
    entropy: Entropy,
) -> anyhow::Result<KeyRing> {
    let ring = match (given, data_dir) {
        (Some(text), _) => KeyRing::parse(text.expose_secret()).context("POSTHORN_MASTER_KEYS")?,
        (None, Some(data_dir)) => from_file(&data_dir.join("master.keys"), login, entropy).await?,
        (None, None) => anyhow::bail!("POSTHORN_MASTER_KEYS is not set"),
    };
    master_key::probe(login, &ring, entropy.bytes()).await?;
    Ok(ring)
}

/// Proves the ring that is given, or lies beside the data, against the database; makes and changes nothing. `None` where there
/// is none to prove.
///
/// # Errors
/// When it does not parse, is not the one that sealed this database, or is missing where something is sealed.
pub(crate) async fn prove(
    given: Option<&SecretString>,
    data_dir: Option<&Path>,
    login: &Login,
) -> anyhow::Result<Option<KeyRing>> {
    let file = data_dir.map(|folder| folder.join("master.keys"));
    let ring = match (given, file) {
        (Some(text), _) => KeyRing::parse(text.expose_secret()).context("POSTHORN_MASTER_KEYS")?,
        (None, Some(path)) if path.exists() => {
            let text = SecretString::from(fs::read_to_string(&path)?);
            KeyRing::parse(text.expose_secret()).with_context(|| path.display().to_string())?
        }
        (None, Some(path)) => {
            refuse_where_something_is_sealed(&path, login).await?;
            return Ok(None);
        }
        (None, None) => return Ok(None),
    };
    master_key::prove(login, &ring).await?;
    Ok(Some(ring))
}

async fn from_file(path: &Path, login: &Login, entropy: Entropy) -> anyhow::Result<KeyRing> {
    let text = match fs::read_to_string(path) {
        Ok(text) => SecretString::from(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_where_something_is_sealed(path, login).await?;
            make(path, entropy).with_context(|| format!("{} cannot be made", path.display()))?
        }
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", path.display()));
        }
    };
    if fs::metadata(path)?.mode() & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "the key file can be read by other users: chmod 600 it");
    }
    KeyRing::parse(text.expose_secret()).with_context(|| path.display().to_string())
}

async fn refuse_where_something_is_sealed(path: &Path, login: &Login) -> anyhow::Result<()> {
    let known = master_key::known(login).await?;
    anyhow::ensure!(
        known.is_empty(),
        "{} is missing, but secrets in this database are sealed with the master key `{}`. Put the file back from your \
         copy, or give the keys in POSTHORN_MASTER_KEYS",
        path.display(),
        known.join("`, `"),
    );
    Ok(())
}

/// Makes the file whole or not at all: written under another name, then linked, which never replaces one
/// that is there.
fn make(path: &Path, entropy: Entropy) -> anyhow::Result<SecretString> {
    let key = KeyRing::generate(&new_key_id(entropy), entropy.bytes())?;
    let unfinished = unfinished(path);
    let mut file = File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&unfinished)?;
    writeln!(file, "{}", key.expose_secret())?;
    file.sync_all()?;
    fs::hard_link(&unfinished, path)?;
    fs::remove_file(&unfinished)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    tracing::warn!(
        file = %path.display(),
        "made a master key: keep a copy of this file elsewhere. Without it the signing secrets in the database are lost"
    );
    Ok(key)
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("keys.unfinished")
}

//! `posthorn keys generate`: a new master key.

use clap::Subcommand;
use posthorn_domain::seal::KeyRing;
use posthorn_store::entropy::Entropy;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::CommonFlags;

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print a new master key as `id:base64`, for `POSTHORN_MASTER_KEYS`. Nothing is stored.
    Generate {
        /// The key's id, kept beside everything that the key seals [default: random].
        #[arg(long)]
        id: Option<String>,
    },
}

pub(super) fn run(common: &CommonFlags, verb: &Verb) -> anyhow::Result<()> {
    let Verb::Generate { id } = verb;
    let id = id.clone().unwrap_or_else(|| new_key_id(Entropy));
    let key = KeyRing::generate(&id, Entropy.bytes())?;
    common.output.print(
        key.expose_secret(),
        &json!({ "id": id, "key": key.expose_secret() }),
    )?;
    Ok(())
}

/// A short id that another key is unlikely to have.
pub(crate) fn new_key_id(entropy: Entropy) -> String {
    let random: [u8; 3] = entropy.bytes();
    random
        .iter()
        .fold("k".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

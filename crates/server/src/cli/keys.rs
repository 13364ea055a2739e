//! `posthorn keys`: a new master key, and everything sealed anew under it.

use clap::Subcommand;
use posthorn_domain::seal::KeyRing;
use posthorn_store::entropy::Entropy;
use posthorn_store::reseal::{self, Resealed, Resealer, Step};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::session::Session;
use super::{CommonFlags, DatabaseFlags, session};

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    /// Print a new master key as `id:base64`, for `POSTHORN_MASTER_KEYS`. Nothing is stored.
    Generate {
        /// The key's id, kept beside everything that the key seals [default: random].
        #[arg(long)]
        id: Option<String>,
    },
    /// Seal everything anew under the first master key, and let go of the others, so that they can be taken out. Nodes may run
    /// meanwhile, once each has the keys in this order; may be stopped and begun again.
    Rotate {
        #[command(flatten)]
        database: DatabaseFlags,
    },
}

pub(super) async fn run(common: &CommonFlags, verb: Verb) -> anyhow::Result<()> {
    match verb {
        Verb::Generate { id } => generate(common, id),
        Verb::Rotate { database } => {
            session::with_ring(common, &database, async |session, ring| {
                rotate(common, session, ring).await
            })
            .await
        }
    }
}

fn generate(common: &CommonFlags, id: Option<String>) -> anyhow::Result<()> {
    let id = id.unwrap_or_else(|| new_key_id(Entropy));
    let key = KeyRing::generate(&id, Entropy.bytes())?;
    common.output.print(
        key.expose_secret(),
        &json!({ "id": id, "key": key.expose_secret() }),
    )?;
    Ok(())
}

async fn rotate(common: &CommonFlags, session: &Session, ring: &KeyRing) -> anyhow::Result<()> {
    let database = &session.database;
    reseal::begin(database, ring, Entropy).await?;
    let mut resealer = Resealer::new(database, ring, Entropy);
    while resealer.run_once().await? == Step::More {}
    let done = resealer.done();
    let freed = reseal::free(database, ring).await?;
    let object = json!({
        "key": ring.current_id(),
        "secrets": done.secrets,
        "headers": done.headers,
        "compats": done.compats,
        "answers": done.answers,
        "broken": done.broken,
        "freed": freed,
    });
    common
        .output
        .print(&in_words(ring, done, &freed), &object)?;
    anyhow::ensure!(
        done.broken == 0,
        "{} sealed texts do not open with the master key that they name, and were left as they are",
        done.broken
    );
    Ok(())
}

fn in_words(ring: &KeyRing, done: Resealed, freed: &[String]) -> String {
    let sealed = format!(
        "sealed anew under the master key `{}`: {} signing secrets, headers of {} endpoints, {} secrets of other forms, {} kept answers",
        ring.current_id(),
        done.secrets,
        done.headers,
        done.compats,
        done.answers
    );
    let left = match freed {
        [] => "no other key was in use".to_owned(),
        freed => format!(
            "nothing here needs `{}` any more: it can be taken out of the master keys. Keep it for as long as you keep backups",
            freed.join("`, `")
        ),
    };
    format!("{sealed}\n{left}")
}

/// A short id that another key is unlikely to have.
pub(crate) fn new_key_id(entropy: Entropy) -> String {
    let random: [u8; 3] = entropy.bytes();
    random
        .iter()
        .fold("k".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

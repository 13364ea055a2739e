//! `posthorn migrate`: roles, schema, partitions.

use serde_json::json;

use super::{CommonFlags, DatabaseFlags};
use crate::database::Reach;

/// Makes what is missing and says what it did.
pub(super) async fn run(common: &CommonFlags, database: &DatabaseFlags) -> anyhow::Result<()> {
    let (settings, environment) = common.settings(database)?;
    let reach = Reach::open(&settings.database, &environment).await?;
    let prepared = reach.prepare().await;
    reach.close().await?;
    let prepared = prepared?;
    let text = match prepared.ran {
        0 => format!("nothing to do: all {} migrations have run", prepared.known),
        ran => format!("ran {ran} of {} migrations", prepared.known),
    };
    common.output.print(
        &text,
        &json!({ "ran": prepared.ran, "known": prepared.known }),
    )?;
    Ok(())
}
